// SPDX-License-Identifier: Apache-2.0
// Unpacks the codebooks, at compile time.
#include "plugins/gguf_blocks/codebooks.hpp"

#include "plugins/gguf_blocks/codebook_tables.hpp"

namespace troupe::gguf_blocks {

namespace {

/// `Width` values of 16 / Width bits an entry become bytes, four to a word.
template<std::size_t Width, std::size_t Entries, std::size_t Values>
constexpr codebook<std::uint32_t, Entries * Width / 4>
unpacked(const std::uint16_t (&entries)[Entries], const std::int8_t (&values)[Values], int bias = 0) {
  constexpr unsigned bits = 16 / Width;
  codebook<std::uint32_t, Entries * Width / 4> words{};
  for (std::size_t e = 0; e < Entries; ++e)
    for (std::size_t i = 0; i < Width; ++i) {
      const unsigned place = static_cast<unsigned>(entries[e]) >> (i * bits) & ((1u << bits) - 1);
      words.at[(e * Width + i) / 4] |= static_cast<std::uint32_t>(values[place] + bias) << (i % 4 * 8);
    }
  return words;
}

constexpr codebook<float, 256> unpacked_ue4m3() {
  codebook<float, 256> values{};
  for (unsigned code = 0; code < 256; ++code) {
    const unsigned exponent = code >> 3 & 15u, fraction = code & 7u;
    float value = static_cast<float>(exponent == 0 ? fraction : fraction + 8) * 0x1p-10f;
    for (unsigned e = 1; e < exponent; ++e) value *= 2;
    values.at[code] = code == 0x7f ? 0.0f : value;
  }
  return values;
}

} // namespace

constexpr codebook<std::uint32_t, 512> iq2_xxs_codebook = unpacked<8>(iq2_xxs_entries, iq2_xxs_values);
constexpr codebook<std::uint32_t, 1024> iq2_xs_codebook = unpacked<8>(iq2_xs_entries, iq2_xs_values);
constexpr codebook<std::uint32_t, 2048> iq2_s_codebook = unpacked<8>(iq2_s_entries, iq2_s_values);
constexpr codebook<std::uint32_t, 4096> iq1_codebook = unpacked<8>(iq1_s_entries, iq1_s_values, 1);
constexpr codebook<std::uint32_t, 256> iq3_xxs_codebook = unpacked<4>(iq3_xxs_entries, iq3_xxs_values);
constexpr codebook<std::uint32_t, 512> iq3_s_codebook = unpacked<4>(iq3_s_entries, iq3_s_values);
constexpr codebook<float, 256> ue4m3_halves = unpacked_ue4m3();

} // namespace troupe::gguf_blocks
