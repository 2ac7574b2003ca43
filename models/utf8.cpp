// SPDX-License-Identifier: Apache-2.0
// UTF-8 decoding and encoding, one code point at a time.
#include "models/utf8.hpp"

#include <cstring>

namespace troupe::models {

utf8_step decode_utf8(std::string_view text, std::size_t at) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(at);
  if (lead < 0x80) return {lead, 1, utf8_state::valid};
  unsigned length = 0;
  // The second byte's range rules out overlong forms, surrogates and values above U+10FFFF.
  unsigned low = 0x80, high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {replacement_character, 1, utf8_state::ill_formed};
  }
  char32_t code = lead & (0x7Fu >> length);
  for (unsigned i = 1; i < length; ++i) {
    if (at + i >= text.size())
      return {replacement_character, static_cast<std::uint8_t>(i), utf8_state::truncated};
    const unsigned next = byte(at + i);
    if (next < low || next > high) {
      return {replacement_character, static_cast<std::uint8_t>(i), utf8_state::ill_formed};
    }
    code = code << 6 | (next & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {code, static_cast<std::uint8_t>(length), utf8_state::valid};
}

void append_utf8(std::string& out, char32_t code) {
  if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) code = replacement_character;
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    out += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

std::size_t valid_utf8_prefix(std::string_view text) noexcept {
  std::size_t at = 0;
  while (at < text.size()) {
    // Eight ASCII bytes at a time: most text is ASCII.
    while (at + 8 <= text.size()) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data() + at, 8);
      if (word & 0x8080808080808080u) break;
      at += 8;
    }
    if (at == text.size()) break;
    const utf8_step step = decode_utf8(text, at);
    if (step.state != utf8_state::valid) return at;
    at += step.length;
  }
  return at;
}

std::size_t count_code_points(std::string_view text) noexcept {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

} // namespace troupe::models
