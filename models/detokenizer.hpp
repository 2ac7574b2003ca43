// SPDX-License-Identifier: Apache-2.0
// Token ids to text as they are generated, never half a character.
#pragma once

#include "models/tokenizer.hpp"

#include <span>
#include <string>
#include <string_view>

namespace troupe::models {

/// One per sequence. The pieces that `push` and `flush` return, joined, are the tokens' bytes with every
/// ill-formed part replaced by U+FFFD (one per maximal subpart, as Unicode 3.9 advises): always valid UTF-8.
/// Thread: one at a time.
class detokenizer {
 public:
  /// `t` outlives this object. `show_special`: special tokens appear with their text instead of being left
  /// out. `continues`: the tokens go on after other text, so that the first one keeps the space that
  /// SentencePiece would leave out at the start of a text.
  explicit detokenizer(const tokenizer& t, bool show_special = false, bool continues = false) noexcept :
      tokenizer_(t), show_special_(show_special), leading_(!continues) {}

  /// The text that `id` completes; what may still become a character with the next token is held back (at
  /// most 3 bytes). An id out of range adds nothing.
  std::string push(token_id id);

  /// The bytes that `push(id)` would take next, were `id` shown: the first ones of a text may be fewer.
  std::string_view next_bytes(token_id id) const noexcept {
    return leading_ ? tokenizer_.leading_bytes_of(id) : tokenizer_.bytes_of(id);
  }

  /// The end of the sequence: U+FFFD for an unfinished character, else nothing.
  std::string flush();

 private:
  void take(std::string_view bytes, std::string& out);

  const tokenizer& tokenizer_;
  bool show_special_;
  bool leading_;        ///< no token has been shown yet
  std::string pending_; ///< beginning of a character, at most 3 bytes
};

/// The text of a whole sequence at once.
std::string detokenize(const tokenizer& t, std::span<const token_id> ids, bool show_special = false);

} // namespace troupe::models
