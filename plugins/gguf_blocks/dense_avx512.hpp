// SPDX-License-Identifier: Apache-2.0
// Rows of activations against weights that are floats already, for AVX-512.
#pragma once

#include "plugins/gguf_blocks/mm_driver.hpp"

#include <immintrin.h>

// In a namespace of its own, so that no function compiled for AVX-512 is one that other files link.
namespace troupe::gguf_blocks::avx512 {

struct column_masks {
  __mmask16 half[2];
  explicit column_masks(std::uint32_t columns) {
    const std::uint32_t bits = columns >= 32 ? 0xffffffffu : (1u << columns) - 1;
    half[0] = static_cast<__mmask16>(bits);
    half[1] = static_cast<__mmask16>(bits >> 16);
  }
};

template<int Rows>
void dense_rows(const mm_tile& tile, const float* weights, std::uint32_t inputs, bool accumulate) {
  const char* soon = static_cast<const char*>(tile.prefetch);
  const column_masks masks(tile.columns);
  __m512 acc[Rows][2];
#pragma GCC unroll 12
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h)
      acc[r][h] = accumulate ? _mm512_maskz_loadu_ps(masks.half[h], tile.c + r * tile.c_stride + h * 16)
                             : _mm512_setzero_ps();
  const float* a = tile.a;
  const std::size_t stride = tile.a_stride;
  for (std::uint32_t k = 0; k < inputs; ++k, weights += panel, ++a, soon += tile.prefetch_step) {
    _mm_prefetch(soon, _MM_HINT_T0);
    const __m512 w0 = _mm512_load_ps(weights), w1 = _mm512_load_ps(weights + 16);
#pragma GCC unroll 12
    for (int r = 0; r < Rows; ++r) {
      const __m512 x = _mm512_set1_ps(a[r * stride]);
      acc[r][0] = _mm512_fmadd_ps(x, w0, acc[r][0]);
      acc[r][1] = _mm512_fmadd_ps(x, w1, acc[r][1]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h)
      _mm512_mask_storeu_ps(tile.c + r * tile.c_stride + h * 16, masks.half[h], acc[r][h]);
}

/// C (+)= A * weights for 1..12 rows; weights [inputs][32].
inline void multiply_dense(
    const mm_tile& tile, std::uint32_t rows, const float* weights, std::uint32_t inputs, bool accumulate) {
  using function = void (*)(const mm_tile&, const float*, std::uint32_t, bool);
  static constexpr function by_rows[] = {dense_rows<1>, dense_rows<2>,  dense_rows<3>,  dense_rows<4>,
                                         dense_rows<5>, dense_rows<6>,  dense_rows<7>,  dense_rows<8>,
                                         dense_rows<9>, dense_rows<10>, dense_rows<11>, dense_rows<12>};
  by_rows[rows - 1](tile, weights, inputs, accumulate);
}

} // namespace troupe::gguf_blocks::avx512
