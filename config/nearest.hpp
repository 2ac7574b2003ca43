// SPDX-License-Identifier: Apache-2.0
// How unlike two short names are, to suggest the one that was meant.
#pragma once

#include <cstddef>
#include <string_view>

namespace troupe::config {

/// Levenshtein distance: single-character insertions, deletions and substitutions. O(|a| |b|), at most 256
/// characters of each are looked at.
std::size_t edit_distance(std::string_view a, std::string_view b);

} // namespace troupe::config
