// SPDX-License-Identifier: Apache-2.0
// Texts for people.
#include "cli/text.hpp"

#include <cstdio>

namespace troupe::cli {

std::string one_line(std::string_view text) {
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7F) {
      constexpr char digits[] = "0123456789abcdef";
      out += "\\x";
      out += digits[byte >> 4];
      out += digits[byte & 15];
    } else {
      out += c;
    }
  }
  return out;
}

void print_fact(const char* name, const std::string& text) {
  std::printf("%-14s %s\n", name, text.c_str());
}

} // namespace troupe::cli
