// SPDX-License-Identifier: Apache-2.0
// The formats whose blocks stay as they are in the file: what a block is, and what numbers it holds.
// Instruction-set files include this header: it holds constants and declarations only.
#pragma once

#include <cstdint>

namespace troupe::gguf_blocks {

/// Of each format: `id`, the inputs and bytes of one block, and two functions in block_decode.cpp.
/// `decode` writes the block's numbers, equal to the gguf package's bit for bit. `is_finite` says whether all
/// of them are finite, whatever the codes.
/// Source of all layouts: ggml, src/ggml-common.h, and gguf-py, quants.py.
template<std::uint32_t Elements, std::uint32_t Bytes>
struct block_format {
  static constexpr std::uint32_t elements = Elements;
  static constexpr std::uint32_t bytes = Bytes;
};

#define TROUPE_BLOCK_FORMAT(name, elements, bytes)                                                           \
  struct name : block_format<elements, bytes> {                                                              \
    static constexpr const char* id = "gguf." #name;                                                         \
    static void decode(const std::uint8_t* block, float* out);                                               \
    static bool is_finite(const std::uint8_t* block);                                                        \
  };
TROUPE_BLOCK_FORMAT(q2_k, 256, 84)
TROUPE_BLOCK_FORMAT(q3_k, 256, 110)
TROUPE_BLOCK_FORMAT(q4_k, 256, 144)
TROUPE_BLOCK_FORMAT(q5_k, 256, 176)
TROUPE_BLOCK_FORMAT(q6_k, 256, 210)
TROUPE_BLOCK_FORMAT(iq1_s, 256, 50)
TROUPE_BLOCK_FORMAT(iq1_m, 256, 56)
TROUPE_BLOCK_FORMAT(iq2_xxs, 256, 66)
TROUPE_BLOCK_FORMAT(iq2_xs, 256, 74)
TROUPE_BLOCK_FORMAT(iq2_s, 256, 82)
TROUPE_BLOCK_FORMAT(iq3_xxs, 256, 98)
TROUPE_BLOCK_FORMAT(iq3_s, 256, 110)
TROUPE_BLOCK_FORMAT(iq4_nl, 32, 18)
TROUPE_BLOCK_FORMAT(iq4_xs, 256, 136)
TROUPE_BLOCK_FORMAT(tq1_0, 256, 54)
TROUPE_BLOCK_FORMAT(tq2_0, 256, 66)
TROUPE_BLOCK_FORMAT(mxfp4, 32, 17)
TROUPE_BLOCK_FORMAT(nvfp4, 64, 36)
#undef TROUPE_BLOCK_FORMAT

template<class... Formats>
struct format_list {
  static constexpr std::uint32_t count = sizeof...(Formats);
};

/// In the order of every table.
using tiled_formats = format_list<
    q2_k, q3_k, q4_k, q5_k, q6_k, iq1_s, iq1_m, iq2_xxs, iq2_xs, iq2_s, iq3_xxs, iq3_s, iq4_nl, iq4_xs, tq1_0,
    tq2_0, mxfp4, nvfp4>;

} // namespace troupe::gguf_blocks
