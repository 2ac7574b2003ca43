// SPDX-License-Identifier: Apache-2.0
// From blocks of the file to tiles and back to floats.
#pragma once

#include "plugins/gguf_blocks/block_formats.hpp"
#include "troupe/ext/quant_scheme.h"

#include <array>
#include <cstdint>

namespace troupe::gguf_blocks {

/// The functions of a scheme's table that are not multiplication; their contract is that of quant_scheme.h.
struct scheme_codec {
  const char* id;
  std::uint32_t elements, bytes; // of a block
  std::int32_t (*check)(const troupe_weight_shape* shape, troupe_text why);
  std::int32_t (*packed_size)(const troupe_weight_shape* shape, troupe_packed_size* out);
  std::int32_t (*pack)(
      const troupe_weight_shape* shape, const void* source, std::uint32_t n_begin, std::uint32_t n_end,
      void* packed, troupe_text why);
  std::int32_t (*dequantise)(
      const troupe_weight_shape* shape, const void* packed, std::uint32_t n_begin, std::uint32_t n_end,
      float* out, std::uint64_t out_stride);
};

/// One for each of `tiled_formats`, in their order.
extern const std::array<scheme_codec, tiled_formats::count> tile_codecs;

} // namespace troupe::gguf_blocks
