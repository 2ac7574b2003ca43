// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back: the interface every tokenizer algorithm implements.
#pragma once

#include "models/text_span.hpp"
#include "models/vocabulary.hpp"
#include "runtime/base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::models {

struct encode_options {
  /// Texts of control tokens become those tokens; otherwise they are plain text. User-defined tokens always
  /// match.
  bool parse_special = false;
  bool add_bos = false; ///< put `bos` first unless the ids already start with it
  bool add_eos = false; ///< put `eos` last unless the ids already end with it
  /// Ranges that came from a user (sorted, disjoint): a control token's text that touches one stays plain
  /// text, whatever `parse_special` says.
  std::span<const text_span> untrusted = {};
  /// Encoding ends with context_length_exceeded once there are more ids than this.
  std::size_t max_ids = std::numeric_limits<std::size_t>::max();
  /// Set to the number of bytes left out because the vocabulary has neither a token for them nor an unknown
  /// one.
  std::size_t* lost = nullptr;
};

/// Immutable after construction. Thread: any, concurrently.
class tokenizer {
 public:
  virtual ~tokenizer() = default;

  /// Token ids of `text`. Bytes that are not valid UTF-8 are encoded as bytes, each ill-formed run a word of
  /// its own. A byte for which the vocabulary has no token is left out before merging, as the reference
  /// implementation (Hugging Face tokenizers without an unknown token) does. Time: O(n log n) in the longest
  /// word, linear otherwise, whatever the text. Errors: bad_request when `text` is longer than
  /// `max_text_bytes`; context_length_exceeded beyond `max_ids`; bad_request when a pattern of the tokenizer
  /// needs more than its limits for this text.
  virtual result<std::vector<token_id>>
  encode(std::string_view text, const encode_options& options) const = 0;

  /// The bytes that token `id` stands for, perhaps a part of a character; empty for an id out of range.
  /// Valid as long as the tokenizer.
  virtual std::string_view bytes_of(token_id id) const noexcept = 0;

  /// The same for the first token of a whole output: SentencePiece leaves the space out that it has put
  /// before the text.
  virtual std::string_view leading_bytes_of(token_id id) const noexcept { return bytes_of(id); }

  const vocabulary& vocab() const noexcept { return vocabulary_; }
  std::size_t size() const noexcept { return vocabulary_.tokens.size(); }

  /// Whether `id` is a control, unknown or unused token, which detokenising leaves out by default.
  bool is_special(token_id id) const noexcept;

  static constexpr std::size_t max_text_bytes = std::size_t{1} << 30;

 protected:
  explicit tokenizer(vocabulary v) noexcept : vocabulary_(std::move(v)) {}

 private:
  vocabulary vocabulary_;
};

/// What encoding a text leaves out.
struct lost_bytes {
  std::size_t count = 0;
  std::size_t first = 0; ///< offset of the first character or byte that is lost, when there is one
};

/// Encodes `text` once, and where something is lost a few more times, to find the first. Errors: those of
/// `encode`.
result<lost_bytes> find_lost(const tokenizer& with, std::string_view text, encode_options options);

/// Builds the tokenizer that `v.model` asks for. Errors: bad_file (see `validate`), unsupported for an
/// unknown algorithm or pre-tokenizer family; the message lists the known ones.
result<std::unique_ptr<const tokenizer>> make_tokenizer(vocabulary v);

} // namespace troupe::models
