// SPDX-License-Identifier: Apache-2.0
// The formats of block_formats.hpp again, for several channels side by side: a tile holds byte b of 32
// channels' blocks in one row, so a vector of channels goes through a block as block_decode.cpp does through
// one. Templates only, see packed_layout.hpp. The numbers are equal to those of `decode` bit for bit: all
// products are exact, so a fused multiply-subtract rounds as the subtraction alone does.
#pragma once

#include "plugins/gguf_blocks/block_formats.hpp"
#include "plugins/gguf_blocks/codebooks.hpp"
#include "plugins/gguf_blocks/packed_layout.hpp"

namespace troupe::gguf_blocks {

/// What the decoders have in common. `L` is a set of vector operations, lanes_*.hpp. All of it must disappear
/// in the loops around it, so that what is handed to `use` stays in registers: they are flattened,
/// tile_driver.hpp.
template<class L>
struct lane_tools {
  using vec = typename L::vec;
  using ivec = typename L::ivec;
  using tile = const std::uint8_t*; // row 0, at the first channel of the vector

  static tile row(tile t, std::uint32_t byte) { return t + std::size_t{byte} * panel; }
  static ivec byte(tile t, std::uint32_t at) { return L::bytes(row(t, at)); }
  static ivec u16(tile t, std::uint32_t at) { return L::either(byte(t, at), L::left(byte(t, at + 1), 8)); }
  static ivec u32(tile t, std::uint32_t at) { return L::either(u16(t, at), L::left(u16(t, at + 2), 16)); }
  static vec half(tile t, std::uint32_t at) { return L::half(u16(t, at)); }

  static ivec low(ivec x, std::uint32_t count) { return L::both(x, L::all_bits((1u << count) - 1)); }
  static ivec bits(ivec x, std::uint32_t shift, std::uint32_t count) {
    return low(L::right(x, shift), count);
  }
  static ivec less(ivec x, int number) { return L::sum(x, L::all_bits(static_cast<std::uint32_t>(-number))); }
  static vec scaled(vec scale, ivec x) { return L::mul(scale, L::number(x)); }

  /// Eight inputs in a row: `use(i, code(i))`.
  template<class Code, class Use>
  static void eight(Code code, Use use) {
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < 8; ++i) use(i, code(i));
  }

  /// Four bits of eight bytes in a row, the low or the high ones.
  template<class Weight, class Use>
  static void eight_nibbles(tile t, std::uint32_t at, bool high, Weight weight, Use use) {
    if (high)
      eight([&](std::uint32_t i) { return weight(i, L::right(byte(t, at + i), 4)); }, use);
    else
      eight([&](std::uint32_t i) { return weight(i, low(byte(t, at + i), 4)); }, use);
  }

  /// Seven signs; the eighth makes the number of minus signs even.
  static ivec even_signs(ivec seven) {
    ivec parity = L::differ(seven, L::right(seven, 4));
    parity = L::differ(parity, L::right(parity, 2));
    parity = low(L::differ(parity, L::right(parity, 1)), 1);
    return L::either(seven, L::left(parity, 7));
  }

  /// Eight codes in two words, the sign of each in a bit of `signs`.
  template<class Use>
  static void eight_signed(ivec first, ivec second, vec scale, ivec signs, Use use) {
    eight(
        [&](std::uint32_t i) {
          const vec value = scaled(scale, bits(i < 4 ? first : second, i % 4 * 8, 8));
          const ivec sign = L::both(L::left(signs, 31 - i), L::all_bits(0x80000000u));
          return L::as_float(L::differ(L::as_bits(value), sign));
        },
        use);
  }

  /// Entry `index` of a codebook of two words an entry.
  template<class Use>
  static void eight_of_entry(const std::uint32_t* table, ivec index, vec scale, ivec signs, Use use) {
    const ivec at = L::left(index, 1);
    eight_signed(L::look_up(table, at), L::look_up(table + 1, at), scale, signs, use);
  }

