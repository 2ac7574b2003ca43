// SPDX-License-Identifier: Apache-2.0
// Fuzzes the line decoder of the raw TCP door: the same lines however the bytes are split, never beyond the
// bound.

// covers: server/line_codec.cpp
#include "server/line_codec.hpp"
#include "tests/fuzz/splits.hpp"

#include <cstdint>
#include <cstdlib>

namespace {

std::string run(std::string_view bytes, std::size_t step) {
  constexpr std::size_t limit = 64;
  troupe::server::line_decoder decoder(limit);
  std::vector<std::string> lines;
  bool ok = true;
  for (std::size_t at = 0; at < bytes.size() && ok; at += step)
    ok = decoder.feed(bytes.substr(at, step), lines);
  std::string seen = decoder.failure() + (decoder.mid_line() ? "+" : "-");
  for (const std::string& line : lines) {
    if (line.empty() || line.size() > limit) std::abort();
    seen += line + '\n';
  }
  return seen;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  troupe::test::require_same_however_split(data, size, run);
  return 0;
}
