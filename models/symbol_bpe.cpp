// SPDX-License-Identifier: Apache-2.0
// BPE over characters: by the ranks of a merge list, or by the scores of SentencePiece.
#include "models/byte_alphabet.hpp"
#include "models/subword_model.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>

namespace troupe::models {
namespace {

constexpr std::size_t longest_scored_token = 512;

/// Code point -> id in two levels: pages of 256, only those that are used.
class character_index {
 public:
  character_index() { pages_.fill(-1); }

  token_id find(char32_t code) const noexcept {
    const std::int32_t page = pages_[code >> 8];
    return page < 0 ? -1 : ids_[static_cast<std::size_t>(page) * 256 + (code & 255)];
  }

  void set(char32_t code, token_id id) {
    std::int32_t& page = pages_[code >> 8];
    if (page < 0) {
      page = static_cast<std::int32_t>(ids_.size() / 256);
      ids_.resize(ids_.size() + 256, -1);
    }
    ids_[static_cast<std::size_t>(page) * 256 + (code & 255)] = id;
  }

 private:
  std::array<std::int32_t, 0x1100> pages_;
  std::vector<token_id> ids_;
};

/// The code point of a text of one character, or -1.
std::int64_t single_character(std::string_view text) noexcept {
  if (text.empty()) return -1;
  const utf8_step step = decode_utf8(text, 0);
  return step.state == utf8_state::valid && step.length == text.size() ? static_cast<std::int64_t>(step.code)
                                                                       : -1;
}

class symbol_bpe final : public subword_model {
 public:
  symbol_bpe(std::size_t merges, bpe_options options) : merges_(merges), options_(options) {
    byte_ids_.fill(-1);
  }

  void add_characters(const token_index& ids, std::size_t tokens);
  void add_bytes(const vocabulary& v);
  void add_whole_words(const vocabulary& v);
  result<void> add_scored_merges(const vocabulary& v);
  merge_table& merges() noexcept { return merges_; }

  void encode(std::string_view word, subword_scratch& s, std::vector<token_id>& ids) const override;
  void
  encode_ill_formed(std::string_view bytes, subword_scratch& s, std::vector<token_id>& ids) const override;

 private:
  void add_pieces(std::string_view word, subword_scratch& s, std::vector<token_id>& ids) const;
  bool append_bytes(std::string_view bytes, std::vector<token_id>& ids) const;
  void expand_characters(subword_scratch& s, std::vector<token_id>& ids, std::size_t begin) const;
  /// Of the text that `character` came from.
  std::size_t original_bytes(std::string_view character) const noexcept {
    return options_.spells_bytes ? 1 : character.size();
  }

