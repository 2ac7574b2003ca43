// SPDX-License-Identifier: Apache-2.0
// The steps of a tokenizer before its model: rewriting text, cutting it into words.
#pragma once

#include "models/regex.hpp"
#include "models/text_edits.hpp"
#include "models/text_span.hpp"
#include "models/unicode_text.hpp"
#include "runtime/base/error.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::models {

/// A part of a word list's text: what a pattern found, or what lies between.
struct found_part {
  text_span range;
  bool match = false;
};

/// Memory and limits of one call. Thread: one at a time.
struct stage_scratch {
  regex_scratch search;
  std::vector<found_part> parts;
  std::vector<std::size_t> ends;
  std::vector<text_span> words;
  std::deque<std::string> texts; ///< rewritten texts; their words are views until the call ends
  std::size_t longest = 0;       ///< bound on a rewritten text
  bool traces = false;           ///< normalisers say what they have replaced
  text_edits edits;              ///< of the last step, where `traces` is set

  void note(text_span from, text_span to) {
    if (traces) edits.push_back({from, to});
  }

  /// Errors: bad_request when rewriting has made `text` longer than `longest`.
  result<void> within_bound(std::string_view text) const;
};

/// Where a text stands in the whole.
struct text_place {
  bool at_origin = true;        ///< it begins where the whole text begins
  std::size_t origin_bytes = 0; ///< bytes that come from the whole's first character; 0: not known
  bool continues = false;       ///< it goes on after bytes that are no UTF-8: nothing is put before it
};

/// One rewriting step. Immutable. Thread: any.
class normalizer {
 public:
  virtual ~normalizer() = default;
  /// Sets `out` to the rewritten `text` (well-formed UTF-8) and returns true, or returns false where nothing
  /// changes; clears `place.at_origin` when the text's beginning is gone. Calls `s.note` for whatever it
  /// replaces. Time linear in `text`.
  virtual result<bool>
  apply(std::string_view text, text_place& place, stage_scratch& s, std::string& out) const = 0;
};

std::unique_ptr<const normalizer> make_form_normalizer(normal_form form);
std::unique_ptr<const normalizer> make_lowercase();
std::unique_ptr<const normalizer> make_strip(bool left, bool right);
std::unique_ptr<const normalizer> make_strip_accents();
std::unique_ptr<const normalizer> make_prepend(std::string text);
/// SentencePiece's nmt: control characters are left out, other white space and invisible characters become
/// spaces. Source: HF tokenizers 0.23, by trying every character.
std::unique_ptr<const normalizer> make_nmt();
/// Every byte as its character of GPT-2's alphabet.
std::unique_ptr<const normalizer> make_byte_spelling_normalizer();
/// Every match of `pattern`, or every `literal`, becomes `content`.
std::unique_ptr<const normalizer> make_replace(regex pattern, std::string content);
std::unique_ptr<const normalizer> make_replace(std::string literal, std::string content);
/// The character map that SentencePiece compiled: a double array and the texts it points to. Errors: bad_file
/// naming what is wrong with `bytes`. Format: google/sentencepiece, src/normalizer.cc; darts-clone.
result<std::unique_ptr<const normalizer>> make_charsmap(std::string bytes);

/// The words of one text on their way through the stages.
struct word_list {
  std::string_view text;        ///< what `words` are ranges of
  std::vector<text_span> words; ///< in order, none empty
  text_place place;             ///< of the first word
};

/// One cutting step. Immutable. Thread: any.
class word_stage {
 public:
  virtual ~word_stage() = default;
  /// Time linear in the text. Errors: those of regex::fault and of `within_bound`.
  virtual result<void> apply(word_list& list, stage_scratch& s) const = 0;
};

/// What happens to the parts that a pattern finds. Source: HF tokenizers, SplitDelimiterBehavior.
enum class split_behavior : std::uint8_t {
  isolated,             ///< each is a word
  removed,              ///< each is left out
  merged_with_previous, ///< each ends the word before it
  merged_with_next,     ///< each begins the word after it
  contiguous,           ///< neighbouring ones are one word
};

using character_test = bool (*)(char32_t) noexcept;

class pretokenizer;

std::unique_ptr<const word_stage> make_family_stage(pretokenizer families);
/// With `invert` what lies between the matches is what was found.
std::unique_ptr<const word_stage> make_regex_stage(regex pattern, split_behavior behavior, bool invert);
std::unique_ptr<const word_stage> make_character_stage(character_test found, split_behavior behavior);
/// Runs of word characters and runs of other signs, without the white space between: HF tokenizers'
/// Whitespace. Errors: no_memory.
result<std::unique_ptr<const word_stage>> make_whitespace_stage();
/// A space before every word that begins with none.
std::unique_ptr<const word_stage> make_space_prefix();
/// Every byte as its character of GPT-2's alphabet.
std::unique_ptr<const word_stage> make_byte_spelling();

enum class prepend_scheme : std::uint8_t { always, first, never };

/// Spaces become `replacement`, one is put before by `scheme`, and words begin at each when `split`.
std::unique_ptr<const word_stage> make_metaspace(char32_t replacement, prepend_scheme scheme, bool split);

/// Cuts before every `mark` whose character before is not itself `mark` and not in `joined` (sorted): where
/// no token reaches across, so that the model's words stay short and repeat.
std::unique_ptr<const word_stage> make_boundary_stage(char32_t mark, std::vector<char32_t> joined);

} // namespace troupe::models