  /// Entry `index` of the codebook of IQ1, moved by `offset`.
  template<class Use>
  static void eight_ternary(ivec index, vec scale, vec offset, Use use) {
    const ivec at = L::left(index, 1);
    const ivec first = L::look_up(iq1_codebook.at, at), second = L::look_up(iq1_codebook.at + 1, at);
    eight(
        [&](std::uint32_t i) {
          const vec value = L::number(bits(i < 4 ? first : second, i % 4 * 8, 8));
          return L::mul(scale, L::add(value, offset));
        },
        use);
  }

  /// An eighth up, or down where `down` is not 0; the codebook has one added.
  static vec ternary_offset(ivec down) {
    return L::as_float(L::where_below(down, 1, L::as_bits(L::all(-0.875f)), L::as_bits(L::all(-1.125f))));
  }
};

/// Of each format:
///   group        inputs that share a scale;
///   cheap        whether a weight costs so little that reading the codes for every few rows pays;
///   scales       of one group;
///   begin        reads them;
///   octet        calls use(i, w) for input i = 0..7 of octet `o` of group `g`.
template<class L, class Format>
struct lane_decoder;

template<class L>
struct one_scale {
  typename L::vec scale;
};

template<class L>
struct scale_and_minimum {
  typename L::vec scale, minimum;
  typename L::vec weight(typename L::ivec code) const { return L::fms(L::number(code), scale, minimum); }
};

template<class L>
struct lane_decoder<L, q2_k> : lane_tools<L> {
  using t = lane_tools<L>;
  using scales = scale_and_minimum<L>;
  static constexpr std::uint32_t group = 16;
  static constexpr bool cheap = true;
  static scales begin(typename t::tile tile, std::uint32_t g) {
    const auto both = t::byte(tile, g);
    return {t::scaled(t::half(tile, 80), t::low(both, 4)), t::scaled(t::half(tile, 82), L::right(both, 4))};
  }
  template<class Use>
  static void octet(typename t::tile tile, const scales& s, std::uint32_t g, std::uint32_t o, Use use) {
    const std::uint32_t at = 16 + g / 8 * 32 + g % 2 * 16 + o * 8, shift = g % 8 / 2 * 2;
    t::eight([&](std::uint32_t i) { return s.weight(t::bits(t::byte(tile, at + i), shift, 2)); }, use);
  }
};

template<class L>
struct lane_decoder<L, q3_k> : lane_tools<L> {
  using t = lane_tools<L>;
  using scales = one_scale<L>;
  static constexpr std::uint32_t group = 16;
  static constexpr bool cheap = true;
  static scales begin(typename t::tile tile, std::uint32_t g) {
    const auto low = t::bits(t::byte(tile, 96 + g % 8), g / 8 * 4, 4);
    const auto high = t::bits(t::byte(tile, 104 + g % 4), g / 4 * 2, 2);
    return {t::scaled(t::half(tile, 108), t::less(L::either(low, L::left(high, 4)), 32))};
  }
  template<class Use>
  static void octet(typename t::tile tile, const scales& s, std::uint32_t g, std::uint32_t o, Use use) {
    const std::uint32_t first = g % 2 * 16 + o * 8, at = 32 + g / 8 * 32 + first, shift = g % 8 / 2 * 2;
    t::eight(
        [&](std::uint32_t i) {
          const auto low = t::bits(t::byte(tile, at + i), shift, 2);
          const auto high = t::bits(t::byte(tile, first + i), g / 2, 1);
          return t::scaled(s.scale, t::less(L::either(low, L::left(high, 2)), 4));
        },
        use);
  }
};

/// Scales of Q4_K and Q5_K: six bits each in twelve bytes from byte 4 on.
template<class L>
scale_and_minimum<L> k_scales(const std::uint8_t* tile, std::uint32_t g) {
  using t = lane_tools<L>;
  typename L::ivec scale, minimum;
  if (g < 4) {
    scale = t::low(t::byte(tile, 4 + g), 6);
    minimum = t::low(t::byte(tile, 8 + g), 6);
  } else {
    const auto both = t::byte(tile, 8 + g);
    scale = L::either(t::low(both, 4), L::left(L::right(t::byte(tile, g), 6), 4));
    minimum = L::either(L::right(both, 4), L::left(L::right(t::byte(tile, 4 + g), 6), 4));
  }
  return {t::scaled(t::half(tile, 0), scale), t::scaled(t::half(tile, 2), minimum)};
}

