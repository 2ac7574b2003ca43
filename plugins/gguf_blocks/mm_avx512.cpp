// SPDX-License-Identifier: Apache-2.0
// AVX-512 (F, BW, DQ, VL) with FMA and F16C. A panel of 32 channels is two vectors wide.
#include "plugins/gguf_blocks/dense_avx512.hpp"
#include "plugins/gguf_blocks/mm_driver.hpp"

#include <immintrin.h>

namespace troupe::gguf_blocks {

namespace {

using namespace avx512;

/// The 16 values of a nibble, found by the low four bits of each lane.
template<class Layout>
__m512 nibble_values() {
  const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm512_sub_ps(codes, _mm512_set1_ps(Layout::zero));
}

/// Scales and minima of half a panel for one group.
template<class Layout>
struct half_scales {
  __m512 scale, minimum;
  half_scales(const std::uint8_t* packed_group, int half) {
    const auto* scales = reinterpret_cast<const __m256i*>(packed_group + Layout::scale_offset);
    scale = _mm512_cvtph_ps(_mm256_load_si256(scales + half));
    if constexpr (Layout::minimum) {
      const auto* minima = reinterpret_cast<const __m256i*>(packed_group + Layout::minimum_offset);
      minimum = _mm512_cvtph_ps(_mm256_load_si256(minima + half));
    }
  }
  __m512 weight(__m512 code) const {
    if constexpr (Layout::minimum)
      return _mm512_fmadd_ps(code, scale, minimum);
    else
      return _mm512_mul_ps(code, scale);
  }
};

__m512 widen_bytes(const std::uint8_t* codes) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(codes))));
}

/// Asks for one group of codes that will be needed soon. The hardware's own prefetch restarts at each panel
/// and loses a third of the bandwidth there. An address past the matrix is harmless.
template<class Layout>
void prefetch_group(const std::uint8_t* packed_group) {
#pragma GCC unroll 18
  for (std::size_t line = 0; line < Layout::group_bytes; line += 64)
    _mm_prefetch(reinterpret_cast<const char*>(packed_group + line), _MM_HINT_T0);
}

template<class Layout, int Rows, int Panels>
void fused_rows(
    const mm_tile& tile, const std::uint8_t* packed, std::size_t panel_bytes, std::uint32_t groups) {
  const __m512 values = nibble_values<Layout>();
  __m512 acc[Rows][Panels][2];
#pragma GCC unroll 12
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int p = 0; p < Panels; ++p) acc[r][p][0] = acc[r][p][1] = _mm512_setzero_ps();

  const float* a = tile.a;
  constexpr std::uint32_t groups_ahead = 8 / Panels;
  for (std::uint32_t g = 0; g < groups; ++g, packed += Layout::group_bytes) {
    // Beyond the end of these panels the next ones begin.
    const std::size_t ahead =
        groups_ahead * Layout::group_bytes + (g + groups_ahead < groups ? 0 : (Panels - 1) * panel_bytes);
#pragma GCC unroll 4
    for (int p = 0; p < Panels; ++p) {
      const std::uint8_t* from = packed + p * panel_bytes;
      prefetch_group<Layout>(from + ahead);
      const half_scales<Layout> low(from, 0), high(from, 1);
      const std::uint8_t* codes = from + Layout::code_offset;
      for (std::uint32_t octet = 0; octet < group / 8; ++octet, codes += panel * (Layout::nibbles ? 4 : 8)) {
        __m512i words[2];
        if constexpr (Layout::nibbles) {
          words[0] = _mm512_load_si512(codes);
          words[1] = _mm512_load_si512(codes + 64);
        }
#pragma GCC unroll 8
        for (std::uint32_t i = 0; i < 8; ++i) {
          __m512 w0, w1;
          if constexpr (Layout::nibbles) {
            w0 = low.weight(_mm512_permutexvar_ps(words[0], values));
            w1 = high.weight(_mm512_permutexvar_ps(words[1], values));
            words[0] = _mm512_srli_epi32(words[0], 4);
            words[1] = _mm512_srli_epi32(words[1], 4);
          } else {
            w0 = low.weight(widen_bytes(codes + i * panel));
            w1 = high.weight(widen_bytes(codes + i * panel + 16));
          }
#pragma GCC unroll 12
          for (int r = 0; r < Rows; ++r) {
            const __m512 x = _mm512_set1_ps(a[r * tile.a_stride + octet * 8 + i]);
            acc[r][p][0] = _mm512_fmadd_ps(x, w0, acc[r][p][0]);
            acc[r][p][1] = _mm512_fmadd_ps(x, w1, acc[r][p][1]);
          }
        }
      }
    }
    a += group;
  }

  const column_masks masks(tile.columns);
