// SPDX-License-Identifier: Apache-2.0
// Fuzzes tokenizers, detokenizing and stop strings. Two kinds of input: a text for a known vocabulary, which
// must come back byte for byte however it is cut, and a vocabulary of its own with texts to encode.

// covers: models/bpe_*.cpp models/byte_bpe.cpp models/gguf_tokenizers.cpp models/pretokenizer.cpp
// covers: models/tokenizer.cpp models/tokenizer_pipeline.cpp models/tokenizer_specials.cpp
// covers: models/detokenizer.cpp models/vocabulary.cpp models/utf8.cpp models/stop_matcher.cpp
#include "models/detokenizer.hpp"
#include "models/pretokenizer.hpp"
#include "models/stop_matcher.hpp"
#include "models/utf8.hpp"
#include "tests/models/tiny_bpe.hpp"

#include <algorithm>
#include <cstdlib>

namespace {

using namespace troupe;
using namespace troupe::models;

void require(bool ok) {
  if (!ok) std::abort();
}

/// One per pre-tokenizer family, built once.
const std::vector<std::unique_ptr<const tokenizer>>& known_tokenizers() {
  static const auto made = [] {
    std::vector<std::unique_ptr<const tokenizer>> all;
    for (const std::string_view family : pretokenizer::known_families()) {
      vocabulary v = models::test::tiny_bpe();
      v.pre = family;
      auto one = make_tokenizer(std::move(v));
      require(one.has_value());
      all.push_back(std::move(*one));
    }
    return all;
  }();
  return made;
}

std::string bytes_of(const tokenizer& t, const std::vector<token_id>& ids) {
  std::string bytes;
  for (const token_id id : ids) bytes += t.bytes_of(id);
  return bytes;
}

/// The first of the stop strings to end in `text`, by trying every place.
std::string until_stop(std::string_view text, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops)
      if (!stop.empty() && text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    if (longest > 0) return std::string(text.substr(0, end - longest));
  }
  return std::string(text);
}

/// The stream of a detokenizer through a stop matcher, token by token, must be what the whole text gives.
void stream(const tokenizer& t, const std::vector<token_id>& ids, const std::vector<std::string>& stops) {
  detokenizer pieces(t);
  stop_matcher matcher(stops);
  std::string text, emitted;
  bool stopped = false;
  const auto take = [&](const std::string& piece) {
    require(is_valid_utf8(piece));
    text += piece;
    auto [safe, matched] = matcher.push(piece);
    require(!stopped || (safe.empty() && !matched));
    stopped = stopped || matched.has_value();
    emitted += safe;
  };
  for (const token_id id : ids) take(pieces.push(id));
  take(pieces.flush());
  const std::string rest = matcher.flush();
  require(!stopped || rest.empty());
  emitted += rest;
  require(text == detokenize(t, ids));
  require(emitted == until_stop(text, stops));
}

void text_with_known_vocabulary(const std::uint8_t* head, std::string_view text) {
  const auto& all = known_tokenizers();
  const tokenizer& t = *all[head[1] % all.size()];
  encode_options options;
  options.parse_special = (head[0] & 1) != 0;
  options.add_bos = (head[0] & 2) != 0;
  options.add_eos = (head[0] & 4) != 0;
  std::vector<text_span> untrusted;
  // Word caching begins at 2 KiB of text.
  std::string longer(text);
  if ((head[0] & 8) != 0 && !text.empty())
    while (longer.size() < 2048) longer += text;
  for (std::size_t at = head[2]; (head[0] & 16) != 0 && at < longer.size(); at += 2 + head[2])
    untrusted.push_back({at, std::min(longer.size(), at + 1 + head[3] % (2 + head[2]))});
  options.untrusted = untrusted;

  encode_options bare = options;
  bare.add_bos = bare.add_eos = false;
  const auto inner = t.encode(longer, bare);
  require(inner.has_value() && bytes_of(t, *inner) == longer);
  std::vector<token_id> expected = *inner;
  for (const token_id id : expected) require(id >= 0 && static_cast<std::size_t>(id) < t.size());
  const token_id bos = *t.vocab().bos, eos = *t.vocab().eos;
  if (options.add_bos && (expected.empty() || expected.front() != bos))
    expected.insert(expected.begin(), bos);
  if (options.add_eos && (expected.empty() || expected.back() != eos)) expected.push_back(eos);
  const auto ids = t.encode(longer, options);
  require(ids.has_value() && *ids == expected);

  // What came from a user never becomes a control token.
  const std::vector<text_span> everything{{0, longer.size()}};
  encode_options distrusting, plain;
  distrusting.parse_special = true;
  distrusting.untrusted = everything;
  const auto cautious = t.encode(longer, distrusting), unparsed = t.encode(longer, plain);
  require(cautious.has_value() && unparsed.has_value() && *cautious == *unparsed);

  std::vector<std::string> stops;
  for (std::size_t i = 0; i < text.size() && stops.size() < 4; i += 3)
    stops.emplace_back(text.substr(i, (head[3] + i) % 5));
  stream(t, *ids, stops);
}