template<class L>
struct lane_decoder<L, q4_k> : lane_tools<L> {
  using t = lane_tools<L>;
  using scales = scale_and_minimum<L>;
  static constexpr std::uint32_t group = 32;
  static constexpr bool cheap = true;
  static scales begin(typename t::tile tile, std::uint32_t g) { return k_scales<L>(tile, g); }
  template<class Use>
  static void octet(typename t::tile tile, const scales& s, std::uint32_t g, std::uint32_t o, Use use) {
    t::eight_nibbles(
        tile, 16 + g / 2 * 32 + o * 8, g % 2 != 0,
        [&](std::uint32_t, typename L::ivec code) { return s.weight(code); }, use);
  }
};

template<class L>
struct lane_decoder<L, q5_k> : lane_tools<L> {
  using t = lane_tools<L>;
  using scales = scale_and_minimum<L>;
  static constexpr std::uint32_t group = 32;
  static constexpr bool cheap = true;
  static scales begin(typename t::tile tile, std::uint32_t g) { return k_scales<L>(tile, g); }
  template<class Use>
  static void octet(typename t::tile tile, const scales& s, std::uint32_t g, std::uint32_t o, Use use) {
    t::eight_nibbles(
        tile, 48 + g / 2 * 32 + o * 8, g % 2 != 0,
        [&](std::uint32_t i, typename L::ivec code) {
          const auto fifth = t::bits(t::byte(tile, 16 + o * 8 + i), g, 1);
          return s.weight(L::either(code, L::left(fifth, 4)));
        },
        use);
  }
};

template<class L>
struct lane_decoder<L, q6_k> : lane_tools<L> {
  using t = lane_tools<L>;
  using scales = one_scale<L>;
  static constexpr std::uint32_t group = 16;
  static constexpr bool cheap = true;
  static scales begin(typename t::tile tile, std::uint32_t g) {
    return {t::scaled(t::half(tile, 208), L::signed_bytes(t::row(tile, 192 + g)))};
  }
  template<class Use>
  static void octet(typename t::tile tile, const scales& s, std::uint32_t g, std::uint32_t o, Use use) {
    const std::uint32_t half = g / 8, run = g % 8 / 2, first = g % 2 * 16 + o * 8;
    t::eight_nibbles(
        tile, half * 64 + run % 2 * 32 + first, run >= 2,
        [&](std::uint32_t i, typename L::ivec code) {
          const auto high = t::bits(t::byte(tile, 128 + half * 32 + first + i), run * 2, 2);
          return t::scaled(s.scale, t::less(L::either(code, L::left(high, 4)), 32));
        },
        use);
  }
};

template<class L>
struct scale_and_word {
  typename L::vec scale;
  typename L::ivec word;
};

template<class L>
struct lane_decoder<L, iq1_s> : lane_tools<L> {
  using t = lane_tools<L>;
  using scales = scale_and_word<L>;
  static constexpr std::uint32_t group = 32;
  static constexpr bool cheap = false;
  static scales begin(typename t::tile tile, std::uint32_t g) {
    const auto word = t::u16(tile, 34 + g * 2);
    const auto odd = L::either(L::left(t::bits(word, 12, 3), 1), L::all_bits(1));
    return {t::scaled(t::half(tile, 0), odd), word};
  }
  template<class Use>
  static void octet(typename t::tile tile, const scales& s, std::uint32_t g, std::uint32_t o, Use use) {
    const auto entry = L::either(t::byte(tile, 2 + g * 4 + o), L::left(t::bits(s.word, o * 3, 3), 8));
    t::eight_ternary(entry, s.scale, t::ternary_offset(t::bits(s.word, 15, 1)), use);
  }
};

