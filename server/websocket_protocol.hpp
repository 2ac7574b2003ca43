// SPDX-License-Identifier: Apache-2.0
// The WebSocket door after its handshake: one object per text message, pings, the closing handshake.
#pragma once

#include "server/object_protocol.hpp"
#include "server/websocket_codec.hpp"

namespace troupe::server {

class websocket_protocol final : public object_protocol {
 public:
  explicit websocket_protocol(const websocket_limits& limits) : decoder_(limits) {}

  void on_start(session_core& s) override;
  void on_bytes(session_core& s, std::string_view bytes) override;
  std::size_t buffered_bytes() const override { return decoder_.buffered_bytes(); }
  void on_time(session_core& s) override;
  std::optional<time_point> deadline(const session_core& s) const override;

 private:
  void send_object(session_core& s, std::string_view json) override;
  void end(session_core& s, std::uint16_t close_code, std::string_view why) override;
  void on_event(session_core& s, const websocket_event& event);

  websocket_decoder decoder_;
  time_point heard_{};           // last byte from the peer
  time_point asked_{};           // last ping
  std::uint32_t unanswered_ = 0; // pings since the last byte
};

} // namespace troupe::server
