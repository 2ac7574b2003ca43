// SPDX-License-Identifier: Apache-2.0
#include "server/line_protocol.hpp"

#include <algorithm>

namespace troupe::server {

void line_protocol::on_start(session_core& s) {
  heard_ = s.now();
}

void line_protocol::on_bytes(session_core& s, std::string_view bytes) {
  const bool was_inside = decoder_.mid_line();
  std::vector<std::string> lines;
  const bool ok = decoder_.feed(bytes, lines);
  if (!was_inside || !lines.empty()) line_began_ = s.now();
  if (!lines.empty()) heard_ = s.now();
  for (const std::string& line : lines) {
    if (s.closed()) return;
    on_object(s, line);
  }
  if (ok || s.closed()) return;
  ++s.context().counters.protocol_errors;
  send_object(
      s, decoder_.too_long() ? error_object({}, 413, "line_too_long", decoder_.failure())
                             : error_object({}, 400, "bad_request", decoder_.failure()));
  s.close();
}

void line_protocol::on_input_end(session_core& s) {
  // The goaway also finds out whether anybody still listens: a client that is gone answers it with a reset.
  end_after_requests(s, "input_ended");
  probed_ = s.now();
}

void line_protocol::send_object(session_core& s, std::string_view json) {
  s.send(json);
  s.send("\n");
}

void line_protocol::end(session_core& s, std::uint16_t close_code, std::string_view why) {
  // A goaway already told of the drain.
  if (close_code == websocket_close::try_again_later)
    send_object(s, error_object({}, 503, "unavailable", why));
  else if (close_code != websocket_close::going_away)
    send_object(s, error_object({}, 429, "too_many_messages", why));
  s.close();
}

std::optional<time_point> line_protocol::deadline(const session_core& s) const {
  std::optional<time_point> first;
  if (decoder_.mid_line() && !ending()) first = line_began_ + s.context().limits.body_timeout;
  if (s.live_requests() == 0) {
    const time_point idle = std::max(heard_, quiet_since()) + s.context().limits.object_idle_timeout;
    first = first ? std::min(*first, idle) : idle;
  } else if (probed_) {
    first = *probed_ + s.context().limits.probe_interval;
  }
  return first;
}

void line_protocol::on_time(session_core& s) {
  const auto due = deadline(s);
  if (!due || s.now() < *due) return;
  if (probed_ && s.live_requests() > 0) {
    probed_ = s.now();
    if (s.output_has_room()) send_object(s, goaway_object("input_ended"));
    return;
  }
  send_object(s, goaway_object(decoder_.mid_line() ? "unfinished_line" : "idle"));
  s.close();
}

} // namespace troupe::server
