// SPDX-License-Identifier: Apache-2.0
// Finds the texts of added tokens in a text: leftmost, then longest.
#pragma once

#include "models/regex.hpp"
#include "models/tokenizer.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::models {

/// A token that is cut out of the text before any algorithm sees it.
struct added_token {
  std::string text;
  token_id id = -1;
  bool control = false;     ///< matches only where the caller asks for it (`encode_options::parse_special`)
  bool single_word = false; ///< matches only with no word character at either side
  bool lstrip = false;      ///< takes the white space before it along
  bool rstrip = false;      ///< takes the white space behind it along
  bool normalized = false;  ///< is looked for after normalising, by its normalised text
};

/// The added tokens that are matched whole in a GGUF vocabulary: control, unknown and user-defined ones.
std::vector<added_token> added_tokens_of(const vocabulary& v);

/// Makes those of `added` control tokens that mark roles or the ends of turns, by their text or by being one
/// of the ids after which generation ends: a user's text that spells one must stay text. Their types in `v`
/// stay; it gets a remark.
void guard_turn_marks(std::vector<added_token>& added, vocabulary& v);

/// A trie over the texts of added tokens. Thread: any after construction.
/// Time of a search: O(text bytes x longest added token).
class special_matcher {
 public:
  /// A text that occurs twice stands for the first of its tokens.
  explicit special_matcher(const std::vector<added_token>& tokens);

  bool empty() const noexcept { return nodes_.empty(); }

  struct match {
    std::size_t begin = 0;
    std::size_t end = 0;
    token_id id = -1;
  };

  /// Where a walk through one text has come to.
  struct cursor {
    std::size_t at = 0;         ///< the search goes on here
    std::size_t taken = 0;      ///< what lies before has been given out
    std::size_t span_index = 0; ///< place in `encode_options::untrusted`
    std::size_t space_end = 0;  ///< of the last white space that a token took along
  };

  /// The next match, its range widened by the white space that it takes along, or one with id -1. The text
  /// from `taken` up to the match is plain; the caller then sets `taken` to the match's end. Control tokens
  /// count only when `options.parse_special` is set and their text touches no untrusted span.
  match next(std::string_view text, const encode_options& options, cursor& c) const;

 private:
  struct node {
    std::int32_t first_child = -1;
    std::int32_t next_sibling = -1;
    std::int32_t token = -1; ///< index into flags_
    unsigned char byte = 0;
  };
  struct flags {
    token_id id = -1;
    bool control = false, single_word = false, lstrip = false, rstrip = false;
  };
  struct hit {
    std::size_t begin = 0, end = 0;
    std::int32_t token = -1;
  };

  std::int32_t child(std::int32_t at, unsigned char byte) const noexcept;
  void insert(const added_token& token);
  hit find(std::string_view text, std::size_t from, const encode_options& options, std::size_t& span_index)
      const noexcept;
  bool is_word_at(std::string_view text, std::size_t at) const;
  bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) const;

  std::vector<node> nodes_;
  std::vector<flags> flags_;
  std::array<std::int32_t, 256> roots_; ///< first byte -> node, or -1
  std::optional<regex> word_character_; ///< where a token is a single word
};

} // namespace troupe::models