template<class L>
struct lane_decoder<L, iq1_m> : lane_tools<L> {
  using t = lane_tools<L>;
  using scales = one_scale<L>;
  static constexpr std::uint32_t group = 16;
  static constexpr bool cheap = false;
  static scales begin(typename t::tile tile, std::uint32_t g) {
    // The block's scale stands in the top four bits of four words, lowest first.
    const auto d = L::either(
        L::either(L::right(t::byte(tile, 49), 4), L::both(t::byte(tile, 51), L::all_bits(0xf0))),
        L::left(L::either(L::right(t::byte(tile, 53), 4), L::both(t::byte(tile, 55), L::all_bits(0xf0))), 8));
    const auto three = t::bits(t::u16(tile, 48 + g / 4 * 2), g % 4 * 3, 3);
    return {t::scaled(L::half(d), L::either(L::left(three, 1), L::all_bits(1)))};
  }
  template<class Use>
  static void octet(typename t::tile tile, const scales& s, std::uint32_t g, std::uint32_t o, Use use) {
    const auto high = t::bits(t::byte(tile, 32 + g), o * 4, 4);
    const auto entry = L::either(t::byte(tile, g * 2 + o), L::left(t::low(high, 3), 8));
    t::eight_ternary(entry, s.scale, t::ternary_offset(L::right(high, 3)), use);
  }
};

/// d * (0.5 + code) * factor, as IQ2 and IQ3_XXS scale.
template<class L>
typename L::vec half_step_scale(const std::uint8_t* tile, typename L::ivec code, float factor) {
  using t = lane_tools<L>;
  return L::mul(L::mul(t::half(tile, 0), L::add(L::number(code), L::all(0.5f))), L::all(factor));
}

template<class L>
struct lane_decoder<L, iq2_xxs> : lane_tools<L> {
  using t = lane_tools<L>;
  using scales = scale_and_word<L>;
  static constexpr std::uint32_t group = 32;
  static constexpr bool cheap = false;
  static scales begin(typename t::tile tile, std::uint32_t g) {
    const auto word = t::u32(tile, 6 + g * 8);
    return {half_step_scale<L>(tile, L::right(word, 28), 0.25f), word};
  }
  template<class Use>
  static void octet(typename t::tile tile, const scales& s, std::uint32_t g, std::uint32_t o, Use use) {
    t::eight_of_entry(
        iq2_xxs_codebook.at, t::byte(tile, 2 + g * 8 + o), s.scale, t::even_signs(t::bits(s.word, o * 7, 7)),
        use);
  }
};

template<class L>
struct lane_decoder<L, iq2_xs> : lane_tools<L> {
  using t = lane_tools<L>;
  using scales = one_scale<L>;
  static constexpr std::uint32_t group = 16;
  static constexpr bool cheap = false;
  static scales begin(typename t::tile tile, std::uint32_t g) {
    return {half_step_scale<L>(tile, t::bits(t::byte(tile, 66 + g / 2), g % 2 * 4, 4), 0.25f)};
  }
  template<class Use>
  static void octet(typename t::tile tile, const scales& s, std::uint32_t g, std::uint32_t o, Use use) {
    const auto word = t::u16(tile, 2 + (g * 2 + o) * 2);
    t::eight_of_entry(iq2_xs_codebook.at, t::low(word, 9), s.scale, t::even_signs(L::right(word, 9)), use);
  }
};

template<class L>
struct lane_decoder<L, iq2_s> : lane_tools<L> {
  using t = lane_tools<L>;
  using scales = one_scale<L>;
  static constexpr std::uint32_t group = 16;
  static constexpr bool cheap = false;
  static scales begin(typename t::tile tile, std::uint32_t g) {
    return {half_step_scale<L>(tile, t::bits(t::byte(tile, 74 + g / 2), g % 2 * 4, 4), 0.25f)};
  }
  template<class Use>
  static void octet(typename t::tile tile, const scales& s, std::uint32_t g, std::uint32_t o, Use use) {
    const std::uint32_t at = g * 2 + o;
    const auto high = t::bits(t::byte(tile, 66 + at / 4), at % 4 * 2, 2);
    t::eight_of_entry(
        iq2_s_codebook.at, L::either(t::byte(tile, 2 + at), L::left(high, 8)), s.scale,
        t::byte(tile, 34 + at), use);
  }
};

