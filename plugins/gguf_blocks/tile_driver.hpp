// SPDX-License-Identifier: Apache-2.0
// The multiplications by tiles: lane decoders inside the loops of mm_driver.hpp. Templates only, see
// packed_layout.hpp.
#pragma once

#include "plugins/gguf_blocks/lane_decoders.hpp"
#include "plugins/gguf_blocks/mm_driver.hpp"
#include "plugins/gguf_blocks/tile_layout.hpp"

namespace troupe::gguf_blocks {

/// The `Machine` of mm_driver for one format; `L` is one of lanes_*.hpp.
template<class L, class Format>
struct tile_machine {
  using decoder = lane_decoder<L, Format>;
  using layout = tile_layout<Format>;
  using vec = typename L::vec;
  static constexpr std::uint32_t groups = Format::elements / decoder::group;
  static constexpr int all_vectors = static_cast<int>(panel / L::width);

  // Where a weight is looked up in memory, decoding it once for all rows pays from the second row on.
  static constexpr std::uint32_t max_fused_rows = decoder::cheap ? L::max_fused_rows : 1;
  static constexpr std::uint32_t fused_tile_rows = max_fused_rows;
  static constexpr std::uint32_t dense_tile_rows = L::dense_tile_rows;
  static std::uint32_t fused_panels(std::uint32_t) { return 1; }

  template<class>
  static void fused(
      const mm_tile& tile, std::uint32_t rows, std::uint32_t, const std::uint8_t* packed, std::size_t,
      std::uint32_t blocks) {
    fused_of<static_cast<int>(max_fused_rows)>(tile, rows, packed, blocks);
  }

  template<class>
  __attribute__((flatten)) static void
  dequantise(const std::uint8_t* packed, std::uint32_t blocks, float* weights) {
    for (std::uint32_t b = 0; b < blocks; ++b, packed += layout::group_bytes)
      for (std::uint32_t g = 0; g < groups; ++g, weights += decoder::group * panel)
        for (std::uint32_t first = 0; first < panel; first += L::width) {
          const auto scales = decoder::begin(packed + first, g);
          for (std::uint32_t o = 0; o < decoder::group / 8; ++o) {
            float* to = weights + o * 8 * panel + first;
            decoder::octet(
                packed + first, scales, g, o, [&](std::uint32_t i, vec w) { L::store(to + i * panel, w); });
          }
        }
  }

  static void dense(
      const mm_tile& tile, std::uint32_t rows, const float* weights, std::uint32_t inputs, bool accumulate) {
    L::multiply_dense(tile, rows, weights, inputs, accumulate);
  }

 private:
  /// The rows as a constant.
  template<int Rows>
  static void
  fused_of(const mm_tile& tile, std::uint32_t rows, const std::uint8_t* packed, std::uint32_t blocks) {
    if constexpr (Rows > 1)
      if (rows < Rows) return fused_of<Rows - 1>(tile, rows, packed, blocks);
    constexpr int vectors = L::fused_vectors(Rows);
    for (int first = 0; first < all_vectors; first += vectors)
      fused_rows<Rows, vectors>(tile, packed, blocks, static_cast<std::uint32_t>(first) * L::width);
  }

  /// `Vectors` vectors of channels from channel `first` on, straight from the codes.
  template<int Rows, int Vectors>
  __attribute__((flatten)) static void
  fused_rows(const mm_tile& tile, const std::uint8_t* packed, std::uint32_t blocks, std::uint32_t first) {
    vec acc[Rows][Vectors];
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) acc[r][v] = L::zero();
    const float* a = tile.a;
    for (std::uint32_t b = 0; b < blocks; ++b, packed += layout::group_bytes) {
      for (std::uint32_t g = 0; g < groups; ++g, a += decoder::group) {
        if (first == 0) prefetch(packed + layout::group_bytes, g);
        typename decoder::scales scales[Vectors];
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) scales[v] = decoder::begin(channels(packed, first, v), g);
        for (std::uint32_t o = 0; o < decoder::group / 8; ++o) {
#pragma GCC unroll 4
          for (int v = 0; v < Vectors; ++v)
            decoder::octet(channels(packed, first, v), scales[v], g, o, [&](std::uint32_t i, vec w) {
#pragma GCC unroll 4
              for (int r = 0; r < Rows; ++r)
                acc[r][v] = L::fma(L::all(a[r * tile.a_stride + o * 8 + i]), w, acc[r][v]);
            });
        }
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      const std::uint32_t column = first + static_cast<std::uint32_t>(v) * L::width;
      const std::uint32_t left = tile.columns > column ? tile.columns - column : 0;
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r)
        L::store_first(tile.c + r * tile.c_stride + column, acc[r][v], left < L::width ? left : L::width);
    }
  }

  static const std::uint8_t* channels(const std::uint8_t* packed, std::uint32_t first, int vector) {
    return packed + first + static_cast<std::uint32_t>(vector) * L::width;
  }

  /// Asks for a part of the next tile; an address past the matrix is harmless.
  static void prefetch(const std::uint8_t* next, std::uint32_t g) {
    constexpr std::size_t part = layout::group_bytes / groups;
    for (std::size_t line = 0; line < part; line += 64) L::prefetch(next + g * part + line);
  }
};

template<class L, class... Formats>
constexpr tile_mm_functions tile_functions(format_list<Formats...>) {
  return {mm_driver<tile_machine<L, Formats>, tile_layout<Formats>>::run...};
}

} // namespace troupe::gguf_blocks
