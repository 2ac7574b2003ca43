// SPDX-License-Identifier: Apache-2.0
// A tokenizer's data as its file states it: tokens, types, scores, merges, special ids. No algorithm.
#pragma once

#include "runtime/base/error.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::models {

using token_id = std::int32_t;

/// Values are those of `tokenizer.ggml.token_type`.
enum class token_type : std::uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,      ///< a special token: text equal to it stays text unless the caller asks otherwise
  user_defined = 4, ///< an added token: always matched whole, before the text is split
  unused = 5,
  byte = 6, ///< "<0xNN>", the byte NN
};

/// What a model file says about its tokenizer.
struct vocabulary {
  std::string model;               ///< algorithm: "gpt2" (byte-level BPE), "llama" (SentencePiece BPE), ...
  std::string pre;                 ///< pre-tokenizer family, "default" when the file names none
  std::vector<std::string> tokens; ///< [n] token texts; byte-level BPE writes them in its byte alphabet
  std::vector<token_type> types;   ///< [n]
  std::vector<float> scores;       ///< [n], or empty where the algorithm needs none
  std::vector<std::string> merges; ///< "left right", best first
  std::optional<token_id> bos, eos, eot, eom, unknown, padding;
  bool add_bos = false;                  ///< a text prompt starts with `bos`
  bool add_eos = false;                  ///< a text prompt ends with `eos`
  bool add_space_prefix = false;         ///< SentencePiece only
  bool remove_extra_whitespaces = false; ///< Unigram only: at the ends, and of every run all but one
  std::string charsmap;                  ///< Unigram only: SentencePiece's compiled character map, or empty
  bool lowercase = false;                ///< "whitespace" only: text is brought to lower case first
  /// Added tokens take the white space behind them along, but for <unk>, <s> and <|endoftext|>: Phi-3, whose
  /// GGUF files do not say so.
  bool strips_behind_added = false;
  std::vector<token_id> generation_ends; ///< further ids that end generation, as the file lists them
  /// Texts of further special tokens that templates may name ("unk_token", "sep_token", ...), by that name.
  std::vector<std::pair<std::string, std::string>> named_texts;
  std::vector<std::string> remarks; ///< one line each: what a user of the file should know or do
};

inline constexpr std::size_t max_vocabulary_tokens = std::size_t{1} << 22;
inline constexpr std::size_t max_token_bytes = 4096;

/// Checks sizes, id ranges, token lengths, UTF-8, duplicate tokens and the form of merges.
/// Errors: bad_file naming the first breach. Time linear in the vocabulary.
result<void> validate(const vocabulary& v);

/// A model whose embedding has `rows` rows cannot be given the ids from there on. Tells which tokens have
/// such ids, the first few by name: "2 tokens ('<a>' 128, '<b>' 129)"; empty when there are none. Fewer
/// tokens than rows are common (padded tables) and harmless.
std::string tokens_without_row(const vocabulary& v, std::uint32_t rows);

/// Errors: bad_request naming the first of `ids` that has no row in the embedding, and its token.
result<void> check_rows(const vocabulary& v, std::span<const token_id> ids, std::uint32_t rows);

/// Ids after which generation ends: eos, eot, eom and added tokens whose text is one of the well-known turn
/// ends. Sorted, without duplicates.
std::vector<token_id> end_of_generation_ids(const vocabulary& v);

/// Whether `text` has the form of a token by which chat templates mark roles and the ends of turns: "<|...|>"
/// and its kin, "[INST]", "<end_of_turn>", ... Files often type such tokens as user-defined.
bool marks_turns(std::string_view text) noexcept;

} // namespace troupe::models
