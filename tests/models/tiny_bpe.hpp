// SPDX-License-Identifier: Apache-2.0
// A hand-made byte-level BPE vocabulary: 256 bytes, some merges, special tokens.
#pragma once

#include "models/utf8.hpp"
#include "models/vocabulary.hpp"

#include <initializer_list>
#include <string>
#include <string_view>

namespace troupe::models::test {

/// `bytes` in GPT-2's byte alphabet.
inline std::string in_byte_alphabet(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto b = static_cast<unsigned char>(c);
    char32_t next = 0x100;
    for (unsigned i = 0; i < 256; ++i) {
      const bool printable = (i >= 0x21 && i <= 0x7E) || (i >= 0xA1 && i <= 0xAC) || i >= 0xAE;
      if (i == b) append_utf8(out, printable ? i : next);
      if (!printable) ++next;
    }
  }
  return out;
}

/// Ids 0-255 are the bytes; then one token per merge, in order; then the special tokens.
inline vocabulary tiny_bpe() {
  vocabulary v;
  v.model = "gpt2";
  v.pre = "gpt-2";
  for (int b = 0; b < 256; ++b) v.tokens.push_back(in_byte_alphabet(std::string(1, static_cast<char>(b))));
  const auto merge = [&](std::string_view left, std::string_view right) {
    v.merges.push_back(in_byte_alphabet(left) + " " + in_byte_alphabet(right));
    v.tokens.push_back(in_byte_alphabet(left) + in_byte_alphabet(right));
  };
  merge("h", "e");       // 256
  merge("l", "l");       // 257
  merge("he", "ll");     // 258
  merge("hell", "o");    // 259
  merge(" ", "w");       // 260
  merge("o", "r");       // 261
  merge(" w", "or");     // 262
  merge("l", "d");       // 263
  merge(" wor", "ld");   // 264
  merge("a", "a");       // 265
  merge("aa", "aa");     // 266
  merge("a", "b");       // 267
  merge("\xC3", "\xA9"); // 268: é
  merge("\xF0", "\x9F"); // 269: first half of many emoji
  merge("b", "c");       // 270
  merge("ab", "c");      // 271
  merge(" ", " ");       // 272
  v.types.assign(v.tokens.size(), token_type::normal);
  const auto add = [&](std::string text, token_type type) {
    v.tokens.push_back(std::move(text));
    v.types.push_back(type);
    return static_cast<token_id>(v.tokens.size() - 1);
  };
  v.bos = add("<|start|>", token_type::control); // 273
  v.eos = add("<|end|>", token_type::control);   // 274
  add("<think>", token_type::user_defined);      // 275
  add("<|end|>more", token_type::control);       // 276
  add("<unused>", token_type::unused);           // 277
  return v;
}

} // namespace troupe::models::test
