// SPDX-License-Identifier: Apache-2.0
// What turns one word into tokens: byte-level BPE, BPE over characters, Unigram.
#pragma once

#include "models/bpe_merges.hpp"
#include "models/salted_hash.hpp"
#include "models/vocabulary.hpp"

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe::models {

/// Memory that the words of one call share. Thread: one at a time.
struct subword_scratch {
  /// A place of the text as the end of the best path to it.
  struct lattice_node {
    double score = 0;
    std::uint32_t begin = 0; ///< of the last token of the path
    token_id id = -1;        ///< that token, -1 where no path ends
  };

  bpe_merger merger;
  std::vector<lattice_node> lattice;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> path; ///< ranges of the tokens, last first
  std::size_t lost = 0; ///< bytes left out so far, because no token stands for them
};

/// Immutable. Thread: any, concurrently, each call with its own scratch.
class subword_model {
 public:
  virtual ~subword_model() = default;

  /// Appends the ids of `word`, well-formed UTF-8, not empty. Time: O(n log n) in its length times at most
  /// the length of the longest token.
  virtual void encode(std::string_view word, subword_scratch& s, std::vector<token_id>& ids) const = 0;

  /// Appends the ids of bytes that are no UTF-8.
  virtual void
  encode_ill_formed(std::string_view bytes, subword_scratch& s, std::vector<token_id>& ids) const = 0;
};

/// Text -> id; the texts outlive it.
using token_index = std::unordered_map<std::string_view, token_id, salted_hash>;

/// Every token of `v` by its text; of several the first that is not unused.
token_index index_tokens(const vocabulary& v);

struct merge_pair {
  std::string_view left, right;
};

/// `v.merges` as pairs of its texts.
std::vector<merge_pair> split_merges(const vocabulary& v);

struct bpe_options {
  bool ignore_merges = false; ///< a word that is itself a token is taken whole
  bool byte_fallback = false; ///< characters without a token become "<0xNN>" tokens
  bool fuse_unknown = false;  ///< neighbouring unknown characters become one unknown token
  bool spells_bytes = false;  ///< words come spelled in GPT-2's alphabet, and so are bytes that are no UTF-8
  bool last_wins = false; ///< of a repeated merge the last counts (HF tokenizers), not the first (llama.cpp)
  std::optional<token_id> unknown;
};

/// Merges by rank, `merges` best first, into `table`. One whose result is a control token is left out: text
/// that spells it is text. Errors: bad_file for a merge whose pieces or result are not in `ids`.
result<void> add_merges(
    merge_table& table, const vocabulary& v, std::span<const merge_pair> merges, const token_index& ids,
    bool last_wins);

/// BPE over bytes; tokens of type normal spell their bytes in GPT-2's alphabet. The token in `ids` that
/// spells a single byte is that byte whatever its type: what the algorithm begins with is no special token's
/// text. A byte without a token is left out before merging, as HF tokenizers without an unknown token does.
/// Errors: those of `add_merges`. Source: Sennrich et al. 2016 (arXiv 1508.07909) over the byte alphabet of
/// GPT-2.
result<std::unique_ptr<const subword_model>> make_byte_bpe(
    const vocabulary& v, std::span<const merge_pair> merges, const token_index& ids, bpe_options options);

/// BPE over characters, with every token in `ids` that is a single one. Errors: those of `add_merges`.
result<std::unique_ptr<const subword_model>> make_symbol_bpe(
    const vocabulary& v, std::span<const merge_pair> merges, const token_index& ids, bpe_options options);

/// SentencePiece's BPE: any two neighbours whose joined text is a token may merge, the best score first, the
/// leftmost among equals. Only normal tokens are results. Source: google/sentencepiece, src/bpe_model.cc, as
/// read in its description and in llama.cpp's behaviour. Errors: bad_file without scores.
result<std::unique_ptr<const subword_model>> make_scored_bpe(const vocabulary& v);

struct unigram_options {
  bool byte_fallback = false;
  bool fuse_unknown = true;
  bool normal_least = false; ///< the least score is that of normal tokens (llama.cpp), not of all pieces
  std::optional<token_id> unknown;
};

/// Unigram: the path of the best summed score (Viterbi); a character that no token begins with costs the
/// least score less 10. `scores` [n], entries without a text are left out. `in_model` [n]: tokens that the
/// algorithm may use. Errors: none beyond memory. Source: Kudo 2018 (arXiv 1804.10959); constants of
/// google/sentencepiece and HF tokenizers.
result<std::unique_ptr<const subword_model>> make_unigram(
    const vocabulary& v, std::span<const double> scores, const std::vector<bool>& in_model,
    unigram_options options);

} // namespace troupe::models
