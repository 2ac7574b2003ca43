/* SPDX-License-Identifier: Apache-2.0
 *
 * The plugin SDK: types every plugin and every extension header shares. Draft: it may change until it is
 * frozen as 1.0.
 *
 * Rules of the boundary: one exported symbol; every struct but `troupe_text` starts with `struct_size`, is
 * append-only, and is read up to min(struct_size, own size); `troupe_text` is passed by value and never
 * grows; the host allocates everything; a call answers with a status and writes a text into the caller's
 * buffer; no exception, allocator, C++ type or FILE crosses. A plugin starts no threads and leaves the
 * floating-point state (MXCSR, AMX tiles) as it found it.
 */
#ifndef TROUPE_PLUGIN_H
#define TROUPE_PLUGIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TROUPE_PLUGIN_ABI_MAJOR 0u
#define TROUPE_PLUGIN_ABI_MINOR 1u

/* Status of every call. A new value may appear in a later minor version; treat an unknown one as INTERNAL. */
enum {
  TROUPE_OK = 0,
  TROUPE_UNSUPPORTED = 1, /* this shape, type or machine is not served; not a fault */
  TROUPE_BAD_ARG = 2,     /* the host broke the contract of the call */
  TROUPE_BAD_DATA = 3,    /* the data handed in breaks its format */
  TROUPE_NO_MEMORY = 4,
  TROUPE_INTERNAL = 5
};

/* Instruction sets a kernel may need, best last. The host never calls a kernel whose set the CPU lacks. */
enum {
  TROUPE_ISA_REF = 0,    /* plain C++, any machine */
  TROUPE_ISA_AVX2 = 1,   /* AVX2 + FMA + F16C */
  TROUPE_ISA_AVX512 = 2, /* AVX-512 F, BW, DQ, VL */
  TROUPE_ISA_VNNI = 3,   /* the above + AVX512-VNNI */
  TROUPE_ISA_AMX = 4     /* the above + AMX int8 and bf16 */
};

/* Element types of dense buffers. */
enum { TROUPE_F32 = 0, TROUPE_F16 = 1, TROUPE_BF16 = 2, TROUPE_I8 = 3, TROUPE_U8 = 4 };

/* Where a call writes one sentence for a person. `data` may be null; always NUL-terminated within `size`. */
typedef struct troupe_text {
  char* data;
  uint32_t size; /* bytes at data */
} troupe_text;

#ifdef __cplusplus
}
#endif
#endif
