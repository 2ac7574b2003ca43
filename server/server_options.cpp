// SPDX-License-Identifier: Apache-2.0
#include "server/server_options.hpp"

#include "config/settings.hpp"

#include <algorithm>

namespace troupe::server {

namespace {

// The parts of a list with commas, lower case: Host and Origin compare without case.
std::vector<std::string> names_in(std::string_view list) {
  std::vector<std::string> out;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    std::string_view name = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    while (name.starts_with(' ')) name.remove_prefix(1);
    while (name.ends_with(' ')) name.remove_suffix(1);
    if (!name.empty()) out.push_back(to_lower(name));
  }
  return out;
}

} // namespace

server_options make_server_options(const config::settings& settings) {
  const auto& from = settings.server;
  const auto ms = [](std::uint32_t n) { return std::chrono::milliseconds(n); };
  server_options out;
  out.host = from.host;
  out.port = static_cast<std::uint16_t>(from.port);
  if (from.tcp_port >= 0) out.tcp_port = static_cast<std::uint16_t>(from.tcp_port);
  out.max_connections = from.max_connections;
  out.ignore_unknown_fields = from.ignore_unknown_fields;
  out.policy = {names_in(from.allowed_hosts), names_in(from.allowed_origins)};

  door_limits& limits = out.limits;
  limits.http.uri_bytes = from.uri_bytes;
  limits.http.header_bytes = from.header_bytes;
  limits.http.header_fields = from.header_fields;
  limits.http.body_bytes = from.body_bytes;
  limits.websocket.message_bytes = from.message_bytes;
  limits.websocket.fragments = from.message_fragments;
  limits.line_bytes = from.message_bytes;
  limits.live_requests = from.max_requests_per_connection;
  limits.pipelined_requests = from.pipelined_requests;
  limits.all_buffered_bytes = from.all_buffered_bytes;
  limits.stream_credit = settings.engine.stream_credit;
  limits.slow_consumer = ms(settings.engine.slow_consumer_ms);
  limits.output_soft_bytes = from.unsent_bytes;
  limits.output_hard_bytes = std::max<std::size_t>(limits.output_hard_bytes, 4 * from.unsent_bytes);
  limits.header_timeout = ms(from.header_timeout_ms);
  limits.body_timeout = ms(from.body_timeout_ms);
  limits.keep_alive_timeout = ms(from.keep_alive_timeout_ms);
  limits.object_idle_timeout = ms(from.idle_timeout_ms);
  limits.write_timeout = ms(from.write_timeout_ms);
  limits.ping_interval = ms(from.ping_interval_ms);
  return out;
}

} // namespace troupe::server
