// SPDX-License-Identifier: Apache-2.0
#include "server/line_codec.hpp"

#include <utility>

namespace troupe::server {

bool line_decoder::check_opening(char first) {
  if (first == '{') return opened_ = true;
  if (first == 0x16)
    failure_ = "this looks like TLS; this port speaks plain lines of JSON";
  else if (first >= 'A' && first <= 'Z')
    failure_ = "this looks like HTTP; this port speaks lines of JSON, HTTP has a port of its own";
  else
    failure_ = "the first byte must open a JSON object: this port speaks one JSON object per line";
  return false;
}

bool line_decoder::fail_too_long() {
  too_long_ = true;
  failure_ = "a line is longer than " + std::to_string(limit_) + " bytes";
  line_ = {};
  return false;
}

bool line_decoder::feed(std::string_view bytes, std::vector<std::string>& lines) {
  if (failed()) return false;
  while (!bytes.empty()) {
    if (!opened_) {
      if (bytes.front() == '\r' || bytes.front() == '\n') {
        bytes.remove_prefix(1);
        continue;
      }
      if (!check_opening(bytes.front())) return false;
    }
    const std::size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    // One more for a CR, which is not part of the line.
    if (part.size() > limit_ + 1 - line_.size()) return fail_too_long();
    line_.append(part);
    if (end == std::string_view::npos) return true;
    bytes.remove_prefix(end + 1);
    if (!line_.empty() && line_.back() == '\r') line_.pop_back();
    if (line_.size() > limit_) return fail_too_long();
    if (!line_.empty()) lines.push_back(std::exchange(line_, {}));
  }
  return true;
}

} // namespace troupe::server