template<class L>
struct lane_decoder<L, iq3_xxs> : lane_tools<L> {
  using t = lane_tools<L>;
  using scales = scale_and_word<L>;
  static constexpr std::uint32_t group = 32;
  static constexpr bool cheap = false;
  static scales begin(typename t::tile tile, std::uint32_t g) {
    const auto word = t::u32(tile, 66 + g * 4);
    return {half_step_scale<L>(tile, L::right(word, 28), 0.5f), word};
  }
  template<class Use>
  static void octet(typename t::tile tile, const scales& s, std::uint32_t g, std::uint32_t o, Use use) {
    const std::uint32_t at = 2 + g * 8 + o * 2;
    t::eight_signed(
        L::look_up(iq3_xxs_codebook.at, t::byte(tile, at)),
        L::look_up(iq3_xxs_codebook.at, t::byte(tile, at + 1)), s.scale,
        t::even_signs(t::bits(s.word, o * 7, 7)), use);
  }
};

template<class L>
struct lane_decoder<L, iq3_s> : lane_tools<L> {
  using t = lane_tools<L>;
  using scales = scale_and_word<L>;
  static constexpr std::uint32_t group = 32;
  static constexpr bool cheap = false;
  static scales begin(typename t::tile tile, std::uint32_t g) {
    const auto four = t::bits(t::byte(tile, 106 + g / 2), g % 2 * 4, 4);
    return {t::scaled(t::half(tile, 0), L::either(L::left(four, 1), L::all_bits(1))), t::byte(tile, 66 + g)};
  }
  template<class Use>
  static void octet(typename t::tile tile, const scales& s, std::uint32_t g, std::uint32_t o, Use use) {
    const std::uint32_t at = 2 + g * 8 + o * 2;
    const auto entry = [&](std::uint32_t i) {
      return L::either(t::byte(tile, at + i), L::left(t::bits(s.word, o * 2 + i, 1), 8));
    };
    t::eight_signed(
        L::look_up(iq3_s_codebook.at, entry(0)), L::look_up(iq3_s_codebook.at, entry(1)), s.scale,
        t::byte(tile, 74 + g * 4 + o), use);
  }
};

/// Octets of sixteen bytes of four-bit codes from byte `at` on: first the low ones, then the high ones.
template<class L, class Use>
void nibble_octet(
    const std::uint8_t* tile, std::uint32_t at, const typename L::sixteen& values, typename L::vec scale,
    std::uint32_t o, Use use) {
  lane_tools<L>::eight_nibbles(
      tile, at + o % 2 * 8, o >= 2,
      [&](std::uint32_t, typename L::ivec code) { return L::mul(scale, values[code]); }, use);
}

template<class L>
struct lane_decoder<L, iq4_nl> : lane_tools<L> {
  using t = lane_tools<L>;
  using scales = one_scale<L>;
  static constexpr std::uint32_t group = 32;
  static constexpr bool cheap = true;
  static scales begin(typename t::tile tile, std::uint32_t) { return {t::half(tile, 0)}; }
  template<class Use>
  static void octet(typename t::tile tile, const scales& s, std::uint32_t, std::uint32_t o, Use use) {
    nibble_octet<L>(tile, 2, typename L::sixteen(iq4_values), s.scale, o, use);
  }
};

template<class L>
struct lane_decoder<L, iq4_xs> : lane_tools<L> {
  using t = lane_tools<L>;
  using scales = one_scale<L>;
  static constexpr std::uint32_t group = 32;
  static constexpr bool cheap = true;
  static scales begin(typename t::tile tile, std::uint32_t g) {
    const auto low = t::bits(t::byte(tile, 4 + g / 2), g % 2 * 4, 4);
    const auto high = t::bits(t::byte(tile, 2 + g / 4), g % 4 * 2, 2);
    return {t::scaled(t::half(tile, 0), t::less(L::either(low, L::left(high, 4)), 32))};
  }
  template<class Use>
  static void octet(typename t::tile tile, const scales& s, std::uint32_t g, std::uint32_t o, Use use) {
    nibble_octet<L>(tile, 8 + g * 16, typename L::sixteen(iq4_values), s.scale, o, use);
  }
};

