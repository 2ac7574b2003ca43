// SPDX-License-Identifier: Apache-2.0
// One connection without its socket: bytes and engine events in, actions out. The shell and the simulation
// drive it.
#pragma once

#include "server/door_context.hpp"
#include "troupe/request.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::server {

/// Names one request of one connection; never reused on it.
using request_key = std::uint64_t;

struct door_submit {
  request_key key = 0;
  request what;
};

/// What the owner of a session must do, in this order.
struct session_actions {
  std::vector<door_submit> submits;
  std::vector<request_key> cancels; ///< ask the engine to end it; its events are still read
  std::vector<request_key> drops;   ///< forget it: destroying its stream cancels it
  std::vector<request_key> reads;   ///< read its next event and hand it to `on_event`; a failure comes unread
  std::string output;               ///< send, after everything sent before
  bool close = false;               ///< close once the output is sent
  bool abort = false;               ///< close now
};

class session_core;

/// What one protocol makes of bytes and events. Implementations own no time and no output: they use the
/// session.
class door_protocol {
 public:
  virtual ~door_protocol() = default;
  virtual void on_start(session_core& s) = 0;
  virtual void on_bytes(session_core& s, std::string_view bytes) = 0;
  virtual void on_accepted(session_core& s, request_key key, accepted_event event) = 0;
  virtual void on_token(session_core& s, request_key key, token_event event) = 0;
  virtual void on_done(session_core& s, request_key key, done_event event) = 0;
  virtual void on_failed(session_core& s, request_key key, error why) = 0;
  /// A token waits because the client's credit is used up; called once per request.
  virtual void on_credit_exhausted(session_core& s, request_key key);
  /// The output has room again.
  virtual void on_room(session_core& s);
  /// The peer sends nothing more, and may or may not read on. By default the connection ends.
  virtual void on_input_end(session_core& s);
  virtual void on_drain(session_core& s) = 0;
  /// All sessions together buffer too much, and this one a good part of it: it ends.
  virtual void on_overload(session_core& s) = 0;
  /// Bytes of input that it keeps.
  virtual std::size_t buffered_bytes() const = 0;
  virtual void on_time(session_core& s) = 0;
  virtual std::optional<time_point> deadline(const session_core& s) const = 0;
};

/// The part that all doors share: the requests in flight with their credit, the output bound, the write
/// timeout.
///
/// Events are pulled: a request's next event is read only while the output is below its soft bound and the
/// client has credit, so a slow reader pauses its own requests in the engine and nothing else. One event per
/// request may be in the air; a failure needs no read and overtakes a token that waits for credit. A token
/// that waits longer than `slow_consumer` ends its request. A peer that takes nothing for `write_timeout`, or
/// lets the output reach its hard bound, is cut. What the end of the peer's input means is the protocol's to
/// say. Thread: one owner. After `close` or `abort` was among the actions all input is ignored.
class session_core {
 public:
  session_core(const door_context& context, std::unique_ptr<door_protocol> protocol, time_point now);
  ~session_core();
  session_core(const session_core&) = delete;
  session_core& operator=(const session_core&) = delete;

  // Input from the owner.
  void on_bytes(std::string_view bytes, time_point now);
  void on_event(request_key key, stream_event event, time_point now);
  void on_written(std::size_t bytes, time_point now);
  /// The peer has closed its half: it sends nothing more.
  void on_input_end(time_point now);
  /// The connection is gone in both directions.
  void on_peer_closed(time_point now);
  void on_drain(time_point now);
  /// To be called when `deadline()` has come; earlier or later calls do no harm.
  void on_time(time_point now);

  /// What to do since the last call.
  session_actions take();
  std::optional<time_point> deadline() const;
  bool closed() const noexcept { return closed_; }
  std::size_t unsent_bytes() const noexcept { return unsent_; }
  std::size_t live_requests() const noexcept { return flows_.size(); }

  // For protocols.
  const door_context& context() const noexcept { return context_; }
  time_point now() const noexcept { return now_; }
  bool draining() const noexcept { return draining_; }
  /// Whether the output has room for what need not be sent now.
  bool output_has_room() const noexcept { return !paused_; }
  void send(std::string_view bytes);
  /// `credit`: token events that may be delivered before `grant`; absent: no such bound.
  request_key submit(request what, std::optional<std::uint32_t> credit = {});
  void cancel(request_key key);
  /// False when the total would pass `limit`.
  bool grant(request_key key, std::uint32_t n, std::uint32_t limit);
  /// Ends the connection after the output; requests in flight are dropped.
  void close();
  /// The protocol changes (upgrade). The old one is destroyed after the current call; the bytes of its input
  /// that it hands on go to the new one.
  void switch_protocol(std::unique_ptr<door_protocol> next);
  void hand_on(std::string_view rest);

 private:
  struct flow {
    bool reading = false;
    bool cancelled = false;
    std::uint32_t withheld_events = 0; ///< since the cancel
    std::uint32_t withheld_tokens = 0;
    std::set<std::uint32_t> withheld_choices;
    bool told_exhausted = false;
    std::optional<std::uint32_t> credit;
    std::optional<token_event> held;
    time_point held_since{};
  };

  static void withhold(flow& f, const token_event& token);
  static void leave_out(const flow& f, done_event& done);
  void end_stalled_requests();
  void deliver(request_key key, stream_event event);
  void drop_all();
  void abort_slow_consumer();
  void finish_input();
  void charge_buffers();

  const door_context& context_;
  std::unique_ptr<door_protocol> protocol_;
  std::unique_ptr<door_protocol> next_protocol_;
  std::string next_bytes_;
  session_actions actions_;
  std::map<request_key, flow> flows_;
  request_key last_key_ = 0;
  std::size_t unsent_ = 0;
  std::size_t charged_ = 0; // of counters.buffered_bytes
  time_point now_;
  time_point progress_;                   // of the peer's reading, or when output began to wait
  std::optional<time_point> stalled_due_; // not after the first held token's time is up
  bool paused_ = false;
  bool draining_ = false;
  bool closed_ = false;
};

} // namespace troupe::server
