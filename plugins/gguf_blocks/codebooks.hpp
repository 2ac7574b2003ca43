// SPDX-License-Identifier: Apache-2.0
// The codebooks in the form that decoders look them up in.
// Instruction-set files include this header: it holds plain arrays only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::gguf_blocks {

template<class T, std::size_t Count>
struct codebook {
  T at[Count];
};

/// Entries of eight values: two words each, value i in byte i % 4 of word i / 4.
extern const codebook<std::uint32_t, 256 * 2> iq2_xxs_codebook;
extern const codebook<std::uint32_t, 512 * 2> iq2_xs_codebook;
extern const codebook<std::uint32_t, 1024 * 2> iq2_s_codebook;
/// Its values are -1, 0 and 1; one is added, so that bytes need no sign.
extern const codebook<std::uint32_t, 2048 * 2> iq1_codebook;

/// Entries of four values, one word each.
extern const codebook<std::uint32_t, 256> iq3_xxs_codebook;
extern const codebook<std::uint32_t, 512> iq3_s_codebook;

/// Scales of NVFP4: unsigned E4M3 with a bias of 7, halved because the codes are doubled. As in the gguf
/// package 0x7f is 0, and the top bit of any other byte means nothing.
extern const codebook<float, 256> ue4m3_halves;

/// Values of four-bit codes. Source: ggml-common.h, kvalues_iq4nl and kvalues_mxfp4 (E2M1, doubled).
inline constexpr codebook<std::int8_t, 16> iq4_values{
    {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}};
inline constexpr codebook<std::int8_t, 16> fp4_values{
    {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}};

} // namespace troupe::gguf_blocks
