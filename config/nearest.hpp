// SPDX-License-Identifier: Apache-2.0
// How unlike two short names are, to suggest the one that was meant.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::config {

/// Levenshtein distance: single-character insertions, deletions and substitutions. O(|a| |b|), at most 256
/// characters of each are looked at.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The name that was meant by a wrong one, if any is near enough to be a help: at most half of it differs.
class nearest_name {
 public:
  explicit nearest_name(std::string_view wrong) : wrong_(wrong), distance_(wrong.size() / 2 + 1) {}

  void consider(std::string_view candidate) { consider(candidate, edit_distance(wrong_, candidate)); }
  void consider(std::string_view candidate, std::size_t distance);
  /// The first of the nearest names; empty: none is near.
  const std::string& best() const noexcept { return best_; }

 private:
  std::string wrong_;
  std::size_t distance_; // a nearer one replaces the best
  std::string best_;
};

} // namespace troupe::config
