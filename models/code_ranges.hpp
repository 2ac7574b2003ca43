// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace troupe::models {

struct code_range {
  char32_t first, last;
};

/// Whether one of `ranges`, which ascend and do not overlap, holds `code`.
template<std::size_t N>
bool is_in(const code_range (&ranges)[N], char32_t code) noexcept {
  const auto next =
      std::upper_bound(std::begin(ranges), std::end(ranges), code, [](char32_t c, const code_range& r) {
        return c < r.first;
      });
  return next != std::begin(ranges) && code <= std::prev(next)->last;
}

} // namespace troupe::models