void read_line(vocabulary& v, char kind, std::string text) {
  const auto token = [&](token_type type) {
    v.tokens.push_back(text);
    v.types.push_back(type);
  };
  switch (kind) {
  case 't':
    return token(token_type::normal);
  case 'c':
    return token(token_type::control);
  case 'u':
    return token(token_type::user_defined);
  case 'b':
    return token(token_type::byte);
  case 'x':
    return token(token_type::unused);
  case 'm':
    v.merges.push_back(std::move(text));
    return;
  case 'p':
    v.pre = std::move(text);
    return;
  case 'g':
    v.model = std::move(text);
    return;
  case 'o':
    v.bos = v.eos = text.empty() ? -1 : text.front() - '0';
    v.add_bos = v.add_eos = true;
    return;
  case 'k':
    v.unknown = text.empty() ? -1 : text.front() - '0';
    return;
  case 'h':
    v.lowercase = text.find('l') != std::string::npos;
    v.remove_extra_whitespaces = text.find('w') != std::string::npos;
    v.add_space_prefix = text.find('p') != std::string::npos;
    v.strips_behind_added = text.find('a') != std::string::npos;
    return;
  case 'n':
    v.charsmap = std::move(text);
    return;
  case 's':
    v.scores.push_back(std::strtof(text.c_str(), nullptr));
    return;
  case 'y':
    return token(static_cast<token_type>(text.empty() ? '0' : text.front()));
  default: // text to encode
    return;
  }
}

/// One id less than there are is refused, a user's text has no control tokens, and what is lost is in the
/// text.
void bounded(const tokenizer& t, std::string_view text, std::size_t count) {
  encode_options options;
  options.parse_special = true;
  if (count > 0) {
    options.max_ids = count - 1;
    require(t.encode(text, options).has_error());
    options.max_ids = count;
    require(t.encode(text, options).has_value());
  }
  const std::vector<text_span> everything{{0, text.size()}};
  options.max_ids = encode_options{}.max_ids;
  options.untrusted = everything;
  const auto cautious = t.encode(text, options), plain = t.encode(text, {});
  require(cautious.has_value() && plain.has_value() && *cautious == *plain);
  const auto lost = find_lost(t, text, {});
  require(lost.has_value() && (lost->count == 0 || lost->first < text.size()));
}

/// Lines: "tTEXT" a normal token, "c" control, "u" user-defined, "b" byte, "x" unused; "mLEFT RIGHT" a merge,
/// "pNAME" the pre-tokenizer, "gNAME" the algorithm, "oN" the special ids, "kN" the unknown one, "sNUMBER" a
/// score, "hLETTERS" how text is rewritten, "nBYTES" a character map, "y" an unknown type. The lines are the
/// text as well.
void own_vocabulary(std::string_view lines) {
  vocabulary v;
  v.model = "gpt2";
  v.pre = "gpt-2";
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', at), lines.size());
    if (end > at) read_line(v, lines[at], std::string(lines.substr(at + 1, end - at - 1)));
    at = end + 1;
  }
  if (const auto valid = validate(v); !valid) {
    require(!valid.error().message.empty());
    return;
  }
  const std::vector<token_id> ends = end_of_generation_ids(v);
  require(std::is_sorted(ends.begin(), ends.end()));
  const auto rows = static_cast<std::uint32_t>(v.tokens.size() / 2);
  const bool all_gaps =
      std::all_of(v.tokens.begin() + rows, v.tokens.end(), [](const std::string& t) { return t.empty(); });
  require(tokens_without_row(v, rows).empty() == all_gaps);
  const auto made = make_tokenizer(std::move(v));
  if (!made) {
    require(!made.error().message.empty());
    return;
  }
  encode_options options;
  options.parse_special = true;
  const auto ids = (*made)->encode(lines, options);
  require(ids.has_value());
  for (const token_id id : *ids) require(id >= 0 && static_cast<std::size_t>(id) < (*made)->size());
  require(check_rows((*made)->vocab(), *ids, static_cast<std::uint32_t>((*made)->size())).has_value());
  require(is_valid_utf8(detokenize(**made, *ids, true)));
  bounded(**made, lines, ids->size());
  require((*made)->bytes_of(-1).empty() && (*made)->bytes_of(static_cast<token_id>((*made)->size())).empty());
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 4, size - 4);
  if ((data[0] & 0x80) != 0)
    own_vocabulary(rest);
  else
    text_with_known_vocabulary(data, rest);
  return 0;
}
