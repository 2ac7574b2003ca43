/* SPDX-License-Identifier: Apache-2.0
 *
 * A weight format: how a matrix is checked, packed for this machine, read back, and multiplied.
 *
 * One matrix is W[n][k], n output channels by k inputs, row-major in the file. The host multiplies
 *     C[m][n] = A[m][k] * W[n][k]^T
 * in slices of output channels, so that threads share one matrix without talking to each other.
 *
 * Life of a matrix: check -> packed_size -> host allocates 64-byte-aligned memory -> pack (in slices, any
 * thread) -> run and dequantise (any thread, concurrently) -> host frees. The source is not needed after
 * pack.
 *
 * Batch invariance: every C[i][j] is a function of row i of A and channel j of W alone. For one kernel the
 * order of operations may not depend on m, on the slice, or on what the other rows hold.
 */
#ifndef TROUPE_EXT_QUANT_SCHEME_H
#define TROUPE_EXT_QUANT_SCHEME_H

#include "troupe/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TROUPE_EXT_QUANT_SCHEME "troupe.quant_scheme/draft-1"

/* Slices handed to pack and run start at multiples of this many channels; dequantise takes any slice. */
#define TROUPE_PANEL_CHANNELS 32u

typedef struct troupe_weight_shape {
  uint32_t struct_size;
  uint32_t n; /* output channels, > 0 */
  uint32_t k; /* inputs, > 0; a multiple of the scheme's k_multiple */
} troupe_weight_shape;

typedef struct troupe_packed_size {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t bytes; /* of the whole packed matrix; the host aligns it to 64 bytes */
} troupe_packed_size;

/* One multiplication of a slice of channels. All pointers are the host's and live for the call. */
typedef struct troupe_mm_call {
  uint32_t struct_size;
  uint32_t m;         /* rows, >= 1 */
  uint32_t n_begin;   /* first channel, a multiple of TROUPE_PANEL_CHANNELS */
  uint32_t n_end;     /* one past the last channel; a multiple of TROUPE_PANEL_CHANNELS, or shape.n */
  const void* packed; /* the whole packed matrix */
  const float* a;     /* [m][k] f32, row i at a + i * a_stride */
  uint64_t a_stride;  /* elements */
  float* c;           /* [m][n] f32, row i, channel j at c + i * c_stride + (j - n_begin) */
  uint64_t c_stride;  /* elements */
  void* scratch;      /* the kernel's scratch_bytes, 64-byte aligned, contents arbitrary */
} troupe_mm_call;

/* One way to multiply. `run` overwrites C. [compute thread] [no allocation, lock or log] */
typedef struct troupe_mm_kernel {
  uint32_t struct_size;
  uint32_t isa;   /* TROUPE_ISA_* */
  uint32_t m_min; /* rows served, inclusive; kernels that differ in m must give equal results */
  uint32_t m_max;
  uint64_t (*scratch_bytes)(const troupe_weight_shape* shape); /* null = none */
  int32_t (*run)(const troupe_weight_shape* shape, const troupe_mm_call* call);
} troupe_mm_kernel;

typedef struct troupe_quant_scheme {
  uint32_t struct_size;
  uint32_t version;               /* of this scheme's packed layout */
  const char* id;                 /* "gguf.q4_1"; unique, stable */
  uint32_t k_multiple;            /* k must be a multiple of it; >= 1 */
  uint32_t source_block_elements; /* elements of k in one block of the file */
  uint32_t source_block_bytes;    /* bytes of that block */
  uint32_t reserved;

  /* Whether the shape is served. [any thread] */
  int32_t (*check)(const troupe_weight_shape* shape, troupe_text why);
  /* [any thread] */
  int32_t (*packed_size)(const troupe_weight_shape* shape, troupe_packed_size* out);
  /* Packs channels [n_begin, n_end) of the file's rows. `source` is the whole matrix, any alignment, exactly
   * n * k / source_block_elements * source_block_bytes long. Non-finite scales are BAD_DATA. Disjoint slices
   * may be packed concurrently. [any thread] */
  int32_t (*pack)(
      const troupe_weight_shape* shape, const void* source, uint32_t n_begin, uint32_t n_end, void* packed,
      troupe_text why);
  /* Reads channels [n_begin, n_end) back as f32: channel j, input i at out + (j - n_begin) * out_stride + i;
   * any n_begin. Exactly the numbers that `run` multiplies by; the oracle of every kernel and the source of
   * the 16-bit fallback. Mandatory. [any thread] */
  int32_t (*dequantise)(
      const troupe_weight_shape* shape, const void* packed, uint32_t n_begin, uint32_t n_end, float* out,
      uint64_t out_stride);

  uint32_t mm_count;
  uint32_t reserved2;
  /* [mm_count] pointers, 1..64, so that a kernel may be longer than the host's own struct; those with
   * TROUPE_ISA_REF together serve every m */
  const troupe_mm_kernel* const* mm;
} troupe_quant_scheme;

#ifdef __cplusplus
}
#endif
#endif
