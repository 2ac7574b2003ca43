// SPDX-License-Identifier: Apache-2.0
// Everything the server is told at start.
#pragma once

#include "server/door_context.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace troupe::config {
struct settings;
}

namespace troupe::server {

struct server_options {
  std::string host = "127.0.0.1";        ///< an address or a name
  std::uint16_t port = 8080;             ///< HTTP and WebSocket; 0 = any free one
  std::optional<std::uint16_t> tcp_port; ///< raw TCP; 0 = any free one; absent = no such door
  std::uint32_t max_connections = 1024;  ///< of both doors together
  std::uint32_t send_buffer_bytes =
      64U << 10; ///< of the kernel, per connection: small, so that slowness shows early
  door_limits limits;
  /// This machine's names are added to the hosts when listening on this machine only.
  door_policy policy;
  bool ignore_unknown_fields = false;
};

server_options make_server_options(const config::settings& settings);

} // namespace troupe::server
