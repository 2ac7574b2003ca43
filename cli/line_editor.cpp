// SPDX-License-Identifier: Apache-2.0
#include "cli/line_editor.hpp"

#include "models/utf8.hpp"

#include <utf8proc.h>

namespace troupe::cli {
namespace {

/// Columns of the character that `text` ends with, which is `bytes` long.
int columns_of(std::string_view text, std::size_t bytes) {
  const models::utf8_step step = models::decode_utf8(text, text.size() - bytes);
  if (step.state != models::utf8_state::valid || step.code == '\t') return 1; // as they are shown
  return utf8proc_charwidth(static_cast<utf8proc_int32_t>(step.code));
}

std::size_t last_character_bytes(std::string_view text) {
  std::size_t bytes = 1;
  while (bytes < 4 && bytes < text.size() && (text[text.size() - bytes] & 0xC0) == 0x80) ++bytes;
  const bool whole = models::decode_utf8(text, text.size() - bytes).length == bytes;
  return whole ? bytes : 1; // of bytes that are no UTF-8, one
}

} // namespace

void line_editor::clear() noexcept {
  text_.clear();
  escape_ = escape::none;
  whole_ = false;
}

line_editor::outcome line_editor::take(std::string_view& typed, std::string& shown) {
  if (whole_) clear();
  while (!typed.empty()) {
    const char c = typed.front();
    typed.remove_prefix(1);
    if (skips(c)) continue;
    if (c == '\n' || c == '\r') {
      shown += '\n';
      whole_ = true;
      return outcome::line;
    }
    if (c == keys_.end) {
      if (text_.empty()) return outcome::end;
    } else if (c == keys_.erase || c == '\b' || c == '\x7F') {
      erase_character(shown);
    } else if (c == keys_.erase_word) {
      erase_word(shown);
    } else if (c == keys_.erase_line) {
      while (!text_.empty()) erase_character(shown);
    } else if (c == '\t') { // a space on the screen, so that its columns are known when it is erased
      text_ += c;
      shown += ' ';
    } else if (static_cast<unsigned char>(c) >= 0x20) {
      text_ += c;
      shown += c;
    }
  }
  return outcome::more;
}

/// ESC [ parameters letter (arrows, Home, Delete), ESC O letter, ESC and any other key.
bool line_editor::skips(char c) noexcept {
  switch (escape_) {
  case escape::none:
    if (c != '\x1B') return false;
    escape_ = escape::begun;
    return true;
  case escape::begun:
    escape_ = c == '[' ? escape::parameters : c == 'O' ? escape::one_more : escape::none;
    return c != '\n' && c != '\r';
  case escape::parameters:
    if (c >= 0x40 && c <= 0x7E) escape_ = escape::none;
    break;
  case escape::one_more:
    escape_ = escape::none;
    break;
  }
  return true;
}

void line_editor::erase_character(std::string& shown) {
  if (text_.empty()) return;
  const std::size_t bytes = last_character_bytes(text_);
  for (int columns = columns_of(text_, bytes); columns > 0; --columns) shown += "\b \b";
  text_.resize(text_.size() - bytes);
}

void line_editor::erase_word(std::string& shown) {
  const auto blank = [this] { return text_.back() == ' ' || text_.back() == '\t'; };
  while (!text_.empty() && blank()) erase_character(shown);
  while (!text_.empty() && !blank()) erase_character(shown);
}

} // namespace troupe::cli
