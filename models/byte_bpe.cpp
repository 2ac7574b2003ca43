// SPDX-License-Identifier: Apache-2.0
// BPE over bytes.
#include "models/byte_alphabet.hpp"
#include "models/subword_model.hpp"

#include <array>
#include <functional>
#include <string>

namespace troupe::models {
namespace {

class byte_bpe final : public subword_model {
 public:
  byte_bpe(std::size_t merges, bool ignore_merges) : merges_(merges), ignore_merges_(ignore_merges) {
    byte_ids_.fill(-1);
  }

  void add_bytes(const vocabulary& v, const token_index& ids);
  void add_whole_words(const vocabulary& v);
  merge_table& merges() noexcept { return merges_; }

  void encode(std::string_view word, subword_scratch& s, std::vector<token_id>& ids) const override {
    if (ignore_merges_) {
      if (const auto found = whole_words_.find(word); found != whole_words_.end()) {
        ids.push_back(found->second);
        return;
      }
    }
    const std::size_t begin = ids.size();
    for (const char c : word) {
      const token_id id = byte_ids_[static_cast<unsigned char>(c)];
      if (id >= 0)
        ids.push_back(id);
      else
        ++s.lost;
    }
    s.merger.run(merges_, ids, begin);
  }

  void
  encode_ill_formed(std::string_view bytes, subword_scratch& s, std::vector<token_id>& ids) const override {
    encode(bytes, s, ids);
  }

 private:
  merge_table merges_;
  bool ignore_merges_;
  std::array<token_id, 256> byte_ids_; ///< byte -> token, or -1
  /// Bytes -> normal token, where merges are ignored.
  std::unordered_map<std::string, token_id, salted_hash, std::equal_to<>> whole_words_;
};

void byte_bpe::add_bytes(const vocabulary& v, const token_index& ids) {
  for (std::size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    std::string spelled;
    append_utf8(spelled, gpt2_alphabet.code_of[byte]);
    if (const auto found = ids.find(spelled); found != ids.end()) byte_ids_[byte] = found->second;
  }
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    const int value = v.types[i] == token_type::byte ? byte_token_value(v.tokens[i]) : -1;
    if (value >= 0 && byte_ids_[static_cast<std::size_t>(value)] < 0)
      byte_ids_[static_cast<std::size_t>(value)] = static_cast<token_id>(i);
  }
}

void byte_bpe::add_whole_words(const vocabulary& v) {
  std::string spelled;
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    if (v.types[i] != token_type::normal) continue;
    const bool bytes = spell_bytes(v.tokens[i], spelled);
    whole_words_.emplace(bytes ? spelled : v.tokens[i], static_cast<token_id>(i));
  }
}

} // namespace

result<std::unique_ptr<const subword_model>> make_byte_bpe(
    const vocabulary& v, std::span<const merge_pair> merges, const token_index& ids, bpe_options options) {
  auto made = std::make_unique<byte_bpe>(merges.size(), options.ignore_merges);
  made->add_bytes(v, ids);
  if (options.ignore_merges) made->add_whole_words(v);
  if (auto ok = add_merges(made->merges(), v, merges, ids, options.last_wins); !ok) return ok.error();
  return std::unique_ptr<const subword_model>(std::move(made));
}

} // namespace troupe::models
