// SPDX-License-Identifier: Apache-2.0
// Sizes as people read them.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

namespace troupe {

/// "1023 B", "93.8 MiB", "1.46 GiB": binary units, rounded. (A setting's exact form is config::format_bytes.)
inline std::string human_bytes(std::uint64_t bytes) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  const int digits = unit == 0 ? 0 : unit < 3 ? 1 : 2;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*f %s", digits, value, units[unit]);
  return text.data();
}

} // namespace troupe
