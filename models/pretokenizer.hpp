// SPDX-License-Identifier: Apache-2.0
// Cuts text into the words that byte-level BPE merges within: one family of regexes per `tokenizer.ggml.pre`.
#pragma once

#include "models/regex.hpp"
#include "models/unicode_text.hpp"
#include "runtime/base/error.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::models {

/// Immutable after construction. Thread: any, concurrently. Unicode 14 (PCRE2 10.42) decides what a letter
/// is.
class pretokenizer {
 public:
  /// Errors: unsupported for an unknown family, the message lists the known ones.
  static result<pretokenizer> make(std::string_view family);

  /// The names that `make` knows, sorted.
  static std::vector<std::string_view> known_families();

  /// Whether a word that is itself a token is taken whole, without merging (Llama 3 and its kin).
  bool ignore_merges() const noexcept { return ignore_merges_; }

  /// What text is brought to before it is cut. GGUF files do not say; it is what the tokenizer.json of the
  /// family's models says.
  std::optional<normal_form> form() const noexcept { return form_; }

  /// Whether a text of `family` begins with BOS where the file does not say. False for an unknown one.
  static bool adds_bos(std::string_view family) noexcept;

  /// Appends the end offset of every word of `text` (well-formed UTF-8, not empty) to `ends`; the last one is
  /// text.size(). Time linear in `text` for every family. Errors: those of regex::fault.
  result<void> split(std::string_view text, std::vector<std::size_t>& ends) const;

  /// The same with scratch memory that calls share.
  result<void> split(std::string_view text, regex_scratch& scratch, std::vector<std::size_t>& ends) const;

 private:
  pretokenizer() = default;

  std::vector<regex> stages_; ///< applied in order, each to the pieces of the one before
  bool ignore_merges_ = false;
  std::optional<normal_form> form_;
};

} // namespace troupe::models
