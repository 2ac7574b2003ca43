// SPDX-License-Identifier: Apache-2.0
// Unigram: the best path through the lattice of tokens.
#include "models/byte_alphabet.hpp"
#include "models/subword_model.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace troupe::models {
namespace {

/// Texts -> ids, by prefixes. The children of a node stand side by side, sorted by their byte.
class piece_trie {
 public:
  struct entry {
    std::string_view text; ///< not empty
    token_id id;
  };

  /// `pieces` sorted by text, without twins.
  explicit piece_trie(const std::vector<entry>& pieces) {
    struct range {
      std::uint32_t node;
      std::size_t begin, end, depth;
    };
    nodes_.push_back({});
    std::vector<range> open{{0, 0, pieces.size(), 0}};
    for (std::size_t next = 0; next < open.size(); ++next) {
      auto [at, begin, end, depth] = open[next];
      if (begin < end && pieces[begin].text.size() == depth) nodes_[at].id = pieces[begin++].id;
      nodes_[at].first_child = static_cast<std::uint32_t>(nodes_.size());
      while (begin < end) {
        const auto byte = static_cast<unsigned char>(pieces[begin].text[depth]);
        std::size_t stop = begin;
        while (stop < end && static_cast<unsigned char>(pieces[stop].text[depth]) == byte) ++stop;
        open.push_back({static_cast<std::uint32_t>(nodes_.size()), begin, stop, depth + 1});
        nodes_.push_back({0, -1, 0, byte});
        ++nodes_[at].children;
        begin = stop;
      }
    }
  }

  /// Calls `visit(length, id)` for every token that `text` begins with, the shortest first.
  template<class Visit>
  void prefixes(std::string_view text, Visit visit) const {
    std::uint32_t at = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const node& n = nodes_[at];
      const auto first = nodes_.begin() + n.first_child, last = first + n.children;
      const auto byte = static_cast<unsigned char>(text[i]);
      const auto found =
          std::lower_bound(first, last, byte, [](const node& a, unsigned char b) { return a.byte < b; });
      if (found == last || found->byte != byte) return;
      at = static_cast<std::uint32_t>(found - nodes_.begin());
      if (found->id >= 0) visit(i + 1, found->id);
    }
  }

 private:
  struct node {
    std::uint32_t first_child = 0;
    token_id id = -1;
    std::uint16_t children = 0;
    unsigned char byte = 0;
  };
  std::vector<node> nodes_;
};

bool is_single_character(std::string_view text) noexcept {
  return !text.empty() && decode_utf8(text, 0).length == text.size();
}

std::vector<piece_trie::entry> sorted_pieces(const vocabulary& v, const std::vector<bool>& in_model) {
  std::vector<piece_trie::entry> pieces;
  for (std::size_t i = 0; i < v.tokens.size(); ++i)
    // Text that spells a control token is text; a single character has no other spelling.
    if (in_model[i] && !v.tokens[i].empty() &&
        (v.types[i] != token_type::control || is_single_character(v.tokens[i])))
      pieces.push_back({v.tokens[i], static_cast<token_id>(i)});
  std::stable_sort(
      pieces.begin(), pieces.end(), [](const auto& a, const auto& b) { return a.text < b.text; });
  const auto same = [](const auto& a, const auto& b) { return a.text == b.text; };
  pieces.erase(std::unique(pieces.begin(), pieces.end(), same), pieces.end());
  return pieces;
}

class unigram final : public subword_model {
 public:
  unigram(
      const std::vector<piece_trie::entry>& pieces, const vocabulary& v, std::span<const double> scores,
      double least, unigram_options options) :
      trie_(pieces),
      scores_(scores.begin(), scores.end()), options_(options), unknown_score_(least - 10.0) {
    byte_ids_.fill(-1);
    for (std::size_t i = 0; i < v.tokens.size(); ++i) {
      if (v.types[i] != token_type::byte) continue; // these need not be pieces that a text may spell
      const int value = byte_token_value(v.tokens[i]);
      if (value >= 0) byte_ids_[static_cast<std::size_t>(value)] = static_cast<token_id>(i);
    }
  }

