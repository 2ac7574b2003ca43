// SPDX-License-Identifier: Apache-2.0
// One connection with its socket: a reader and a writer coroutine around a session core.
#pragma once

#include "runtime/base/unique_function.hpp"
#include "server/session_core.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <array>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

namespace troupe::server {

/// A request in flight, as a session sees it. Destroying it cancels the request.
class door_stream {
 public:
  virtual ~door_stream() = default;
  /// One read at a time; `done` runs later, on the session's executor, or never when the stream is destroyed
  /// first.
  virtual void read(unique_function<void(stream_event)> done) = 0;
  /// Called once, at once after the start: `failed` gets the request's failure when no read waits for it.
  virtual void watch(unique_function<void(stream_event)> failed) = 0;
  virtual void cancel() = 0;
};

/// What a session needs from its owner. Thread: the session's executor.
class session_owner {
 public:
  virtual ~session_owner() = default;
  virtual std::unique_ptr<door_stream> submit(request what) = 0;
  /// The socket is closed; the session will not speak again.
  virtual void session_ended(class session& s) = 0;
};

/// Performs what the core asks: the writer is the only one that writes, the reader always reads, so that a
/// client that left is noticed at once, even while it is not being answered; after the peer's half has closed
/// it waits for the reset that a vanished peer answers the next bytes with. An exception (no memory) ends
/// the session it happens in, no other. Thread: the socket's executor. Owns: its socket and streams; kept
/// alive by its own coroutines.
class session : public std::enable_shared_from_this<session> {
 public:
  session(
      boost::asio::ip::tcp::socket socket, std::shared_ptr<const door_context> context, session_owner& owner,
      std::unique_ptr<door_protocol> protocol);

  void start();
  void drain();
  /// The limits of its context are others now: what was waited for may be due earlier.
  void limits_changed();
  /// Closes now. No call to the owner comes after the first `session_ended`.
  void abort();
  /// The owner is about to go: like abort, without telling it.
  void orphan();

 private:
  boost::asio::awaitable<void> read_loop(std::shared_ptr<session> self);
  boost::asio::awaitable<void> write_loop(std::shared_ptr<session> self);
  void apply();
  void start_request(door_submit what);
  void read_event(request_key key);
  void take_event(request_key key, stream_event event);
  template<class Action>
  void guarded(Action action);
  void coroutine_ended(std::exception_ptr failure);
  void arm_timer();
  void on_timer();
  void half_close();
  void finish();
  static time_point now() noexcept { return std::chrono::steady_clock::now(); }

  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  boost::asio::steady_timer wake_;              // the writer waits on it for output
  std::shared_ptr<const door_context> context_; // outlives the core, even when the owner is gone
  session_owner* owner_;
  session_core core_;
  std::unordered_map<request_key, std::unique_ptr<door_stream>> streams_;
  std::array<char, 8192> input_{};
  std::string pending_; // asked for by the core
  std::string sending_; // being written
  std::optional<time_point> armed_;
  std::optional<time_point> linger_until_; // after our half is closed
  bool closing_ = false;
  bool peer_closed_ = false;
  bool finished_ = false;
};

} // namespace troupe::server
