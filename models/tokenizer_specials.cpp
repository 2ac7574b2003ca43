// SPDX-License-Identifier: Apache-2.0
// Finds the texts of added tokens in a text.
#include "models/tokenizer_specials.hpp"

#include "models/unicode_text.hpp"
#include "models/utf8.hpp"

#include <algorithm>

namespace troupe::models {
namespace {

// Word characters as UTS 18 has them, annex C.
constexpr std::string_view word_class = "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200C}\\x{200D}]";

/// The beginning of the character that ends at `end` > 0.
std::size_t character_before(std::string_view text, std::size_t end) noexcept {
  std::size_t at = end - 1;
  while (at > 0 && end - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

std::size_t spaces_begin(std::string_view text, std::size_t end, std::size_t least) noexcept {
  while (end > least) {
    const std::size_t at = character_before(text, end);
    if (at < least || !is_white_space(decode_utf8(text, at).code)) break;
    end = at;
  }
  return end;
}

std::size_t spaces_end(std::string_view text, std::size_t begin) noexcept {
  while (begin < text.size()) {
    const utf8_step step = decode_utf8(text, begin);
    if (step.state != utf8_state::valid || !is_white_space(step.code)) break;
    begin += step.length;
  }
  return begin;
}

} // namespace

std::vector<added_token> added_tokens_of(const vocabulary& v) {
  std::vector<added_token> added;
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    const token_type type = v.types[i];
    const bool control = type == token_type::control || type == token_type::unknown;
    if ((control || type == token_type::user_defined) && !v.tokens[i].empty()) {
      added_token token;
      token.text = v.tokens[i];
      token.id = static_cast<token_id>(i);
      token.control = control;
      // llama.cpp, src/llama-vocab.cpp, has these as the ones that Phi-3's tokenizer.json does not strip.
      token.rstrip = v.strips_behind_added && token.text != "<unk>" && token.text != "<s>" &&
                     token.text != "<|endoftext|>";
      added.push_back(std::move(token));
    }
  }
  return added;
}

void guard_turn_marks(std::vector<added_token>& added, vocabulary& v) {
  const std::vector<token_id> ends = end_of_generation_ids(v);
  std::size_t count = 0;
  std::string first;
  for (added_token& token : added) {
    if (token.control || (!marks_turns(token.text) &&
                          !std::binary_search(ends.begin(), ends.end(), token.id) && token.id != v.bos))
      continue;
    token.control = true;
    if (count++ == 0) first = token.text;
  }
  if (count > 0)
    v.remarks.push_back(
        std::to_string(count) + " tokens that mark turns are not typed as special, the first '" + first +
        "': text that spells them is text unless special tokens are asked for");
}

special_matcher::special_matcher(const std::vector<added_token>& tokens) {
  roots_.fill(-1);
  for (const added_token& token : tokens)
    if (!token.text.empty()) insert(token);
}

std::int32_t special_matcher::child(std::int32_t at, unsigned char byte) const noexcept {
  for (std::int32_t c = nodes_[static_cast<std::size_t>(at)].first_child; c >= 0;
       c = nodes_[static_cast<std::size_t>(c)].next_sibling) {
    if (nodes_[static_cast<std::size_t>(c)].byte == byte) return c;
  }
  return -1;
}

void special_matcher::insert(const added_token& token) {
  const auto add = [&](unsigned char byte) {
    nodes_.push_back({-1, -1, -1, byte});
    return static_cast<std::int32_t>(nodes_.size() - 1);
  };
  const std::string_view text = token.text;
  auto& root = roots_[static_cast<unsigned char>(text[0])];
  if (root < 0) root = add(static_cast<unsigned char>(text[0]));
  std::int32_t at = root;
  for (const char c : text.substr(1)) {
    const auto byte = static_cast<unsigned char>(c);
    std::int32_t next = child(at, byte);
    if (next < 0) {
      next = add(byte);
      nodes_[static_cast<std::size_t>(next)].next_sibling = nodes_[static_cast<std::size_t>(at)].first_child;
      nodes_[static_cast<std::size_t>(at)].first_child = next;
    }
    at = next;
  }
  node& last = nodes_[static_cast<std::size_t>(at)];
  if (last.token >= 0) return;
  last.token = static_cast<std::int32_t>(flags_.size());
  flags_.push_back({token.id, token.control, token.single_word, token.lstrip, token.rstrip});
  if (token.single_word && !word_character_) word_character_ = regex::compile(word_class).value();
}

special_matcher::hit special_matcher::find(
    std::string_view text, std::size_t from, const encode_options& options,
    std::size_t& span_index) const noexcept {
  if (nodes_.empty()) return {};
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    std::int32_t at = roots_[static_cast<unsigned char>(text[begin])];
    if (at < 0) continue;
    while (span_index < options.untrusted.size() && options.untrusted[span_index].end <= begin) ++span_index;
    // A control token may not reach beyond the next byte that came from a user.
    const std::size_t trusted_end =
        span_index < options.untrusted.size() ? options.untrusted[span_index].begin : text.size();
    hit best;
    for (std::size_t end = begin + 1;; ++end) {
      const node& n = nodes_[static_cast<std::size_t>(at)];
      if (n.token >= 0 && (!flags_[static_cast<std::size_t>(n.token)].control ||
                           (options.parse_special && end <= trusted_end)))
        best = {begin, end, n.token};
      if (end >= text.size()) break;
      at = child(at, static_cast<unsigned char>(text[end]));
      if (at < 0) break;
    }
    if (best.token >= 0) return best;
  }
  return {};
}

bool special_matcher::is_word_at(std::string_view text, std::size_t at) const {
  const utf8_step step = decode_utf8(text, at);
  if (step.state != utf8_state::valid) return false;
  regex_scratch scratch;
  // The pattern is matched within one character, whose bytes are valid.
  return word_character_->matches_at(text.substr(at, step.length), 0, scratch);
}

bool special_matcher::stands_alone(std::string_view text, std::size_t begin, std::size_t end) const {
  const bool before = begin > 0 && is_word_at(text, character_before(text, begin));
  return !before && !(end < text.size() && is_word_at(text, end));
}

special_matcher::match
special_matcher::next(std::string_view text, const encode_options& options, cursor& c) const {
  while (true) {
    const hit found = find(text, c.at, options, c.span_index);
    if (found.token < 0) return {};
    c.at = found.end;
    const flags& f = flags_[static_cast<std::size_t>(found.token)];
    if (f.single_word && !stands_alone(text, found.begin, found.end)) continue;
    // White space that another token took along is gone. (HF tokenizers gives such bytes out twice, or
    // fails.)
    if (found.end <= c.taken) continue;
    match m{found.begin, found.end, f.id};
    if (f.lstrip) m.begin = std::max(spaces_begin(text, m.begin, std::min(c.taken, m.begin)), c.taken);
    if (f.rstrip) {
      // Within one run every place has the same end; looking for it again would be quadratic.
      if (m.end >= c.space_end) c.space_end = spaces_end(text, m.end);
      m.end = c.space_end;
    }
    return m;
  }
}

} // namespace troupe::models
