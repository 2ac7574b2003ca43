// SPDX-License-Identifier: Apache-2.0
// Multiplication by unquantised panels. Templates only, see vector_avx2.hpp.
#pragma once

#include "kernels/cpu/attention_driver.hpp"
#include "troupe/ext/quant_scheme.h"

#include <cstddef>
#include <cstdint>

namespace troupe::kernels {

/// A tile is `Rows` rows against `Columns` channels of a panel; the sums stay in registers over all of k, one
/// chain per output. Of few rows each takes `Abreast` panels at a time, so that its chains hide the latency
/// of the multipliers.
template<class Machine, class Source, int Rows, int Columns, int Abreast>
struct dense_driver {
  using m = Machine;
  using vec = typename Machine::vec;
  using stored = typename Source::stored;
  static constexpr std::uint32_t panel = TROUPE_PANEL_CHANNELS;
  static constexpr std::uint32_t width = Machine::width;
  static constexpr int vectors = Columns / static_cast<int>(width);
  static constexpr int few_rows = 2;

  static std::int32_t run(const troupe_weight_shape* shape, const troupe_mm_call* call) {
    const std::size_t k = shape->k;
    std::uint32_t n = call->n_begin;
    if (call->m <= few_rows) {
      for (; n + Abreast * panel <= call->n_end; n += Abreast * panel) {
        const stored* weights = static_cast<const stored*>(call->packed) + n * k;
        for (std::uint32_t row = 0; row < call->m; ++row)
          row_of_panels(*call, weights, k, row, n - call->n_begin);
      }
    }
    for (; n < call->n_end; n += panel) {
      const stored* weights = static_cast<const stored*>(call->packed) + n * k;
      const std::uint32_t columns = call->n_end - n < panel ? call->n_end - n : panel;
      const std::uint32_t tiles = (call->m + Rows - 1) / Rows;
      for (std::uint32_t c = 0; c < columns; c += Columns) {
        const std::uint32_t left = columns - c < Columns ? columns - c : Columns;
        for (std::uint32_t t = 0, row = 0; t < tiles; ++t) {
          // Tiles of nearly equal height: a short last one would leave the multipliers waiting for their
          // sums.
          const std::uint32_t rows = call->m / tiles + (t < call->m % tiles ? 1 : 0);
          tile_of<Rows>(
              rows, call->a + row * call->a_stride, call->a_stride, weights + c, k,
              call->c + row * call->c_stride + (n - call->n_begin) + c, call->c_stride, left);
          row += rows;
        }
      }
    }
    return TROUPE_OK;
  }

 private:
  template<int Count>
  static void tile_of(
      std::uint32_t rows, const float* a, std::size_t a_stride, const stored* weights, std::size_t k,
      float* c, std::size_t c_stride, std::uint32_t columns) {
    if constexpr (Count > 1)
      if (rows < Count) return tile_of<Count - 1>(rows, a, a_stride, weights, k, c, c_stride, columns);
    tile<Count>(a, a_stride, weights, k, c, c_stride, columns);
  }

  template<int Count>
  static void tile(
      const float* a, std::size_t a_stride, const stored* weights, std::size_t k, float* c,
      std::size_t c_stride, std::uint32_t columns) {
    vec acc[Count][vectors];
#pragma GCC unroll 16
    for (int r = 0; r < Count; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) acc[r][v] = m::zero();
    for (std::size_t i = 0; i < k; ++i, weights += panel, ++a) {
      vec w[vectors];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) w[v] = Source::load(weights + v * width);
#pragma GCC unroll 16
      for (int r = 0; r < Count; ++r) {
        const vec x = m::all(a[r * a_stride]);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) acc[r][v] = m::fma(x, w[v], acc[r][v]);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < Count; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        const std::uint32_t before = static_cast<std::uint32_t>(v) * width;
        if (before + width <= columns)
          m::store(c + r * c_stride + before, acc[r][v]);
        else if (before < columns)
          m::store_part(c + r * c_stride + before, acc[r][v], columns - before);
      }
  }

  static void row_of_panels(
      const troupe_mm_call& call, const stored* weights, std::size_t k, std::uint32_t row,
      std::uint32_t column) {
    constexpr int per_panel = static_cast<int>(panel / width);
    const float* a = call.a + row * call.a_stride;
    vec acc[Abreast][per_panel];
#pragma GCC unroll 4
    for (int p = 0; p < Abreast; ++p)
#pragma GCC unroll 4
      for (int v = 0; v < per_panel; ++v) acc[p][v] = m::zero();
    for (std::size_t i = 0; i < k; ++i, weights += panel) {
      const vec x = m::all(a[i]);
#pragma GCC unroll 4
      for (int p = 0; p < Abreast; ++p)
#pragma GCC unroll 4
        for (int v = 0; v < per_panel; ++v)
          acc[p][v] = m::fma(x, Source::load(weights + p * k * panel + v * width), acc[p][v]);
    }
    float* c = call.c + row * call.c_stride + column;
#pragma GCC unroll 4
    for (int p = 0; p < Abreast; ++p)
#pragma GCC unroll 4
      for (int v = 0; v < per_panel; ++v)
        m::store(c + p * static_cast<int>(panel) + v * static_cast<int>(width), acc[p][v]);
  }
};

} // namespace troupe::kernels
