// SPDX-License-Identifier: Apache-2.0
// What all sessions share: limits, the policy on who may speak, counters, and the few questions they ask.
#pragma once

#include "runtime/clock.hpp"
#include "server/http_parser.hpp"
#include "server/openai_json.hpp"
#include "server/websocket_codec.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace troupe::server {

using runtime::duration;
using runtime::time_point;

/// Bounds of one connection; all are on by default.
struct door_limits {
  http_limits http;
  websocket_limits websocket;
  std::size_t line_bytes = 1U << 20;
  std::size_t output_soft_bytes = 64U << 10;   ///< above it no more events are read for this connection
  std::size_t output_hard_bytes = 1U << 20;    ///< above it the connection is cut
  std::size_t all_buffered_bytes = 256U << 20; ///< input and output of all connections together
  std::uint32_t pipelined_requests = 8;        ///< waiting behind the one being answered
  std::size_t pipelined_bytes = 2U << 20;      ///< of them, heads and bodies
  std::uint32_t live_requests = 256;           ///< of one WebSocket or TCP connection
  std::uint32_t stream_credit = 256;           ///< most unread token events that the engine keeps for one
  std::uint32_t control_per_second = 100; ///< cancel, credit, ping, hello of one connection; burst twice that
  duration header_timeout = std::chrono::seconds(10); ///< first byte to end of the head
  duration body_timeout =
      std::chrono::seconds(30); ///< end of the head to end of the body; an unfinished line
  duration keep_alive_timeout = std::chrono::seconds(75);   ///< between two requests
  duration object_idle_timeout = std::chrono::seconds(300); ///< of a TCP connection without live requests
  duration write_timeout = std::chrono::seconds(30);        ///< output waits and the peer takes nothing
  duration ping_interval = std::chrono::seconds(15);        ///< WebSocket pings; SSE comments
  duration probe_interval =
      std::chrono::seconds(1); ///< between questions whether a client whose input ended still listens
  duration slow_consumer = std::chrono::seconds(30); ///< a token waits and the client grants no credit
};

/// Who may speak to the HTTP port. A page in a browser can reach a server of its user (DNS rebinding, forged
/// requests), so unknown Host names and foreign Origins are refused.
struct door_policy {
  std::vector<std::string> allowed_hosts;   ///< lower-case names without port; empty or "*": any
  std::vector<std::string> allowed_origins; ///< beside the server's own; "*": any
};

bool host_allowed(const door_policy& policy, std::string_view host) noexcept;
/// `host` is the request's Host value; an Origin of that very authority is the server's own.
bool origin_allowed(const door_policy& policy, std::string_view origin, std::string_view host) noexcept;

/// Counted by the sessions, shown by /metrics. Thread: the server's executor.
struct door_counters {
  std::uint64_t connections_accepted = 0;
  std::uint64_t connections_refused = 0; ///< over the cap
  std::uint64_t connections_open = 0;
  std::uint64_t slow_consumers = 0;
  std::uint64_t protocol_errors = 0;
  std::map<int, std::uint64_t> http_responses; ///< by status
  std::uint64_t buffered_bytes = 0;            ///< at present
  std::uint64_t object_messages = 0;           ///< objects received on WebSocket and TCP
};

enum class door_health : std::uint8_t {
  loading,
  ready,
  draining,
  failed, ///< the engine recovers from a crash, or has given up after several: it answers requests itself
};

/// The server as its sessions see it. Thread: the server's executor.
class door_services {
 public:
  virtual ~door_services() = default;
  virtual door_health health() const = 0;
  /// Valid but while loading.
  virtual const openai_rules& rules() const = 0;
  virtual std::uint32_t context_tokens() const = 0;
  virtual std::string system_fingerprint() const = 0;
  virtual std::int64_t started_unix_seconds() const = 0;
  virtual std::int64_t unix_seconds() const = 0;
  virtual std::string metrics_text() const = 0;
  /// Not to be guessed: ids of answers come from it.
  virtual std::uint64_t random() = 0;
};

struct door_context {
  door_limits limits;
  door_policy policy;
  door_counters& counters;
  door_services& services;
};

} // namespace troupe::server