#pragma GCC unroll 12
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int p = 0; p < Panels; ++p)
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h)
        _mm512_mask_storeu_ps(tile.c + r * tile.c_stride + p * panel + h * 16, masks.half[h], acc[r][p][h]);
}

struct machine {
  // Measured with bench_gguf_blocks on a core with two 512-bit multipliers: reading the codes once for every
  // tile costs less than writing and reading back the floats until there are more than three tiles.
  static constexpr std::uint32_t max_fused_rows = 30;
  static constexpr std::uint32_t fused_tile_rows = 10;
  static constexpr std::uint32_t dense_tile_rows = 12;

  /// Chains per step = 2 * rows * panels; eight hide the latency of the multipliers.
  static std::uint32_t fused_panels(std::uint32_t m) { return m == 1 ? 4 : m <= 3 ? 2 : 1; }

  template<class Layout>
  static void fused(
      const mm_tile& tile, std::uint32_t rows, std::uint32_t panels, const std::uint8_t* packed,
      std::size_t panel_bytes, std::uint32_t groups) {
    using function = void (*)(const mm_tile&, const std::uint8_t*, std::size_t, std::uint32_t);
    static constexpr function one_panel[] = {fused_rows<Layout, 1, 1>, fused_rows<Layout, 2, 1>,
                                             fused_rows<Layout, 3, 1>, fused_rows<Layout, 4, 1>,
                                             fused_rows<Layout, 5, 1>, fused_rows<Layout, 6, 1>,
                                             fused_rows<Layout, 7, 1>, fused_rows<Layout, 8, 1>,
                                             fused_rows<Layout, 9, 1>, fused_rows<Layout, 10, 1>};
    static constexpr function several_panels[] = {
        fused_rows<Layout, 1, 4>, fused_rows<Layout, 2, 2>, fused_rows<Layout, 3, 2>};
    (panels == 1 ? one_panel : several_panels)[rows - 1](tile, packed, panel_bytes, groups);
  }

  template<class Layout>
  static void dequantise(const std::uint8_t* packed, std::uint32_t groups, float* weights) {
    const __m512 values = nibble_values<Layout>();
    for (std::uint32_t g = 0; g < groups; ++g, packed += Layout::group_bytes) {
      for (int half = 0; half < 2; ++half) {
        const half_scales<Layout> scales(packed, half);
        const std::uint8_t* codes = packed + Layout::code_offset;
        float* to = weights + half * 16;
        if constexpr (Layout::nibbles) {
          for (std::uint32_t octet = 0; octet < group / 8; ++octet, to += 8 * panel) {
            __m512i words = _mm512_load_si512(codes + (octet * 2 + half) * 64);
#pragma GCC unroll 8
            for (std::uint32_t i = 0; i < 8; ++i, words = _mm512_srli_epi32(words, 4))
              _mm512_store_ps(to + i * panel, scales.weight(_mm512_permutexvar_ps(words, values)));
          }
        } else {
          for (std::uint32_t i = 0; i < group; ++i)
            _mm512_store_ps(to + i * panel, scales.weight(widen_bytes(codes + i * panel + half * 16)));
        }
      }
      weights += group * panel;
    }
  }

  static void dense(
      const mm_tile& tile, std::uint32_t rows, const float* weights, std::uint32_t inputs, bool accumulate) {
    multiply_dense(tile, rows, weights, inputs, accumulate);
  }
};

} // namespace

const mm_functions mm_avx512{
    mm_driver<machine, nibble_layout>::run, mm_driver<machine, nibble_min_layout>::run,
    mm_driver<machine, byte_layout>::run, mm_driver<machine, byte_min_layout>::run};

} // namespace troupe::gguf_blocks