  void encode(std::string_view word, subword_scratch& s, std::vector<token_id>& ids) const override {
    find_best_path(word, s.lattice);
    read_path(word, s);
    for (auto token = s.path.rbegin(); token != s.path.rend(); ++token)
      append(word.substr(token->first, token->second - token->first), s, ids);
  }

  void
  encode_ill_formed(std::string_view bytes, subword_scratch& s, std::vector<token_id>& ids) const override {
    append_unknown(bytes, s, ids);
  }

 private:
  static constexpr token_id unknown_piece = -2;
  using lattice_node = subword_scratch::lattice_node;

  void find_best_path(std::string_view word, std::vector<lattice_node>& nodes) const {
    nodes.assign(word.size() + 1, {});
    const auto offer = [&](std::size_t begin, std::size_t end, double score, token_id id) {
      lattice_node& to = nodes[end];
      const double sum = nodes[begin].score + score;
      if (to.id != -1 && sum <= to.score) return;
      to = {sum, static_cast<std::uint32_t>(begin), id};
    };
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t length = decode_utf8(word, at).length;
      bool single = false;
      trie_.prefixes(word.substr(at), [&](std::size_t bytes, token_id id) {
        offer(at, at + bytes, scores_[static_cast<std::size_t>(id)], id);
        single = single || bytes == length;
      });
      if (!single) offer(at, at + length, unknown_score_, unknown_piece);
      at += length;
    }
  }

  bool is_unknown(token_id id) const noexcept {
    return id == unknown_piece || (options_.unknown && id == *options_.unknown);
  }

  /// The ranges of the best path's tokens, last first; neighbouring unknown ones joined.
  void read_path(std::string_view word, subword_scratch& s) const {
    s.path.clear();
    bool joining = false;
    for (auto end = static_cast<std::uint32_t>(word.size()); end > 0;) {
      const lattice_node& n = s.lattice[end];
      const bool unknown = is_unknown(n.id) && options_.fuse_unknown && options_.unknown;
      if (unknown && joining)
        s.path.back().first = n.begin;
      else
        s.path.emplace_back(n.begin, end);
      joining = unknown;
      end = n.begin;
    }
  }

  void append(std::string_view piece, subword_scratch& s, std::vector<token_id>& ids) const {
    token_id whole = -1;
    trie_.prefixes(piece, [&](std::size_t bytes, token_id id) {
      if (bytes == piece.size()) whole = id;
    });
    if (whole >= 0)
      ids.push_back(whole);
    else
      append_unknown(piece, s, ids);
  }

  void append_unknown(std::string_view piece, subword_scratch& s, std::vector<token_id>& ids) const {
    const auto missing = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)] < 0; };
    if (options_.byte_fallback && std::none_of(piece.begin(), piece.end(), missing)) {
      for (const char c : piece) ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    } else if (options_.unknown) {
      ids.push_back(*options_.unknown);
    } else {
      s.lost += piece.size();
    }
  }

  piece_trie trie_;
  std::vector<double> scores_;
  unigram_options options_;
  double unknown_score_;
  std::array<token_id, 256> byte_ids_;
};

} // namespace

result<std::unique_ptr<const subword_model>> make_unigram(
    const vocabulary& v, std::span<const double> scores, const std::vector<bool>& in_model,
    unigram_options options) {
  const auto pieces = sorted_pieces(v, in_model);
  if (pieces.empty()) return error{errc::bad_file, "tokenizer: a Unigram model without pieces", {}, 0};
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < scores.size(); ++i)
    if (in_model[i] && (!options.normal_least || v.types[i] == token_type::normal))
      least = std::min(least, scores[i]);
  if (least == std::numeric_limits<double>::infinity()) least = 0;
  return std::unique_ptr<const subword_model>(std::make_unique<unigram>(pieces, v, scores, least, options));
}

} // namespace troupe::models
