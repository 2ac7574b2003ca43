// SPDX-License-Identifier: Apache-2.0
// The decoders of tokenizer.json, applied to one token.
#pragma once

#include "models/regex.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::models {

/// One decoder of a chain.
struct decode_step {
  enum class kind : std::uint8_t { byte_level, byte_fallback, fuse, metaspace, replace, strip };
  kind what;
  std::optional<regex> pattern;    ///< replace
  std::string content;             ///< replace: what matches become; strip and metaspace: one character
  bool one_character = false;      ///< replace: the pattern is a single literal character
  bool drops_first = false;        ///< metaspace: the first token loses its replacement characters
  std::size_t start = 0, stop = 0; ///< strip: at most so many characters at either end
};

/// A chain whose result for a sequence is the joined results for its tokens, so that text can be given out as
/// tokens come; only the first token may read differently. Without steps tokens are joined by spaces. Thread:
/// any. Source: HF tokenizers, src/decoders.
class token_decoder {
 public:
  /// Errors: unsupported for a step behind Fuse that would have to see several tokens at once.
  static result<token_decoder> make(std::vector<decode_step> steps);

  /// The bytes of `token`, perhaps part of a character (byte tokens). Errors: internal at a regex limit.
  result<std::string> decode(std::string_view token, bool first, regex_scratch& scratch) const;

 private:
  std::vector<decode_step> steps_;
};

} // namespace troupe::models
