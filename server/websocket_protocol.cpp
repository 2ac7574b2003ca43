// SPDX-License-Identifier: Apache-2.0
#include "server/websocket_protocol.hpp"

namespace troupe::server {
namespace {
constexpr std::uint32_t pings_before_closing = 2;
}

void websocket_protocol::on_start(session_core& s) {
  heard_ = s.now();
}

void websocket_protocol::on_bytes(session_core& s, std::string_view bytes) {
  heard_ = s.now();
  unanswered_ = 0;
  std::vector<websocket_event> events;
  decoder_.feed(bytes, events);
  for (const websocket_event& event : events) {
    if (s.closed()) return;
    on_event(s, event);
  }
}

void websocket_protocol::on_event(session_core& s, const websocket_event& event) {
  std::string out;
  switch (event.what) {
  case websocket_event::kind::text:
    on_object(s, event.payload);
    break;
  case websocket_event::kind::binary:
    end(s, websocket_close::unsupported_data, "binary messages are not spoken here");
    break;
  case websocket_event::kind::ping:
    if (!within_budget(s)) return;
    append_websocket_frame(out, websocket_opcode::pong, event.payload);
    s.send(out);
    break;
  case websocket_event::kind::pong:
    break;
  case websocket_event::kind::close:
    append_websocket_close(out, event.close_code, {});
    s.send(out);
    s.close();
    break;
  case websocket_event::kind::failed:
    ++s.context().counters.protocol_errors;
    end(s, event.close_code, event.payload);
    break;
  }
}

void websocket_protocol::send_object(session_core& s, std::string_view json) {
  std::string out;
  append_websocket_frame(out, websocket_opcode::text, json);
  s.send(out);
}

void websocket_protocol::end(session_core& s, std::uint16_t close_code, std::string_view why) {
  std::string out;
  append_websocket_close(out, close_code, why);
  s.send(out);
  s.close();
}

std::optional<time_point> websocket_protocol::deadline(const session_core& s) const {
  // Each ping has an interval to be answered in, also when the interval has just been made shorter.
  return (unanswered_ == 0 ? heard_ : asked_) + s.context().limits.ping_interval;
}

void websocket_protocol::on_time(session_core& s) {
  if (s.now() < *deadline(s)) return;
  if (unanswered_ == pings_before_closing) {
    end(s, websocket_close::policy_violation, "pings are not answered");
    return;
  }
  ++unanswered_;
  asked_ = s.now();
  std::string out;
  append_websocket_frame(out, websocket_opcode::ping, {});
  s.send(out);
}

} // namespace troupe::server
