// SPDX-License-Identifier: Apache-2.0
// Framing of the raw TCP door: one JSON object per line, its length bounded while it is read.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::server {

/// Splits a byte stream into lines ended by LF (a CR before it is dropped, blank lines are skipped). The
/// first byte of a connection must open a JSON object: an HTTP request or a TLS hello sent here by mistake,
/// or by a browser under an attacker's control, is refused before anything of it is interpreted. Thread: one
/// owner.
class line_decoder {
 public:
  explicit line_decoder(std::size_t line_bytes = 1U << 20) : limit_(line_bytes) {}

  /// Appends the lines that the bytes complete. False once the stream is refused; `failure()` tells why.
  bool feed(std::string_view bytes, std::vector<std::string>& lines);

  bool failed() const noexcept { return !failure_.empty(); }
  /// Whether the failure is an over-long line (else: another protocol).
  bool too_long() const noexcept { return too_long_; }
  const std::string& failure() const noexcept { return failure_; }
  /// Whether a line has begun and not ended.
  bool mid_line() const noexcept { return !line_.empty(); }
  std::size_t buffered_bytes() const noexcept { return line_.capacity(); }

 private:
  bool check_opening(char first);
  bool fail_too_long();

  std::size_t limit_;
  bool opened_ = false;
  bool too_long_ = false;
  std::string line_;
  std::string failure_;
};

} // namespace troupe::server
