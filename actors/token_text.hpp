// SPDX-License-Identifier: Apache-2.0
// What turns a request's tokens into the text its client sees: an interface, and the model's own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace troupe::models {
class tokenizer;
}

namespace troupe::actors {

/// What one token adds to a text.
struct token_name {
  std::string_view bytes; ///< perhaps a part of a character; valid as long as the tokenizer
  bool shown = true;      ///< false for a special token that leaves no text: it has a name and no place
};

/// One per request. Joined, the texts of `push` and `flush` are valid UTF-8 and hold no stop string; the
/// bytes of the shown tokens, joined, are that text before a stop string cut it. Thread: one at a time.
class token_text {
 public:
  struct piece {
    std::string text;     ///< safe to show now; whole characters
    bool stopped = false; ///< a stop string ended here: nothing more comes
  };
  virtual ~token_text() = default;
  /// With `may_stop` false a stop string that ends in this token's text is text like any other; one that only
  /// begins there may still be completed by a later token.
  virtual piece push(std::int32_t token, bool may_stop) = 0;
  /// The end of the sequence: what was held back, which may complete a stop string.
  virtual piece flush() = 0;
  /// `token` as the next one of the answer; asked before its `push`.
  virtual token_name name_of(std::int32_t token) const = 0;

  // The prompt's text, stop strings and special tokens and all; nothing to do with `push`. Either of the two.

  /// All of it: a text as it was given, ids as their text.
  virtual std::string echo(std::span<const std::int32_t> prompt) = 0;
  /// The text of its next token, in whole characters; `last` tells that none follows.
  virtual std::string echo_next(std::int32_t token, bool last) = 0;
  /// `token` as the next one of the prompt; asked before its `echo_next`.
  virtual token_name echo_name_of(std::int32_t token) const = 0;
};

/// What a request's text is made with.
struct text_options {
  std::span<const std::string> stops;
  bool show_special = false; ///< of the answer
  /// The answer goes on after other text, so that its first token keeps a space that SentencePiece leaves out
  /// at the start of a text.
  bool continues = false;
  std::shared_ptr<const std::string> given; ///< the prompt, if it is a text that will be echoed
};

/// Detokeniser and stop strings of a real model. `t` outlives the result.
std::unique_ptr<token_text> make_token_text(const models::tokenizer& t, const text_options& options);

} // namespace troupe::actors
