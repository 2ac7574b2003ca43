// SPDX-License-Identifier: Apache-2.0
// Rows of activations against weights that are floats already, for AVX2 with FMA.
#pragma once

#include "plugins/gguf_blocks/mm_driver.hpp"

#include <immintrin.h>

// In a namespace of its own, so that no function compiled for AVX2 is one that other files link.
namespace troupe::gguf_blocks::avx2 {

constexpr std::uint32_t half_panel = panel / 2;

/// Lanes below `columns` set.
inline __m256i column_mask(std::uint32_t columns) {
  return _mm256_cmpgt_epi32(
      _mm256_set1_epi32(static_cast<int>(columns)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/// Reads and writes 16 columns of C of which only some may exist.
struct half_columns {
  __m256i mask[2];
  explicit half_columns(std::uint32_t columns) :
      mask{column_mask(columns), column_mask(columns < 8 ? 0 : columns - 8)} {}
};

/// Real columns of half `half` of a panel that has `columns`.
inline std::uint32_t columns_of_half(std::uint32_t columns, std::uint32_t half) {
  const std::uint32_t first = half * half_panel;
  const std::uint32_t left = columns > first ? columns - first : 0;
  return left < half_panel ? left : half_panel;
}

/// One half of the panel: 16 channels.
template<int Rows>
void dense_half(
    const mm_tile& tile, const float* weights, std::uint32_t inputs, bool accumulate, std::uint32_t half) {
  const half_columns columns(columns_of_half(tile.columns, half));
  float* c = tile.c + half * half_panel;
  __m256 acc[Rows][2];
#pragma GCC unroll 6
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v)
      acc[r][v] = accumulate ? _mm256_maskload_ps(c + r * tile.c_stride + v * 8, columns.mask[v])
                             : _mm256_setzero_ps();
  const float* a = tile.a;
  const std::size_t stride = tile.a_stride;
  const char* soon = static_cast<const char*>(tile.prefetch);
  weights += half * half_panel;
  for (std::uint32_t k = 0; k < inputs; ++k, weights += panel, ++a, soon += tile.prefetch_step) {
    _mm_prefetch(soon, _MM_HINT_T0);
    const __m256 w0 = _mm256_load_ps(weights), w1 = _mm256_load_ps(weights + 8);
#pragma GCC unroll 6
    for (int r = 0; r < Rows; ++r) {
      const __m256 x = _mm256_broadcast_ss(a + r * stride);
      acc[r][0] = _mm256_fmadd_ps(x, w0, acc[r][0]);
      acc[r][1] = _mm256_fmadd_ps(x, w1, acc[r][1]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v)
      _mm256_maskstore_ps(c + r * tile.c_stride + v * 8, columns.mask[v], acc[r][v]);
}

template<int Rows>
void dense_panel(const mm_tile& tile, const float* weights, std::uint32_t inputs, bool accumulate) {
  dense_half<Rows>(tile, weights, inputs, accumulate, 0);
  if (tile.columns > half_panel) dense_half<Rows>(tile, weights, inputs, accumulate, 1);
}

/// C (+)= A * weights for 1..6 rows; weights [inputs][32].
inline void multiply_dense(
    const mm_tile& tile, std::uint32_t rows, const float* weights, std::uint32_t inputs, bool accumulate) {
  using function = void (*)(const mm_tile&, const float*, std::uint32_t, bool);
  static constexpr function by_rows[] = {dense_panel<1>, dense_panel<2>, dense_panel<3>,
                                         dense_panel<4>, dense_panel<5>, dense_panel<6>};
  by_rows[rows - 1](tile, weights, inputs, accumulate);
}

} // namespace troupe::gguf_blocks::avx2
