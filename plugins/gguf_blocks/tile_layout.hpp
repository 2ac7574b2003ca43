// SPDX-License-Identifier: Apache-2.0
// The packed form of the formats whose blocks stay as they are in the file.
#pragma once

#include "plugins/gguf_blocks/block_formats.hpp"
#include "plugins/gguf_blocks/packed_layout.hpp"

#include <array>

namespace troupe::gguf_blocks {

/// A matrix is a row of panels of 32 channels; a panel is a row of tiles; a tile is one block of each of the
/// 32 channels, byte by byte: u8 bytes[Format::bytes][32], byte [b][c] is byte b of channel c's block. So the
/// kernels work on many channels at once whatever the format does inside a block, and the file's size is
/// kept. Channels beyond n in the last panel are all zero bits.
template<class Format>
struct tile_layout {
  using format = Format;
  static constexpr std::uint32_t inputs = Format::elements;
  static constexpr std::size_t group_bytes = std::size_t{Format::bytes} * panel;
};

/// The kernels of all formats, in the order of `tiled_formats`.
using tile_mm_functions = std::array<mm_function, tiled_formats::count>;
extern const tile_mm_functions tile_mm_ref;
// On x86-64 only.
extern const tile_mm_functions tile_mm_avx2;
extern const tile_mm_functions tile_mm_avx512;

} // namespace troupe::gguf_blocks
