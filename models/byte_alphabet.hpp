// SPDX-License-Identifier: Apache-2.0
// GPT-2's byte alphabet, and the spelling "<0xNN>" of SentencePiece's byte tokens.
#pragma once

#include "models/utf8.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::models {

/// 188 printable Latin-1 bytes stand for themselves, the other 68 for U+0100 onwards.
struct byte_alphabet {
  std::array<char32_t, 256> code_of{};
  std::array<std::int16_t, 0x144> byte_of{}; ///< code point -> byte, or -1

  constexpr byte_alphabet() {
    for (auto& b : byte_of) b = -1;
    char32_t next = 0x100;
    for (unsigned b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      code_of[b] = printable ? b : next++;
      byte_of[code_of[b]] = static_cast<std::int16_t>(b);
    }
  }
};
inline constexpr byte_alphabet gpt2_alphabet;

/// The bytes that `token` spells in the alphabet; false when a character is outside it.
inline bool spell_bytes(std::string_view token, std::string& out) {
  out.clear();
  for (std::size_t at = 0; at < token.size();) {
    const utf8_step step = decode_utf8(token, at);
    if (step.state != utf8_state::valid || step.code >= gpt2_alphabet.byte_of.size()) return false;
    const std::int16_t byte = gpt2_alphabet.byte_of[step.code];
    if (byte < 0) return false;
    out += static_cast<char>(byte);
    at += step.length;
  }
  return true;
}

/// NN of "<0xNN>", or -1.
inline int byte_token_value(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

} // namespace troupe::models
