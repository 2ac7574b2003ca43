// SPDX-License-Identifier: Apache-2.0
// The decoders of tokenizer.json, applied to one token.
#include "models/token_decoder.hpp"

#include "models/byte_alphabet.hpp"

#include <algorithm>

namespace troupe::models {
namespace {

using step_kind = decode_step::kind;

std::string strip_ends(std::string_view text, const decode_step& step) {
  const std::string_view character = step.content;
  for (std::size_t i = 0; i < step.start && text.starts_with(character); ++i)
    text.remove_prefix(character.size());
  for (std::size_t i = 0; i < step.stop && text.ends_with(character); ++i)
    text.remove_suffix(character.size());
  return std::string(text);
}

std::string replace_marks(std::string_view text, std::string_view mark, bool drop) {
  std::string out;
  while (true) {
    const std::size_t found = text.find(mark);
    out += text.substr(0, found);
    if (found == std::string_view::npos) return out;
    if (!drop) out += ' ';
    text.remove_prefix(found + mark.size());
  }
}

result<std::string> replace_matches(std::string_view text, const decode_step& step, regex_scratch& scratch) {
  std::string out;
  std::size_t copied = 0;
  auto ok = step.pattern->each(text, scratch, [&](text_span found) -> result<void> {
    out += text.substr(copied, found.begin - copied);
    out += step.content;
    copied = found.end;
    return {};
  });
  if (!ok) return ok.error();
  out += text.substr(copied);
  return out;
}

} // namespace

result<token_decoder> token_decoder::make(std::vector<decode_step> steps) {
  bool fused = false;
  for (const decode_step& step : steps) {
    const bool single = step.what == step_kind::fuse ||
                        (step.what == step_kind::replace && step.one_character) ||
                        (step.what == step_kind::strip && step.start <= 1 && step.stop == 0);
    if (fused && !single)
      return error{
          errc::unsupported,
          "tokenizer: a decoder behind Fuse that sees several tokens at once is not supported",
          {},
          0};
    fused = fused || step.what == step_kind::fuse;
  }
  token_decoder made;
  made.steps_ = std::move(steps);
  return made;
}

result<std::string> token_decoder::decode(std::string_view token, bool first, regex_scratch& scratch) const {
  std::string text(token), spelled;
  if (steps_.empty() && !first) text.insert(text.begin(), ' ');
  bool fused = false, raw = false; // raw: `text` may be part of a character
  for (const decode_step& step : steps_) {
    switch (step.what) {
    case step_kind::fuse:
      fused = true;
      break;
    case step_kind::byte_level:
      if (!raw && spell_bytes(text, spelled)) text = spelled, raw = true;
      break;
    case step_kind::byte_fallback:
      if (const int byte = raw ? -1 : byte_token_value(text); byte >= 0)
        text = std::string(1, static_cast<char>(byte)), raw = true;
      break;
    case step_kind::metaspace:
      text = replace_marks(text, step.content, first && step.drops_first);
      break;
    case step_kind::strip:
      if (!fused || first) text = strip_ends(text, step);
      break;
    case step_kind::replace:
      if (!is_valid_utf8(text)) break;
      auto replaced = replace_matches(text, step, scratch);
      if (!replaced) return replaced.error();
      text = std::move(*replaced);
      break;
    }
  }
  return text;
}

} // namespace troupe::models
