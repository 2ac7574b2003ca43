// SPDX-License-Identifier: Apache-2.0
// 8-bit floats of Micikevicius et al. 2022 (arXiv 2209.05433), table 1.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace troupe::models {

using float8_table = std::array<float, 256>; ///< value of each code

namespace detail {

constexpr float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

/// A code of sign, `8 - 1 - fraction_bits` bits of exponent and a fraction, all codes read as numbers.
constexpr float float8_value(std::uint32_t code, int fraction_bits, int bias) {
  const std::uint32_t fraction = code & ((1U << fraction_bits) - 1);
  const int exponent = static_cast<int>((code & 0x7fU) >> fraction_bits);
  const float whole = static_cast<float>(exponent == 0 ? fraction : fraction + (1U << fraction_bits));
  const float value = whole * power_of_two((exponent == 0 ? 1 : exponent) - bias - fraction_bits);
  return (code & 0x80U) != 0 ? -value : value;
}

constexpr float8_table float8_values(int fraction_bits, int bias) {
  float8_table values{};
  for (std::uint32_t code = 0; code < values.size(); ++code)
    values[code] = float8_value(code, fraction_bits, bias);
  return values;
}

constexpr float8_table e4m3_values() {
  float8_table values = float8_values(3, 7);
  values[0x7f] = std::bit_cast<float>(0x7fc00000U); // the two codes of NaN; no infinity
  values[0xff] = std::bit_cast<float>(0xffc00000U);
  return values;
}

constexpr float8_table e5m2_values() {
  float8_table values = float8_values(2, 15);
  for (const std::uint32_t sign : {0U, 0x80U}) {
    values[sign | 0x7cU] = std::bit_cast<float>(0x7f800000U | sign << 24);
    for (std::uint32_t code = 0x7d; code <= 0x7f; ++code)
      values[sign | code] = std::bit_cast<float>(0x7fc00000U | sign << 24);
  }
  return values;
}

} // namespace detail

inline constexpr float8_table float8_e4m3 = detail::e4m3_values(); ///< "FN": finite, largest 448
inline constexpr float8_table float8_e5m2 = detail::e5m2_values(); ///< as IEEE: largest 57344, Inf, NaN

} // namespace troupe::models
