// SPDX-License-Identifier: Apache-2.0
// One block at a time, in plain code: the numbers that every kernel multiplies by.
//
// The order of operations is the gguf package's: the block's scale times the sub-block's, times the code,
// minus the minimum. Only that subtraction rounds: an 11-bit scale times a 7-bit scale times a 6-bit code has
// at most 24 bits.
#include "plugins/gguf_blocks/block_formats.hpp"
#include "plugins/gguf_blocks/codebooks.hpp"
#include "plugins/gguf_blocks/half.hpp"

#include <bit>
#include <cstring>

namespace troupe::gguf_blocks {

namespace {

using pointer = const std::uint8_t*;

std::uint32_t u16_at(pointer from) {
  return from[0] | static_cast<std::uint32_t>(from[1]) << 8;
}

std::uint32_t u32_at(pointer from) {
  return u16_at(from) | u16_at(from + 2) << 16;
}

float half_at(pointer from) {
  return half_to_float(static_cast<std::uint16_t>(u16_at(from)));
}

bool finite_half(std::uint32_t half) {
  return (half & 0x7c00u) != 0x7c00u;
}

bool finite_half_at(pointer from) {
  return finite_half(u16_at(from));
}

/// `count` bits of a word from bit `shift` on.
std::uint32_t bits(std::uint32_t word, std::uint32_t shift, std::uint32_t count) {
  return word >> shift & ((1u << count) - 1);
}

/// Scale and minimum `j` of the eight of Q4_K and Q5_K, six bits each in twelve bytes.
void scale_and_minimum(pointer s, std::uint32_t j, std::uint32_t& scale, std::uint32_t& minimum) {
  if (j < 4) {
    scale = s[j] & 63u;
    minimum = s[j + 4] & 63u;
  } else {
    scale = (s[j + 4] & 15u) | bits(s[j - 4], 6, 2) << 4;
    minimum = bits(s[j + 4], 4, 4) | bits(s[j], 6, 2) << 4;
  }
}

/// Byte `i` of the words of a codebook entry.
std::uint32_t entry_byte(const std::uint32_t* words, std::uint32_t i) {
  return bits(words[i / 4], i % 4 * 8, 8);
}

/// Eight codes of a codebook entry under one scale, the sign of each in a bit of `signs`.
void put_signed(const std::uint32_t* words, float scale, std::uint32_t signs, float* out) {
  for (std::uint32_t i = 0; i < 8; ++i) {
    const float value = scale * static_cast<float>(entry_byte(words, i));
    out[i] = bits(signs, i, 1) != 0 ? -value : value;
  }
}

/// Seven signs; the eighth makes the number of minus signs even.
std::uint32_t even_signs(std::uint32_t seven) {
  return seven | static_cast<std::uint32_t>(std::popcount(seven) & 1) << 7;
}

/// Eight values of -1, 0 and 1, moved by an eighth up or down.
void put_ternary(std::uint32_t entry, float scale, bool down, float* out) {
  const float offset = down ? -1.125f : -0.875f; // the codebook has one added
  for (std::uint32_t i = 0; i < 8; ++i)
    out[i] = scale * (static_cast<float>(entry_byte(&iq1_codebook.at[std::size_t{entry} * 2], i)) + offset);
}

/// `count` bytes of two four-bit codes: first all low ones, then the high ones.
void put_nibbles(
    pointer codes, std::uint32_t count, const codebook<std::int8_t, 16>& values, float scale, float* out) {
  for (std::uint32_t i = 0; i < count; ++i) {
    out[i] = scale * static_cast<float>(values.at[codes[i] & 15u]);
    out[count + i] = scale * static_cast<float>(values.at[bits(codes[i], 4, 4)]);
  }
}

} // namespace

void q2_k::decode(pointer block, float* out) {
  const float d = half_at(block + 80), dmin = half_at(block + 82);
  for (std::uint32_t g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(block[g] & 15u);
    const float minimum = dmin * static_cast<float>(bits(block[g], 4, 4));
    pointer codes = block + 16 + g / 8 * 32 + g % 2 * 16;
    for (std::uint32_t i = 0; i < 16; ++i)
      out[g * 16 + i] = scale * static_cast<float>(bits(codes[i], g % 8 / 2 * 2, 2)) - minimum;
  }
}

bool q2_k::is_finite(pointer block) {
  return finite_half_at(block + 80) && finite_half_at(block + 82);
}

void q3_k::decode(pointer block, float* out) {
  const float d = half_at(block + 108);
  pointer s = block + 96;
  for (std::uint32_t g = 0; g < 16; ++g) {
    const std::uint32_t six = bits(s[g % 8], g / 8 * 4, 4) | bits(s[8 + g % 4], g / 4 * 2, 2) << 4;
    const float scale = d * static_cast<float>(static_cast<int>(six) - 32);
    pointer codes = block + 32 + g / 8 * 32 + g % 2 * 16;
    pointer high = block + g % 2 * 16;
    for (std::uint32_t i = 0; i < 16; ++i) {
      const std::uint32_t code = bits(codes[i], g % 8 / 2 * 2, 2) | bits(high[i], g / 2, 1) << 2;
      out[g * 16 + i] = scale * static_cast<float>(static_cast<int>(code) - 4);
    }
  }
}

bool q3_k::is_finite(pointer block) {
  return finite_half_at(block + 108);
}

void q4_k::decode(pointer block, float* out) {
  const float d = half_at(block), dmin = half_at(block + 2);
  for (std::uint32_t g = 0; g < 8; ++g) {
    std::uint32_t sc, mn;
    scale_and_minimum(block + 4, g, sc, mn);
    const float scale = d * static_cast<float>(sc), minimum = dmin * static_cast<float>(mn);
    pointer codes = block + 16 + g / 2 * 32;
    for (std::uint32_t i = 0; i < 32; ++i)
      out[g * 32 + i] = scale * static_cast<float>(bits(codes[i], g % 2 * 4, 4)) - minimum;
  }
}

bool q4_k::is_finite(pointer block) {
  return finite_half_at(block) && finite_half_at(block + 2);
}

void q5_k::decode(pointer block, float* out) {
  const float d = half_at(block), dmin = half_at(block + 2);
  pointer high = block + 16;
  for (std::uint32_t g = 0; g < 8; ++g) {
    std::uint32_t sc, mn;
    scale_and_minimum(block + 4, g, sc, mn);
    const float scale = d * static_cast<float>(sc), minimum = dmin * static_cast<float>(mn);
    pointer codes = block + 48 + g / 2 * 32;
    for (std::uint32_t i = 0; i < 32; ++i) {
      const std::uint32_t code = bits(codes[i], g % 2 * 4, 4) | bits(high[i], g, 1) << 4;
      out[g * 32 + i] = scale * static_cast<float>(code) - minimum;
    }
  }
}

bool q5_k::is_finite(pointer block) {
  return finite_half_at(block) && finite_half_at(block + 2);
}

void q6_k::decode(pointer block, float* out) {
  const float d = half_at(block + 208);
  for (std::uint32_t g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(static_cast<std::int8_t>(block[192 + g]));
    const std::uint32_t half = g / 8, run = g % 8 / 2, first = g % 2 * 16;
    pointer low = block + half * 64 + run % 2 * 32 + first;
    pointer high = block + 128 + half * 32 + first;
    for (std::uint32_t i = 0; i < 16; ++i) {
      const std::uint32_t code = bits(low[i], run / 2 * 4, 4) | bits(high[i], run * 2, 2) << 4;
      out[g * 16 + i] = scale * static_cast<float>(static_cast<int>(code) - 32);
    }
  }
}

bool q6_k::is_finite(pointer block) {
  return finite_half_at(block + 208);
}

void iq1_s::decode(pointer block, float* out) {
  const float d = half_at(block);
  for (std::uint32_t g = 0; g < 8; ++g) {
    const std::uint32_t high = u16_at(block + 34 + g * 2);
    const float scale = d * static_cast<float>(2 * bits(high, 12, 3) + 1);
    for (std::uint32_t o = 0; o < 4; ++o)
      put_ternary(
          block[2 + g * 4 + o] | bits(high, o * 3, 3) << 8, scale, bits(high, 15, 1) != 0,
          out + g * 32 + o * 8);
  }
}

bool iq1_s::is_finite(pointer block) {
  return finite_half_at(block);
}

namespace {

/// The top four bits of the four words of scales, lowest first.
std::uint32_t iq1_m_half(pointer block) {
  std::uint32_t half = 0;
  for (std::uint32_t word = 0; word < 4; ++word) half |= bits(block[49 + word * 2], 4, 4) << (word * 4);
  return half;
}

} // namespace

void iq1_m::decode(pointer block, float* out) {
  const float d = half_to_float(static_cast<std::uint16_t>(iq1_m_half(block)));
  for (std::uint32_t g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(2 * bits(u16_at(block + 48 + g / 4 * 2), g % 4 * 3, 3) + 1);
    for (std::uint32_t o = 0; o < 2; ++o) {
      const std::uint32_t high = bits(block[32 + g], o * 4, 4);
      put_ternary(block[g * 2 + o] | (high & 7u) << 8, scale, bits(high, 3, 1) != 0, out + g * 16 + o * 8);
    }
  }
}

bool iq1_m::is_finite(pointer block) {
  return finite_half(iq1_m_half(block));
}

void iq2_xxs::decode(pointer block, float* out) {
  const float d = half_at(block);
  for (std::uint32_t g = 0; g < 8; ++g) {
    pointer entries = block + 2 + g * 8;
    const std::uint32_t word = u32_at(entries + 4);
    const float scale = d * (0.5f + static_cast<float>(bits(word, 28, 4))) * 0.25f;
    for (std::uint32_t o = 0; o < 4; ++o)
      put_signed(
          &iq2_xxs_codebook.at[entries[o] * std::size_t{2}], scale, even_signs(bits(word, o * 7, 7)),
          out + g * 32 + o * 8);
  }
}

bool iq2_xxs::is_finite(pointer block) {
  return finite_half_at(block);
}

void iq2_xs::decode(pointer block, float* out) {
  const float d = half_at(block);
  for (std::uint32_t g = 0; g < 16; ++g) {
    const float scale = d * (0.5f + static_cast<float>(bits(block[66 + g / 2], g % 2 * 4, 4))) * 0.25f;
    for (std::uint32_t o = 0; o < 2; ++o) {
      const std::uint32_t word = u16_at(block + 2 + (g * 2 + o) * 2);
      put_signed(
          &iq2_xs_codebook.at[bits(word, 0, 9) * std::size_t{2}], scale, even_signs(bits(word, 9, 7)),
          out + g * 16 + o * 8);
    }
  }
}

bool iq2_xs::is_finite(pointer block) {
  return finite_half_at(block);
}

void iq2_s::decode(pointer block, float* out) {
  const float d = half_at(block);
  for (std::uint32_t g = 0; g < 16; ++g) {
    const float scale = d * (0.5f + static_cast<float>(bits(block[74 + g / 2], g % 2 * 4, 4))) * 0.25f;
    for (std::uint32_t o = 0; o < 2; ++o) {
      const std::uint32_t at = g * 2 + o;
      const std::uint32_t entry = block[2 + at] | bits(block[66 + at / 4], at % 4 * 2, 2) << 8;
      put_signed(&iq2_s_codebook.at[std::size_t{entry} * 2], scale, block[34 + at], out + at * 8);
    }
  }
}

bool iq2_s::is_finite(pointer block) {
  return finite_half_at(block);
}

void iq3_xxs::decode(pointer block, float* out) {
  const float d = half_at(block);
  for (std::uint32_t g = 0; g < 8; ++g) {
    const std::uint32_t word = u32_at(block + 66 + g * 4);
    const float scale = d * (0.5f + static_cast<float>(bits(word, 28, 4))) * 0.5f;
    for (std::uint32_t o = 0; o < 4; ++o) {
      pointer entries = block + 2 + g * 8 + o * 2;
      const std::uint32_t words[2]{iq3_xxs_codebook.at[entries[0]], iq3_xxs_codebook.at[entries[1]]};
      put_signed(words, scale, even_signs(bits(word, o * 7, 7)), out + g * 32 + o * 8);
    }
  }
}

bool iq3_xxs::is_finite(pointer block) {
  return finite_half_at(block);
}

void iq3_s::decode(pointer block, float* out) {
  const float d = half_at(block);
  for (std::uint32_t g = 0; g < 8; ++g) {
    const float scale = d * static_cast<float>(1 + 2 * bits(block[106 + g / 2], g % 2 * 4, 4));
    for (std::uint32_t o = 0; o < 4; ++o) {
      pointer entries = block + 2 + g * 8 + o * 2;
      const std::uint32_t high = block[66 + g];
      const std::uint32_t words[2]{
          iq3_s_codebook.at[entries[0] | bits(high, o * 2, 1) << 8],
          iq3_s_codebook.at[entries[1] | bits(high, o * 2 + 1, 1) << 8]};
      put_signed(words, scale, block[74 + g * 4 + o], out + g * 32 + o * 8);
    }
  }
}

bool iq3_s::is_finite(pointer block) {
  return finite_half_at(block);
}

void iq4_nl::decode(pointer block, float* out) {
  put_nibbles(block + 2, 16, iq4_values, half_at(block), out);
}

bool iq4_nl::is_finite(pointer block) {
  return finite_half_at(block);
}

void iq4_xs::decode(pointer block, float* out) {
  const float d = half_at(block);
  for (std::uint32_t g = 0; g < 8; ++g) {
    const std::uint32_t six = bits(block[4 + g / 2], g % 2 * 4, 4) | bits(u16_at(block + 2), g * 2, 2) << 4;
    put_nibbles(
        block + 8 + g * 16, 16, iq4_values, d * static_cast<float>(static_cast<int>(six) - 32), out + g * 32);
  }
}

bool iq4_xs::is_finite(pointer block) {
  return finite_half_at(block);
}

namespace {

/// Digit `place` of a byte that holds five digits to the base of 3 as a fraction of 256, less one.
float ternary_digit(std::uint32_t byte, std::uint32_t place) {
  static constexpr std::uint32_t powers[] = {1, 3, 9, 27, 81};
  return static_cast<float>(static_cast<int>((byte * powers[place] & 255u) * 3 >> 8) - 1);
}

} // namespace

void tq1_0::decode(pointer block, float* out) {
  const float d = half_at(block + 52);
  // Bytes 0..31 hold inputs 0..159, bytes 32..47 inputs 160..239, bytes 48..51 the rest.
  static constexpr struct {
    std::uint32_t first, bytes, digits;
  } runs[] = {{0, 32, 5}, {32, 16, 5}, {48, 4, 4}};
  for (const auto& run : runs)
    for (std::uint32_t place = 0; place < run.digits; ++place)
      for (std::uint32_t i = 0; i < run.bytes; ++i) *out++ = d * ternary_digit(block[run.first + i], place);
}

bool tq1_0::is_finite(pointer block) {
  return finite_half_at(block + 52);
}

void tq2_0::decode(pointer block, float* out) {
  const float d = half_at(block + 64);
  for (std::uint32_t g = 0; g < 8; ++g)
    for (std::uint32_t i = 0; i < 32; ++i) {
      const std::uint32_t code = bits(block[g / 4 * 32 + i], g % 4 * 2, 2);
      out[g * 32 + i] = d * static_cast<float>(static_cast<int>(code) - 1);
    }
}

bool tq2_0::is_finite(pointer block) {
  return finite_half_at(block + 64);
}

void mxfp4::decode(pointer block, float* out) {
  // 2^(e - 128), for codes that are doubled; subnormal for the first two.
  const std::uint32_t e = block[0];
  const float scale = std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  put_nibbles(block + 1, 16, fp4_values, scale, out);
}

bool mxfp4::is_finite(pointer block) {
  // 255 is NaN, and under 253 and 254 the larger codes are beyond the largest float.
  return block[0] < 253;
}

void nvfp4::decode(pointer block, float* out) {
  for (std::uint32_t g = 0; g < 4; ++g)
    put_nibbles(block + 4 + g * 8, 8, fp4_values, ue4m3_halves.at[block[g]], out + g * 16);
}

bool nvfp4::is_finite(pointer) {
  return true; // E4M3 as the format reads it has no infinity, and its NaN is read as 0
}

} // namespace troupe::gguf_blocks
