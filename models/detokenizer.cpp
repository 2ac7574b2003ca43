// SPDX-License-Identifier: Apache-2.0
// Token ids to text as they are generated.
#include "models/detokenizer.hpp"

#include "models/utf8.hpp"

namespace troupe::models {

void detokenizer::take(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!pending_.empty()) {
    joined = std::move(pending_);
    joined += bytes;
    bytes = joined;
    pending_.clear();
  }
  while (!bytes.empty()) {
    const std::size_t valid = valid_utf8_prefix(bytes);
    out += bytes.substr(0, valid);
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    const utf8_step step = decode_utf8(bytes, 0);
    if (step.state == utf8_state::truncated) {
      pending_ = bytes;
      break;
    }
    append_utf8(out, replacement_character);
    bytes.remove_prefix(step.length);
  }
}

std::string detokenizer::push(token_id id) {
  std::string out;
  if (!show_special_ && tokenizer_.is_special(id)) return out;
  take(next_bytes(id), out);
  leading_ = false;
  return out;
}

std::string detokenizer::flush() {
  std::string out;
  if (!pending_.empty()) append_utf8(out, replacement_character);
  pending_.clear();
  return out;
}

std::string detokenize(const tokenizer& t, std::span<const token_id> ids, bool show_special) {
  detokenizer d(t, show_special);
  std::string text;
  for (const token_id id : ids) text += d.push(id);
  return text += d.flush();
}

} // namespace troupe::models
