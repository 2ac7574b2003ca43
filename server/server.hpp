// SPDX-License-Identifier: Apache-2.0
// The doors of an engine: listens, keeps the sessions, drains.
#pragma once

#include "server/server_options.hpp"
#include "troupe/engine.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe::server {

/// Serves one engine over HTTP, WebSocket and raw TCP on the engine's executor.
/// Thread: that executor, for every call. The engine must outlive the server.
class server {
 public:
  server(engine& e, server_options options);
  /// Cuts every connection.
  ~server();
  server(const server&) = delete;
  server& operator=(const server&) = delete;

  /// Binds and begins to accept. Until `engine_ready` requests are answered with 503 model_loading.
  /// Errors: io (names the address and the way out), bad_config (host).
  result<void> listen();

  /// The engine has started: requests are taken from now on.
  void engine_ready();

  /// Takes other limits, timeouts and names; addresses and ports stay. What is bounded while it is read
  /// (lines of a head, frames) is so for connections to come.
  void reconfigure(server_options options);

  /// Stops accepting and tells every client; idle connections close, others when their requests have ended.
  /// Completes when none is left. Drain the engine at the same time with the same limit: its answers to what
  /// it cuts are still sent; connections that remain seconds after `limit` and after the engine's last
  /// request (a minute at most) are cut. Signature void().
  template<typename CompletionToken>
  auto async_drain(std::chrono::milliseconds limit, CompletionToken&& token) {
    return boost::asio::async_initiate<CompletionToken, void()>(
        [](auto handler, server* self, std::chrono::milliseconds l) { self->drain(l, std::move(handler)); },
        token, this, limit);
  }

  /// While it drains: as if it had been told this limit now. Shorten the engine's shutdown as well.
  void shorten_drain(std::chrono::milliseconds limit);

  std::uint16_t port() const;
  /// 0 when there is no raw TCP door.
  std::uint16_t tcp_port() const;
  /// "http://127.0.0.1:8080", "tcp://127.0.0.1:8081".
  std::vector<std::string> addresses() const;
  const door_counters& counters() const;

 private:
  void drain(std::chrono::milliseconds limit, boost::asio::any_completion_handler<void()> done);
  struct state;
  std::shared_ptr<state> state_;
};

} // namespace troupe::server
