// SPDX-License-Identifier: Apache-2.0
// The raw TCP door: one JSON object per line in both directions.
#pragma once

#include "server/line_codec.hpp"
#include "server/object_protocol.hpp"

#include <optional>

namespace troupe::server {

class line_protocol final : public object_protocol {
 public:
  explicit line_protocol(std::size_t line_bytes) : decoder_(line_bytes) {}

  void on_start(session_core& s) override;
  void on_bytes(session_core& s, std::string_view bytes) override;
  void on_input_end(session_core& s) override;
  std::size_t buffered_bytes() const override { return decoder_.buffered_bytes(); }
  void on_time(session_core& s) override;
  std::optional<time_point> deadline(const session_core& s) const override;

 private:
  void send_object(session_core& s, std::string_view json) override;
  void end(session_core& s, std::uint16_t close_code, std::string_view why) override;

  line_decoder decoder_;
  time_point heard_{};               // last whole line, or the start
  time_point line_began_{};          // of the unfinished line
  std::optional<time_point> probed_; // when a client whose input ended was last asked whether it listens
};

} // namespace troupe::server
