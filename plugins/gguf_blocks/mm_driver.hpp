// SPDX-License-Identifier: Apache-2.0
// The loops around the vector kernels: which rows and panels meet when. Templates only, see
// packed_layout.hpp.
//
// Every output is one chain over the inputs from 0 up: acc = 0, then acc = fma(a[k], w[k], acc), with w[k]
// the float that dequantise gives. Rows, panels, tiles and blocks decide only which chains run side by side,
// and a chain that is cut between two blocks goes on from its own partial sum in C, so the bits do not depend
// on any of them.
#pragma once

#include "plugins/gguf_blocks/packed_layout.hpp"

namespace troupe::gguf_blocks {

/// What one vector kernel works on: `rows` rows of A against the channels of one or more panels.
struct mm_tile {
  const float* a;        // [rows][inputs], row stride a_stride
  std::size_t a_stride;  // elements
  float* c;              // [rows][columns], row stride c_stride
  std::size_t c_stride;  // elements
  std::uint32_t columns; // real channels of the last panel, 1..32
  // A dense tile asks for the bytes from here on, `prefetch_step` per input: the codes of the next block.
  const void* prefetch = nullptr;
  std::size_t prefetch_step = 0;
};

/// `Machine` supplies, for one instruction set:
///   max_fused_rows                   row counts up to this read the codes directly;
///   fused_tile_rows, dense_tile_rows rows of the largest tile of either kind;
///   fused_panels(m)                  panels side by side at m rows;
///   fused<Layout>(tile, rows, panels, packed, panel_bytes, groups)
///   dequantise<Layout>(packed, groups, weights)         weights [groups * Layout::inputs][32] f32
///   dense(tile, rows, weights, inputs, accumulate)      C (+)= A * weights
template<class Machine, class Layout>
struct mm_driver {
  static std::int32_t run(const troupe_weight_shape* shape, const troupe_mm_call* call) {
    if (call->m <= Machine::max_fused_rows)
      run_fused(*shape, *call);
    else
      run_dense(*shape, *call);
    return TROUPE_OK;
  }

 private:
  static void run_fused(const troupe_weight_shape& shape, const troupe_mm_call& call) {
    const std::uint32_t groups = shape.k / Layout::inputs;
    const std::size_t panel_bytes = std::size_t{groups} * Layout::group_bytes;
    const std::uint32_t abreast = Machine::fused_panels(call.m);
    const std::uint32_t tiles = (call.m + Machine::fused_tile_rows - 1) / Machine::fused_tile_rows;
    for (std::uint32_t n = call.n_begin; n < call.n_end;) {
      const std::uint32_t left = call.n_end - n;
      const std::uint32_t panels = left >= abreast * panel ? abreast : 1;
      const std::uint32_t columns = left < panel ? left : panel;
      const auto* packed = static_cast<const std::uint8_t*>(call.packed) + n / panel * panel_bytes;
      for (std::uint32_t t = 0, row = 0; t < tiles; ++t) {
        const std::uint32_t rows = rows_of_tile(call.m, tiles, t);
        const mm_tile tile{
            call.a + row * call.a_stride, call.a_stride, call.c + row * call.c_stride + (n - call.n_begin),
            call.c_stride, columns};
        Machine::template fused<Layout>(tile, rows, panels, packed, panel_bytes, groups);
        row += rows;
      }
      n += panels * panel;
    }
  }

  /// Tiles of nearly equal height: a short last tile would leave the multipliers waiting for their sums.
  static std::uint32_t rows_of_tile(std::uint32_t m, std::uint32_t tiles, std::uint32_t t) {
    return m / tiles + (t < m % tiles ? 1 : 0);
  }

  static void run_dense(const troupe_weight_shape& shape, const troupe_mm_call& call) {
    const std::size_t panel_bytes = std::size_t{shape.k / Layout::inputs} * Layout::group_bytes;
    auto* weights = static_cast<float*>(call.scratch);
    const std::uint32_t tiles = (call.m + Machine::dense_tile_rows - 1) / Machine::dense_tile_rows;
    for (std::uint32_t n = call.n_begin; n < call.n_end; n += panel) {
      const std::uint32_t columns = call.n_end - n < panel ? call.n_end - n : panel;
      const auto* packed = static_cast<const std::uint8_t*>(call.packed) + n / panel * panel_bytes;
      for (std::uint32_t k = 0; k < shape.k; k += k_block) {
        const std::uint32_t inputs = shape.k - k < k_block ? shape.k - k : k_block;
        Machine::template dequantise<Layout>(
            packed + k / Layout::inputs * Layout::group_bytes, inputs / Layout::inputs, weights);
        for (std::uint32_t t = 0, row = 0; t < tiles; ++t) {
          const std::uint32_t rows = rows_of_tile(call.m, tiles, t);
          const mm_tile tile{
              call.a + row * call.a_stride + k,
              call.a_stride,
              call.c + row * call.c_stride + (n - call.n_begin),
              call.c_stride,
              columns,
              packed + (k + inputs) / Layout::inputs * Layout::group_bytes,
              t == 0 ? Layout::group_bytes / Layout::inputs : 0};
          Machine::dense(tile, rows, weights, inputs, k != 0);
          row += rows;
        }
      }
    }
  }
};

} // namespace troupe::gguf_blocks
