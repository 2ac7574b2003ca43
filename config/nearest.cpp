// SPDX-License-Identifier: Apache-2.0
// Levenshtein distance with one row of the table.
#include "config/nearest.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace troupe::config {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  constexpr std::size_t longest = 256;
  a = a.substr(0, longest);
  b = b.substr(0, longest);
  std::vector<std::size_t> row(b.size() + 1); // row[j]: distance of a[0, i) and b[0, j)
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

void nearest_name::consider(std::string_view candidate, std::size_t distance) {
  if (distance >= distance_) return;
  distance_ = distance;
  best_ = candidate;
}

} // namespace troupe::config
