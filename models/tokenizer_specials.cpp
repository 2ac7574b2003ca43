// SPDX-License-Identifier: Apache-2.0
// Finds the texts of special tokens in a text.
#include "models/tokenizer_specials.hpp"

namespace troupe::models {

special_matcher::special_matcher(const vocabulary& v) {
  roots_.fill(-1);
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    const token_type type = v.types[i];
    const bool control = type == token_type::control || type == token_type::unknown;
    if ((control || type == token_type::user_defined) && !v.tokens[i].empty()) {
      insert(v.tokens[i], static_cast<token_id>(i), control);
    }
  }
}

std::int32_t special_matcher::child(std::int32_t at, unsigned char byte) const noexcept {
  for (std::int32_t c = nodes_[static_cast<std::size_t>(at)].first_child; c >= 0;
       c = nodes_[static_cast<std::size_t>(c)].next_sibling) {
    if (nodes_[static_cast<std::size_t>(c)].byte == byte) return c;
  }
  return -1;
}

void special_matcher::insert(std::string_view text, token_id id, bool control) {
  const auto add = [&](unsigned char byte) {
    nodes_.push_back({-1, -1, -1, byte, false});
    return static_cast<std::int32_t>(nodes_.size() - 1);
  };
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
  nodes_[static_cast<std::size_t>(at)].id = id;
  nodes_[static_cast<std::size_t>(at)].control = control;
}

special_matcher::match special_matcher::find(
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
    match best;
    for (std::size_t end = begin + 1;; ++end) {
      const node& n = nodes_[static_cast<std::size_t>(at)];
      if (n.id >= 0 && (!n.control || (options.parse_special && end <= trusted_end)))
        best = {begin, end, n.id};
      if (end >= text.size()) break;
      at = child(at, static_cast<unsigned char>(text[end]));
      if (at < 0) break;
    }
    if (best.id >= 0) return best;
  }
  return {};
}

} // namespace troupe::models
