// SPDX-License-Identifier: Apache-2.0
// Decimal numbers that no double holds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>

namespace troupe::models::jinja {

/// What a spelling outside the range of double ("d[.ddd][e[+-]dd]", without a sign) reads as: infinity or
/// zero.
inline double beyond_range(std::string_view number) noexcept {
  const std::size_t mark = std::min(number.find_first_of("eE"), number.size());
  const std::string_view digits = number.substr(0, mark);
  const std::size_t first = digits.find_first_not_of("0.");
  if (first == std::string_view::npos) return 0;
  const std::size_t point = std::min(digits.find('.'), digits.size());
  constexpr std::int64_t huge = std::int64_t{1} << 40; // beyond the digits of any text
  std::int64_t exponent = 0;
  bool negative = false;
  for (const char c : number.substr(std::min(mark + 1, number.size()))) {
    if (c == '-') negative = true;
    if (c >= '0' && c <= '9') exponent = std::min(exponent * 10 + (c - '0'), huge);
  }
  // The power of ten of the first digit that counts.
  const std::int64_t power =
      static_cast<std::int64_t>(point) - static_cast<std::int64_t>(first) + (negative ? -exponent : exponent);
  return power > 0 ? std::numeric_limits<double>::infinity() : 0;
}

} // namespace troupe::models::jinja
