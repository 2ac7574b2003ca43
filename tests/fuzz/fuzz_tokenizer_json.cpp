// SPDX-License-Identifier: Apache-2.0
// Fuzzes tokenizer.json: a document, a zero byte, a text. What the document allows must encode the text, and
// every id must have a text that can be streamed.

// covers: models/tokenizer_json*.cpp models/tokenizer_pipeline.cpp models/tokenizer_specials.cpp
// covers: models/normalizer.cpp models/word_stage.cpp models/symbol_bpe.cpp models/unigram.cpp
// covers: models/token_decoder.cpp models/oniguruma_pattern.cpp models/unicode_text.cpp models/regex.cpp
#include "models/byte_alphabet.hpp"
#include "models/detokenizer.hpp"
#include "models/tokenizer_json.hpp"
#include "models/utf8.hpp"

#include <algorithm>
#include <cstdlib>

using namespace troupe;
using namespace troupe::models;

namespace {

void require(bool ok) {
  if (!ok) std::abort();
}

void check_text(const tokenizer& t, std::string_view text, bool special) {
  encode_options options;
  options.parse_special = special;
  options.add_bos = t.vocab().add_bos;
  const auto ids = t.encode(text, options);
  if (!ids) { // a pattern's limit, or a text that grows too long
    require(!ids.error().message.empty());
    return;
  }
  std::string streamed;
  detokenizer pieces(t);
  for (const token_id id : *ids) {
    require(id >= 0 && static_cast<std::size_t>(id) < t.size());
    streamed += pieces.push(id);
  }
  streamed += pieces.flush();
  require(is_valid_utf8(streamed) && streamed == detokenize(t, *ids));

  // What came from a user never becomes a control token.
  const text_span everything{0, text.size()};
  encode_options distrusting;
  distrusting.parse_special = true;
  distrusting.untrusted = std::span(&everything, 1);
  const auto cautious = t.encode(text, distrusting);
  if (!cautious) return;
  for (const token_id id : *cautious) {
    const auto i = static_cast<std::size_t>(id);
    const std::string& name = t.vocab().tokens[i];
    const bool fallback = id == t.vocab().unknown || byte_token_value(name) >= 0;
    // A symbol of the model's own alphabet keeps its id whatever else it is.
    const bool symbol = count_code_points(name) == 1;
    require(t.vocab().types[i] != token_type::control || fallback || symbol);
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), input.size());
  const auto t = read_tokenizer_json(input.substr(0, end));
  if (!t) {
    const std::string& message = t.error().message;
    require(!message.empty() && std::none_of(message.begin(), message.end(), [](char c) {
      return static_cast<unsigned char>(c) < 0x20;
    }));
    return 0;
  }
  // Patterns of the document may be slow, so the text is short.
  const std::string_view text = input.substr(std::min(end + 1, input.size())).substr(0, 256);
  check_text(**t, text, true);
  check_text(**t, text, false);
  return 0;
}
