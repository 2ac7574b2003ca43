// SPDX-License-Identifier: Apache-2.0
// Finds the texts of special tokens in a text: leftmost, then longest.
#pragma once

#include "models/tokenizer.hpp"

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace troupe::models {

/// A trie over the texts of control and user-defined tokens. Thread: any after construction.
/// Time of a search: O(text bytes x longest special token).
class special_matcher {
 public:
  explicit special_matcher(const vocabulary& v);

  struct match {
    std::size_t begin = 0;
    std::size_t end = 0;
    token_id id = -1;
  };

  /// The first match at or after `from`, or one with id -1. Control tokens count only when
  /// `options.parse_special` is set and the match touches no untrusted span; `span_index` remembers the place
  /// in those spans between calls.
  match find(std::string_view text, std::size_t from, const encode_options& options, std::size_t& span_index)
      const noexcept;

 private:
  struct node {
    std::int32_t first_child = -1;
    std::int32_t next_sibling = -1;
    token_id id = -1;
    unsigned char byte = 0;
    bool control = false;
  };

  std::int32_t child(std::int32_t at, unsigned char byte) const noexcept;
  void insert(std::string_view text, token_id id, bool control);

  std::vector<node> nodes_;
  std::array<std::int32_t, 256> roots_; ///< first byte -> node, or -1
};

} // namespace troupe::models
