// SPDX-License-Identifier: Apache-2.0
// Stop strings in a stream of text, across the borders of its pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::models {

/// An Aho-Corasick automaton (CACM 18(6), 1975) over the stop strings' bytes. The stop string whose end comes
/// first wins, the longest among those that end together, so the answer does not depend on how the text was
/// cut. One per sequence. Thread: one at a time. Time: linear in text and stop strings.
class stop_matcher {
 public:
  /// The caller bounds number and length of `stops`; empty ones never match.
  explicit stop_matcher(std::span<const std::string> stops);

  struct step {
    std::string text;                   ///< safe to emit now; ends before the stop string when one matched
    std::optional<std::size_t> matched; ///< index of the stop string; what follows it is dropped
  };

  /// Adds text. Held back is the longest end of it that may yet become a stop string, no more.
  /// After a match every further push returns nothing. With `may_match` false a stop string that ends in this
  /// text is passed on as text; one that only begins in it still counts.
  step push(std::string_view text, bool may_match = true);

  /// The end of the sequence: what was held back.
  std::string flush();

 private:
  struct node {
    std::int32_t fail = 0;
    std::int32_t depth = 0;
    std::int32_t stop = -1; ///< longest stop string that ends here: index, or -1
    std::int32_t first_edge = -1;
    std::int32_t next_edge = -1; ///< sibling under the same parent
    unsigned char byte = 0;
  };

  std::int32_t edge(std::int32_t from, unsigned char byte) const noexcept;
  void insert(std::string_view stop, std::int32_t index);
  void link_failures();

  std::vector<node> nodes_;
  std::vector<std::size_t> lengths_; ///< [stops]
  std::int32_t state_ = 0;
  bool done_ = false;
  std::string held_;
};

} // namespace troupe::models
