// SPDX-License-Identifier: Apache-2.0
// From blocks of the file to packed panels and back to floats.
#pragma once

#include "troupe/ext/quant_scheme.h"

#include <cstdint>

namespace troupe::gguf_blocks {

/// The five block types of the file.
enum class block_type { q4_0, q4_1, q5_0, q5_1, q8_0 };

/// The functions of a scheme's table for one block type; their contract is that of quant_scheme.h.
template<block_type Type>
struct codec {
  static const std::uint32_t source_block_bytes;
  static std::int32_t check(const troupe_weight_shape* shape, troupe_text why);
  static std::int32_t packed_size(const troupe_weight_shape* shape, troupe_packed_size* out);
  static std::int32_t pack(
      const troupe_weight_shape* shape, const void* source, std::uint32_t n_begin, std::uint32_t n_end,
      void* packed, troupe_text why);
  static std::int32_t dequantise(
      const troupe_weight_shape* shape, const void* packed, std::uint32_t n_begin, std::uint32_t n_end,
      float* out, std::uint64_t out_stride);
};

extern template struct codec<block_type::q4_0>;
extern template struct codec<block_type::q4_1>;
extern template struct codec<block_type::q5_0>;
extern template struct codec<block_type::q5_1>;
extern template struct codec<block_type::q8_0>;

} // namespace troupe::gguf_blocks
