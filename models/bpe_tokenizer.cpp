// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE: special tokens are cut out, the rest is split into words, words are merged byte by byte.
#include "models/bpe_tokenizer.hpp"

#include "models/bpe_merges.hpp"
#include "models/pretokenizer.hpp"
#include "models/salted_hash.hpp"
#include "models/tokenizer_specials.hpp"
#include "models/utf8.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <unordered_map>

namespace troupe::models {
namespace {

/// GPT-2's byte alphabet: 188 printable Latin-1 bytes stand for themselves, the other 68 for U+0100 onwards.
struct byte_alphabet {
  std::array<char32_t, 256> code_of{};
  std::array<std::int16_t, 0x144> byte_of{}; ///< code point -> byte, or -1

  constexpr byte_alphabet() {
    for (auto& b : byte_of) b = -1;
    char32_t next = 0x100;
    for (unsigned b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      code_of[b] = printable ? b : next++;
      byte_of[code_of[b]] = static_cast<std::int16_t>(b);
    }
  }
};
constexpr byte_alphabet alphabet;

/// The bytes that `token` spells in the byte alphabet; false when a character is outside it.
bool spell_bytes(std::string_view token, std::string& out) {
  out.clear();
  for (std::size_t at = 0; at < token.size();) {
    const utf8_step step = decode_utf8(token, at);
    if (step.state != utf8_state::valid || step.code >= alphabet.byte_of.size()) return false;
    const std::int16_t byte = alphabet.byte_of[step.code];
    if (byte < 0) return false;
    out += static_cast<char>(byte);
    at += step.length;
  }
  return true;
}

/// NN of "<0xNN>", or -1.
int byte_token_value(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

/// Words seen earlier in the same text: where their ids stand in the output. Per call, so that one request's
/// text cannot be felt in the timing of another's.
class word_cache {
 public:
  explicit word_cache(std::size_t text_bytes) {
    if (text_bytes >= worthwhile_bytes) slots_.resize(slot_count);
  }

  struct entry {
    std::string_view word;
    std::uint32_t begin = 0, count = 0; ///< range of ids in the output
  };

  /// The slot of `word`: its entry, or the one to fill; nullptr when there is no cache.
  entry* at(std::string_view word) {
    if (slots_.empty() || word.size() > longest_word) return nullptr;
    return &slots_[std::hash<std::string_view>{}(word) & (slot_count - 1)];
  }

 private:
  static constexpr std::size_t worthwhile_bytes = 2048; // below, clearing the slots costs more than merging
  static constexpr std::size_t slot_count = 1u << 14;   // 384 KiB of entries: stays in the second-level cache
  static constexpr std::size_t longest_word = 64;
  std::vector<entry> slots_;
};

class bpe_tokenizer final : public tokenizer {
 public:
  bpe_tokenizer(vocabulary v, pretokenizer words) :
      tokenizer(std::move(v)), words_(std::move(words)), specials_(vocab()), merges_(vocab().merges.size()) {}

  result<void> build();

  result<std::vector<token_id>> encode(std::string_view text, const encode_options& options) const override;

  std::string_view bytes_of(token_id id) const noexcept override {
    if (id < 0 || static_cast<std::size_t>(id) >= size()) return {};
    const auto i = static_cast<std::size_t>(id);
    return std::string_view(bytes_).substr(byte_ends_[i], byte_ends_[i + 1] - byte_ends_[i]);
  }

 private:
  struct encoding; // state of one call

  void build_bytes();
  result<void> build_merges();

  pretokenizer words_;
  special_matcher specials_;
  merge_table merges_;
  std::array<token_id, 256> byte_ids_{}; ///< byte -> token, or -1
  std::string bytes_;                    ///< the bytes of all tokens, one after the other
  std::vector<std::size_t> byte_ends_;   ///< [n + 1] offsets into bytes_
  std::unordered_map<std::string_view, token_id, salted_hash>
      whole_words_; ///< bytes -> normal token, for ignore_merges
};

result<void> bpe_tokenizer::build() {
  build_bytes();
  return build_merges();
}

void bpe_tokenizer::build_bytes() {
  byte_ids_.fill(-1);
  byte_ends_.assign(1, 0);
  std::string spelled;
  for (std::size_t i = 0; i < size(); ++i) {
    const std::string& text = vocab().tokens[i];
    const token_type type = vocab().types[i];
    const int value = type == token_type::byte ? byte_token_value(text) : -1;
    const auto id = static_cast<token_id>(i);
    if (value >= 0) {
      bytes_ += static_cast<char>(value);
      if (byte_ids_[static_cast<std::size_t>(value)] < 0) byte_ids_[static_cast<std::size_t>(value)] = id;
    } else if (type == token_type::normal && spell_bytes(text, spelled)) {
      bytes_ += spelled;
      if (spelled.size() == 1) byte_ids_[static_cast<unsigned char>(spelled[0])] = id;
    } else {
      bytes_ += text; // added tokens are written as they look
    }
    byte_ends_.push_back(bytes_.size());
  }
  if (!words_.ignore_merges()) return;
  for (std::size_t i = 0; i < size(); ++i) {
    if (vocab().types[i] == token_type::normal) {
      whole_words_.emplace(bytes_of(static_cast<token_id>(i)), static_cast<token_id>(i));
    }
  }
}

result<void> bpe_tokenizer::build_merges() {
  std::unordered_map<std::string_view, token_id, salted_hash> ids;
  ids.reserve(size());
  for (std::size_t i = 0; i < size(); ++i) ids.emplace(vocab().tokens[i], static_cast<token_id>(i));
  std::string joined;
  for (std::size_t rank = 0; rank < vocab().merges.size(); ++rank) {
    const std::string_view merge = vocab().merges[rank];
    const std::size_t space = merge.find(' ', 1);
    const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
    joined.assign(left).append(right);
    const auto a = ids.find(left), b = ids.find(right), ab = ids.find(joined);
    if (a == ids.end() || b == ids.end() || ab == ids.end()) {
      const std::string_view missing = a == ids.end()   ? left
                                       : b == ids.end() ? right
                                                        : std::string_view(joined);
      return error{
          errc::bad_file,
          "tokenizer: merge " + std::to_string(rank) + " '" + std::string(merge) + "' needs the token '" +
              std::string(missing) + "', which the vocabulary lacks",
          {},
          0};
    }
    // A repeated pair keeps its first, better rank.
    merges_.insert(a->second, b->second, {static_cast<std::uint32_t>(rank), ab->second});
  }
  return {};
}

struct bpe_tokenizer::encoding {
  const bpe_tokenizer& self;
  std::vector<token_id> ids;
  bpe_merger merger;
  word_cache cache;
  std::vector<std::size_t> ends;
  std::size_t max_ids;

  encoding(const bpe_tokenizer& t, std::size_t text_bytes, std::size_t limit) :
      self(t), merger(t.merges_), cache(text_bytes), max_ids(limit) {
    ids.reserve(std::min(text_bytes / 4, max_ids) + 4);
  }

  result<void> within_limit() const {
    if (ids.size() <= max_ids) return {};
    return error{
        errc::context_length_exceeded,
        "the text has more than " + std::to_string(max_ids) + " tokens",
        {},
        0};
  }

  void word(std::string_view bytes) {
    if (self.words_.ignore_merges()) {
      if (const auto found = self.whole_words_.find(bytes); found != self.whole_words_.end()) {
        ids.push_back(found->second);
        return;
      }
    }
    word_cache::entry* const known = cache.at(bytes);
    const std::size_t begin = ids.size();
    if (known && known->word == bytes) {
      for (std::uint32_t i = 0; i < known->count; ++i) ids.push_back(ids[known->begin + i]);
      return;
    }
    for (const char c : bytes) {
      const token_id id = self.byte_ids_[static_cast<unsigned char>(c)];
      if (id >= 0) ids.push_back(id);
    }
    merger.run(ids, begin);
    if (known) {
      *known = {bytes, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(ids.size() - begin)};
    }
  }

  /// Text without special tokens.
  result<void> plain(std::string_view text) {
    while (!text.empty()) {
      const std::size_t valid = valid_utf8_prefix(text);
      if (valid > 0) {
        ends.clear();
        if (auto ok = self.words_.split(text.substr(0, valid), ends); !ok) return ok;
        std::size_t begin = 0;
        for (const std::size_t end : ends) {
          word(text.substr(begin, end - begin));
          if (auto ok = within_limit(); !ok) return ok;
          begin = end;
        }
      }
      std::size_t bad = valid;
      while (bad < text.size()) {
        const utf8_step step = decode_utf8(text, bad);
        if (step.state == utf8_state::valid) break;
        bad += step.length;
      }
      if (bad > valid) word(text.substr(valid, bad - valid));
      if (auto ok = within_limit(); !ok) return ok;
      text.remove_prefix(bad);
    }
    return {};
  }
};

result<std::vector<token_id>>
bpe_tokenizer::encode(std::string_view text, const encode_options& options) const try {
  if (text.size() > max_text_bytes) {
    return error{
        errc::bad_request,
        "text of " + std::to_string(text.size()) + " bytes is longer than " + std::to_string(max_text_bytes),
        {},
        0};
  }
  encoding e(*this, text.size(), options.max_ids);
  std::size_t at = 0, span_index = 0;
  while (at < text.size()) {
    const special_matcher::match special = specials_.find(text, at, options, span_index);
    const std::size_t end = special.id >= 0 ? special.begin : text.size();
    if (auto ok = e.plain(text.substr(at, end - at)); !ok) return ok.error();
    if (special.id >= 0) e.ids.push_back(special.id);
    at = special.id >= 0 ? special.end : end;
  }
  const vocabulary& v = vocab();
  if (options.add_bos && v.bos && (e.ids.empty() || e.ids.front() != *v.bos))
    e.ids.insert(e.ids.begin(), *v.bos);
  if (options.add_eos && v.eos && (e.ids.empty() || e.ids.back() != *v.eos)) e.ids.push_back(*v.eos);
  if (auto ok = e.within_limit(); !ok) return ok.error();
  return std::move(e.ids);
} catch (const std::bad_alloc&) {
  return error{errc::no_memory, "no memory to tokenise " + std::to_string(text.size()) + " bytes", {}, 0};
}

} // namespace

result<std::unique_ptr<const tokenizer>> make_bpe_tokenizer(vocabulary v) {
  auto words = pretokenizer::make(v.pre.empty() ? "default" : v.pre);
  if (!words) return words.error();
  auto made = std::make_unique<bpe_tokenizer>(std::move(v), std::move(*words));
  if (auto ok = made->build(); !ok) return ok.error();
  return std::unique_ptr<const tokenizer>(std::move(made));
}

} // namespace troupe::models