template<class L>
struct lane_decoder<L, tq1_0> : lane_tools<L> {
  using t = lane_tools<L>;
  using scales = one_scale<L>;
  static constexpr std::uint32_t group = 16;
  static constexpr bool cheap = false;
  static scales begin(typename t::tile tile, std::uint32_t) { return {t::half(tile, 52)}; }

  /// A digit to the base of 3, moved to the top of its byte by a power of 3, less one.
  static typename L::vec weight(const scales& s, typename L::ivec byte, std::uint32_t power) {
    const auto fraction = t::low(L::product(byte, L::all_bits(power)), 8);
    return t::scaled(s.scale, t::less(L::right(L::product(fraction, L::all_bits(3)), 8), 1));
  }

  template<class Use>
  static void octet(typename t::tile tile, const scales& s, std::uint32_t g, std::uint32_t o, Use use) {
    static constexpr std::uint32_t powers[] = {1, 3, 9, 27, 81};
    // Bytes 0..31 hold inputs 0..159, bytes 32..47 inputs 160..239, bytes 48..51 the rest, four inputs a
    // digit.
    if (g < 15) {
      const std::uint32_t power = g < 10 ? powers[g / 2] : powers[g - 10];
      const std::uint32_t at = (g < 10 ? g % 2 * 16 : 32) + o * 8;
      t::eight([&](std::uint32_t i) { return weight(s, t::byte(tile, at + i), power); }, use);
    } else {
      t::eight(
          [&](std::uint32_t i) { return weight(s, t::byte(tile, 48 + i % 4), powers[o * 2 + i / 4]); }, use);
    }
  }
};

template<class L>
struct lane_decoder<L, tq2_0> : lane_tools<L> {
  using t = lane_tools<L>;
  using scales = one_scale<L>;
  static constexpr std::uint32_t group = 32;
  static constexpr bool cheap = true;
  static scales begin(typename t::tile tile, std::uint32_t) { return {t::half(tile, 64)}; }
  template<class Use>
  static void octet(typename t::tile tile, const scales& s, std::uint32_t g, std::uint32_t o, Use use) {
    const std::uint32_t at = g / 4 * 32 + o * 8, shift = g % 4 * 2;
    t::eight(
        [&](std::uint32_t i) {
          return t::scaled(s.scale, t::less(t::bits(t::byte(tile, at + i), shift, 2), 1));
        },
        use);
  }
};

template<class L>
struct lane_decoder<L, mxfp4> : lane_tools<L> {
  using t = lane_tools<L>;
  using scales = one_scale<L>;
  static constexpr std::uint32_t group = 32;
  static constexpr bool cheap = true;
  static scales begin(typename t::tile tile, std::uint32_t) {
    // 2^(e - 128), for codes that are doubled; subnormal for the first two.
    const auto e = t::byte(tile, 0);
    const auto subnormal = L::left(L::sum(e, L::all_bits(1)), 21);
    return {L::as_float(L::where_below(e, 2, subnormal, L::left(t::less(e, 1), 23)))};
  }
  template<class Use>
  static void octet(typename t::tile tile, const scales& s, std::uint32_t, std::uint32_t o, Use use) {
    nibble_octet<L>(tile, 1, typename L::sixteen(fp4_values), s.scale, o, use);
  }
};

template<class L>
struct lane_decoder<L, nvfp4> : lane_tools<L> {
  using t = lane_tools<L>;
  using scales = one_scale<L>;
  static constexpr std::uint32_t group = 16;
  static constexpr bool cheap = true;
  static scales begin(typename t::tile tile, std::uint32_t g) {
    return {L::look_up(ue4m3_halves.at, t::byte(tile, g))};
  }
  template<class Use>
  static void octet(typename t::tile tile, const scales& s, std::uint32_t g, std::uint32_t o, Use use) {
    const typename L::sixteen values(fp4_values);
    t::eight_nibbles(
        tile, 4 + g * 8, o != 0,
        [&](std::uint32_t, typename L::ivec code) { return L::mul(s.scale, values[code]); }, use);
  }
};

} // namespace troupe::gguf_blocks
