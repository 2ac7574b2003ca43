// SPDX-License-Identifier: Apache-2.0
// AVX2 with FMA and F16C. A panel of 32 channels is worked on in halves of two vectors, so that six rows of
// sums, both weights and one activation fit the sixteen registers.
#include "plugins/gguf_blocks/dense_avx2.hpp"
#include "plugins/gguf_blocks/mm_driver.hpp"

#include <immintrin.h>

namespace troupe::gguf_blocks {

namespace {

using namespace avx2;

constexpr std::size_t groups_ahead =
    8; // the panels of a matrix follow one another, so this crosses their ends

/// Scales and minima of 8 channels for one group.
template<class Layout>
struct scales8 {
  __m256 scale, minimum;
  scales8(const std::uint8_t* packed_group, std::uint32_t eighth) {
    const auto* scales = reinterpret_cast<const __m128i*>(packed_group + Layout::scale_offset);
    scale = _mm256_cvtph_ps(_mm_load_si128(scales + eighth));
    if constexpr (Layout::minimum) {
      const auto* minima = reinterpret_cast<const __m128i*>(packed_group + Layout::minimum_offset);
      minimum = _mm256_cvtph_ps(_mm_load_si128(minima + eighth));
    }
  }
  __m256 weight(__m256i code) const {
    if constexpr (Layout::zero != 0) code = _mm256_sub_epi32(code, _mm256_set1_epi32(Layout::zero));
    if constexpr (Layout::minimum)
      return _mm256_fmadd_ps(_mm256_cvtepi32_ps(code), scale, minimum);
    else
      return _mm256_mul_ps(_mm256_cvtepi32_ps(code), scale);
  }
};

/// Codes of 8 channels for 8 inputs in a row.
template<class Layout>
struct codes8 {
  const std::uint8_t* bytes;
  __m256i words;
  codes8(const std::uint8_t* group_codes, std::uint32_t octet, std::uint32_t eighth) {
    if constexpr (Layout::nibbles)
      words = _mm256_load_si256(reinterpret_cast<const __m256i*>(group_codes) + octet * 4 + eighth);
    else
      bytes = group_codes + octet * 8 * panel + eighth * 8;
  }
  __m256i next() {
    __m256i code;
    if constexpr (Layout::nibbles) {
      code = _mm256_and_si256(words, _mm256_set1_epi32(15));
      words = _mm256_srli_epi32(words, 4);
    } else {
      code = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
      bytes += panel;
    }
    return code;
  }
};

/// Asks for one group of codes that will be needed soon; an address past the matrix is harmless.
template<class Layout>
void prefetch_group(const std::uint8_t* packed_group) {
#pragma GCC unroll 18
  for (std::size_t line = 0; line < Layout::group_bytes; line += 64)
    _mm_prefetch(reinterpret_cast<const char*>(packed_group + line), _MM_HINT_T0);
}

/// `Vectors` eights of channels from eighth `first` on, straight from the codes.
template<class Layout, int Rows, int Vectors>
void fused_rows(const mm_tile& tile, const std::uint8_t* packed, std::uint32_t groups, std::uint32_t first) {
  __m256 acc[Rows][Vectors];
#pragma GCC unroll 6
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) acc[r][v] = _mm256_setzero_ps();
  const float* a = tile.a;
  for (std::uint32_t g = 0; g < groups; ++g, packed += Layout::group_bytes, a += group) {
    prefetch_group<Layout>(packed + groups_ahead * Layout::group_bytes);
    for (std::uint32_t octet = 0; octet < group / 8; ++octet) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        const scales8<Layout> scales(packed, first + v);
        codes8<Layout> codes(packed + Layout::code_offset, octet, first + v);
#pragma GCC unroll 8
        for (std::uint32_t i = 0; i < 8; ++i) {
          const __m256 w = scales.weight(codes.next());
#pragma GCC unroll 6
          for (int r = 0; r < Rows; ++r) {
            const __m256 x = _mm256_broadcast_ss(a + r * tile.a_stride + octet * 8 + i);
            acc[r][v] = _mm256_fmadd_ps(x, w, acc[r][v]);
          }
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) {
    const std::uint32_t column = (first + v) * 8;
    const __m256i mask = column_mask(tile.columns > column ? tile.columns - column : 0);
#pragma GCC unroll 6
    for (int r = 0; r < Rows; ++r) _mm256_maskstore_ps(tile.c + r * tile.c_stride + column, mask, acc[r][v]);
  }
}

struct machine {
  static constexpr std::uint32_t max_fused_rows = 4;
  static constexpr std::uint32_t fused_tile_rows = 4;
  static constexpr std::uint32_t dense_tile_rows = 6;

  static std::uint32_t fused_panels(std::uint32_t) { return 1; }

  template<class Layout>
  static void fused(
      const mm_tile& tile, std::uint32_t rows, std::uint32_t, const std::uint8_t* packed, std::size_t,
      std::uint32_t groups) {
    switch (rows) {
    case 1:
      return fused_rows<Layout, 1, 4>(tile, packed, groups, 0);
    case 2:
      return fused_rows<Layout, 2, 4>(tile, packed, groups, 0);
    case 3:
      fused_rows<Layout, 3, 2>(tile, packed, groups, 0);
      return fused_rows<Layout, 3, 2>(tile, packed, groups, 2);
    default:
      fused_rows<Layout, 4, 2>(tile, packed, groups, 0);
      return fused_rows<Layout, 4, 2>(tile, packed, groups, 2);
    }
  }

  template<class Layout>
  static void dequantise(const std::uint8_t* packed, std::uint32_t groups, float* weights) {
    for (std::uint32_t g = 0; g < groups; ++g, packed += Layout::group_bytes, weights += group * panel) {
      for (std::uint32_t eighth = 0; eighth < panel / 8; ++eighth) {
        const scales8<Layout> scales(packed, eighth);
        for (std::uint32_t octet = 0; octet < group / 8; ++octet) {
          codes8<Layout> codes(packed + Layout::code_offset, octet, eighth);
          float* to = weights + octet * 8 * panel + eighth * 8;
#pragma GCC unroll 8
          for (std::uint32_t i = 0; i < 8; ++i) _mm256_store_ps(to + i * panel, scales.weight(codes.next()));
        }
      }
    }
  }

  static void dense(
      const mm_tile& tile, std::uint32_t rows, const float* weights, std::uint32_t inputs, bool accumulate) {
    multiply_dense(tile, rows, weights, inputs, accumulate);
  }
};

} // namespace

const mm_functions mm_avx2{
    mm_driver<machine, nibble_layout>::run, mm_driver<machine, nibble_min_layout>::run,
    mm_driver<machine, byte_layout>::run, mm_driver<machine, byte_min_layout>::run};

} // namespace troupe::gguf_blocks
