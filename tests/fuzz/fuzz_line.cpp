// SPDX-License-Identifier: Apache-2.0
// Fuzzes the line decoder of the raw TCP door: the same lines however the bytes are split, never beyond the
// bound.
#include "server/line_codec.hpp"

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
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string whole = run(bytes, size);
  if (run(bytes, 1) != whole || run(bytes, 1 + data[0] % 17) != whole) std::abort();
  return 0;
}
