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

/// One per request. Joined, the texts of `push` and `flush` are valid UTF-8 and hold no stop string.
/// Thread: one at a time.
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
  /// The end of the sequence: what was held back.
  virtual std::string flush() = 0;
  /// The text of the next tokens of the prompt, in whole characters, stop strings and all; `last` tells that
  /// none follow. Nothing to do with `push`.
  virtual std::string echo(std::span<const std::int32_t> tokens, bool last) = 0;
  /// False for a special token that leaves no text.
  virtual bool shows(std::int32_t token) const = 0;
  /// The token's own bytes, perhaps a part of a character. Valid as long as the tokenizer.
  virtual std::string_view bytes_of(std::int32_t token) const = 0;
};

/// Detokeniser and stop strings of a real model. `t` outlives the result. `continues`: the text goes on after
/// other text, so that the first token keeps a space that SentencePiece leaves out at the start of a text.
std::unique_ptr<token_text> make_token_text(
    const models::tokenizer& t, std::span<const std::string> stops, bool show_special,
    bool continues = false);

} // namespace troupe::actors
