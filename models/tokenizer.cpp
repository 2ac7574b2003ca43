// SPDX-License-Identifier: Apache-2.0
// Chooses the tokenizer algorithm that a vocabulary asks for.
#include "models/tokenizer.hpp"

#include "models/gguf_tokenizers.hpp"
#include "models/utf8.hpp"

#include <algorithm>

namespace troupe::models {

bool tokenizer::is_special(token_id id) const noexcept {
  if (id < 0 || static_cast<std::size_t>(id) >= vocabulary_.types.size()) return true;
  const token_type type = vocabulary_.types[static_cast<std::size_t>(id)];
  return type == token_type::control || type == token_type::unknown || type == token_type::unused;
}

result<lost_bytes> find_lost(const tokenizer& with, std::string_view text, encode_options options) {
  lost_bytes all;
  options.lost = &all.count;
  if (const auto ids = with.encode(text, options); !ids) return ids.error();
  if (all.count == 0) return all;
  // Normalising may move bytes, so that the model cannot tell where they stood in `text`. A beginning of it
  // that loses something ends behind the place that is looked for.
  std::vector<std::size_t> starts;
  for (std::size_t at = 0; at < text.size(); at += decode_utf8(text, at).length) starts.push_back(at);
  std::optional<error> failed;
  std::size_t lost = 0;
  options.lost = &lost;
  const auto behind = std::partition_point(starts.begin() + 1, starts.end(), [&](std::size_t end) {
    lost = 0;
    const auto ids = with.encode(text.substr(0, end), options);
    if (!ids) failed = ids.error();
    return lost == 0;
  });
  if (failed) return *failed;
  all.first = *(behind - 1);
  return all;
}

result<std::unique_ptr<const tokenizer>> make_tokenizer(vocabulary v) {
  if (auto ok = validate(v); !ok) return ok.error();
  // Names of gpt2 whose words are no bytes. (llama.cpp, src/llama-vocab.cpp)
  const bool spaced = v.pre == "gemma4" || v.pre == "granite-embed-multi-311m" || v.pre == "sarvam-moe";
  if (v.model == "gemma4" || (v.model == "gpt2" && spaced)) return make_spaced_bpe_tokenizer(std::move(v));
  if (v.model == "whitespace" || (v.model == "gpt2" && v.pre == "whitespace"))
    return make_whitespace_bpe_tokenizer(std::move(v));
  if (v.model == "gpt2") return make_bpe_tokenizer(std::move(v));
  if (v.model == "llama") return make_sentencepiece_tokenizer(std::move(v));
  if (v.model == "t5") return make_unigram_tokenizer(std::move(v));
  return error{
      errc::unsupported,
      "tokenizer: model '" + v.model +
          "' is not supported, known are: gpt2 (byte-level BPE), llama (SentencePiece BPE), t5 (Unigram), "
          "gemma4 (BPE over characters), whitespace (BPE over characters of words)",
      {},
      0};
}

} // namespace troupe::models
