// SPDX-License-Identifier: Apache-2.0
// Texts for people.
#include "cli/text.hpp"

#include "models/utf8.hpp"
#include "runtime/base/error.hpp"

#include <cstdio>
#include <poll.h>
#include <unistd.h>

namespace troupe::cli {

std::string escaped(std::string_view text) {
  std::string out;
  const auto escape = [&](char c) {
    constexpr char digits[] = "0123456789abcdef";
    out += "\\x";
    out += digits[static_cast<unsigned char>(c) >> 4];
    out += digits[static_cast<unsigned char>(c) & 15];
  };
  for (std::size_t at = 0; at < text.size();) {
    const models::utf8_step step = models::decode_utf8(text, at);
    if (text[at] == '\n')
      out += "\\n";
    else if (
        step.state != models::utf8_state::valid || step.code < 0x20 ||
        (step.code >= 0x7F && step.code < 0xA0))
      for (const char c : text.substr(at, step.length)) escape(c);
    else
      out += text.substr(at, step.length);
    at += step.length;
  }
  return out;
}

std::string one_line(std::string_view text) {
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  return escaped(text);
}

std::string lost_note(std::string_view what, std::uint64_t bytes, std::uint64_t first) {
  return std::to_string(bytes) + (bytes == 1 ? " byte of " : " bytes of ") + std::string(what) +
         (bytes == 1 ? " has" : " have") + " no token in the vocabulary and " + (bytes == 1 ? "is" : "are") +
         " left out, the first at offset " + std::to_string(first);
}

void print_fact(const char* name, const std::string& text) {
  std::printf("%-14s %s\n", name, text.c_str());
}

bool output_lost() noexcept {
  if (std::ferror(stdout) != 0) return true;
  pollfd end{STDOUT_FILENO, 0, 0};
  return poll(&end, 1, 0) == 1 && (end.revents & (POLLERR | POLLNVAL)) != 0;
}

void require_output() {
  if (output_lost()) throw failure(errc::io, "standard output cannot be written");
}

} // namespace troupe::cli