  merge_table merges_;
  bpe_options options_;
  character_index characters_;
  std::array<token_id, 256> byte_ids_; ///< byte -> "<0xNN>", or -1
  token_id first_character_ = 0;       ///< ids from here on are characters without a token
  std::vector<std::string> extra_;     ///< [id - first_character_] those characters
  std::unordered_map<std::string, token_id, salted_hash, std::equal_to<>> whole_words_;
};

void symbol_bpe::add_characters(const token_index& ids, std::size_t tokens) {
  first_character_ = static_cast<token_id>(tokens);
  for (const auto& [text, id] : ids)
    if (const std::int64_t code = single_character(text); code >= 0)
      characters_.set(static_cast<char32_t>(code), id);
}

void symbol_bpe::add_bytes(const vocabulary& v) {
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    const int value = byte_token_value(v.tokens[i]);
    if (value >= 0 && byte_ids_[static_cast<std::size_t>(value)] < 0)
      byte_ids_[static_cast<std::size_t>(value)] = static_cast<token_id>(i);
  }
}

void symbol_bpe::add_whole_words(const vocabulary& v) {
  for (std::size_t i = 0; i < v.tokens.size(); ++i)
    if (v.types[i] == token_type::normal) whole_words_.emplace(v.tokens[i], static_cast<token_id>(i));
}

bool symbol_bpe::append_bytes(std::string_view bytes, std::vector<token_id>& ids) const {
  for (const char c : bytes)
    if (byte_ids_[static_cast<unsigned char>(c)] < 0) return false;
  for (const char c : bytes) ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
  return true;
}

/// One id per character, before merging. An unknown character is written once the next known one comes, and
/// bytes do not count as such: the order of HF tokenizers.
void symbol_bpe::add_pieces(std::string_view word, subword_scratch& s, std::vector<token_id>& ids) const {
  bool unknown = false;
  for (std::size_t at = 0; at < word.size();) {
    const utf8_step step = decode_utf8(word, at);
    const std::string_view character = word.substr(at, step.length);
    at += step.length;
    if (const token_id id = characters_.find(step.code); id >= 0) {
      if (unknown) ids.push_back(*options_.unknown);
      unknown = false;
      ids.push_back(id);
    } else if (options_.byte_fallback && append_bytes(character, ids)) {
      continue;
    } else if (options_.unknown) {
      if (unknown && !options_.fuse_unknown) ids.push_back(*options_.unknown);
      unknown = true;
    } else {
      s.lost += original_bytes(character);
    }
  }
  if (unknown) ids.push_back(*options_.unknown);
}

void symbol_bpe::encode(std::string_view word, subword_scratch& s, std::vector<token_id>& ids) const {
  if (options_.ignore_merges) {
    if (const auto found = whole_words_.find(word); found != whole_words_.end()) {
      ids.push_back(found->second);
      return;
    }
  }
  const std::size_t begin = ids.size();
  add_pieces(word, s, ids);
  s.merger.run(merges_, ids, begin);
  if (!extra_.empty()) expand_characters(s, ids, begin);
}

void symbol_bpe::encode_ill_formed(
    std::string_view bytes, subword_scratch& s, std::vector<token_id>& ids) const {
  if (options_.spells_bytes) {
    std::string spelled;
    for (const char c : bytes) append_utf8(spelled, gpt2_alphabet.code_of[static_cast<unsigned char>(c)]);
    return encode(spelled, s, ids);
  }
  if (options_.byte_fallback && append_bytes(bytes, ids)) return;
  if (options_.unknown)
    ids.push_back(*options_.unknown);
  else
    s.lost += bytes.size();
}

/// Characters that took part in merges without being tokens, and were left over.
void symbol_bpe::expand_characters(subword_scratch& s, std::vector<token_id>& ids, std::size_t begin) const {
  const auto is_extra = [&](token_id id) { return id >= first_character_; };
  if (std::none_of(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end(), is_extra)) return;
  const std::vector<token_id> merged(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end());
  ids.resize(begin);
  for (const token_id id : merged) {
    if (!is_extra(id)) {
      ids.push_back(id);
      continue;
    }
    const std::string& character = extra_[static_cast<std::size_t>(id - first_character_)];
    if (options_.byte_fallback && append_bytes(character, ids)) continue;
    if (options_.unknown)
      ids.push_back(*options_.unknown);
    else
      s.lost += original_bytes(character);
  }
}

/// Every way to cut a token into two tokens is a merge, ranked by the score of the whole.
result<void> symbol_bpe::add_scored_merges(const vocabulary& v) {
  std::map<float, std::uint32_t, std::greater<>> ranks;
  token_index ids;
  ids.reserve(v.tokens.size());
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    const bool usable = v.types[i] == token_type::normal || v.types[i] == token_type::user_defined;
    if (!usable || v.tokens[i].empty()) continue;
    // Cutting a token at every character is quadratic in its length.
    if (v.tokens[i].size() > longest_scored_token) {
      return error{
          errc::bad_file,
          "tokenizer: token " + std::to_string(i) + " is " + std::to_string(v.tokens[i].size()) +
              " bytes long, SentencePiece BPE takes at most " + std::to_string(longest_scored_token),
          {},
          0};
    }
    ids.emplace(v.tokens[i], static_cast<token_id>(i));
    ranks.emplace(v.scores[i], 0);
  }
  std::uint32_t rank = 0;
  for (auto& [score, position] : ranks) position = rank++;

  struct scored_merge {
    token_id left, right;
    merge_table::merge value;
  };
  std::vector<scored_merge> found;
  const auto id_of = [&](std::string_view piece) -> token_id {
    if (const auto known = ids.find(piece); known != ids.end()) return known->second;
    const std::int64_t code = single_character(piece);
    if (code < 0) return -1;
    const token_id known = characters_.find(static_cast<char32_t>(code));
    if (known >= 0) return known;
    const auto id = static_cast<token_id>(v.tokens.size() + extra_.size());
    characters_.set(static_cast<char32_t>(code), id);
    extra_.emplace_back(piece);
    return id;
  };
  for (const auto& [text, id] : ids) {
    const merge_table::merge value{ranks.at(v.scores[static_cast<std::size_t>(id)]), id};
    for (std::size_t at = decode_utf8(text, 0).length; at < text.size(); at += decode_utf8(text, at).length) {
      const token_id left = id_of(text.substr(0, at));
      if (left < 0) continue;
      const token_id right = id_of(text.substr(at));
      if (right >= 0) found.push_back({left, right, value});
    }
  }
  merges_ = merge_table(found.size());
  for (const scored_merge& m : found) merges_.insert(m.left, m.right, m.value);
  return {};
}

} // namespace

result<std::unique_ptr<const subword_model>> make_symbol_bpe(
    const vocabulary& v, std::span<const merge_pair> merges, const token_index& ids, bpe_options options) {
  auto made = std::make_unique<symbol_bpe>(merges.size(), options);
  made->add_characters(ids, v.tokens.size());
  if (options.byte_fallback) made->add_bytes(v);
  if (options.ignore_merges) made->add_whole_words(v);
  if (auto ok = add_merges(made->merges(), v, merges, ids, options.last_wins); !ok) return ok.error();
  return std::unique_ptr<const subword_model>(std::move(made));
}

result<std::unique_ptr<const subword_model>> make_scored_bpe(const vocabulary& v) {
  if (v.scores.size() != v.tokens.size())
    return error{errc::bad_file, "tokenizer: a SentencePiece vocabulary needs token scores", {}, 0};
  bpe_options options;
  options.byte_fallback = true;
  options.unknown = v.unknown;
  auto made = std::make_unique<symbol_bpe>(0, options);
  made->add_characters(index_tokens(v), v.tokens.size());
  made->add_bytes(v);
  if (auto ok = made->add_scored_merges(v); !ok) return ok.error();
  return std::unique_ptr<const subword_model>(std::move(made));
}

} // namespace troupe::models
