// SPDX-License-Identifier: Apache-2.0
// The shared half of a stream: events wait here between the request actor that makes them and the reader.
#pragma once

#include "troupe/engine.hpp"

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

namespace troupe::detail {

/// Where a stream reports to; implemented by the engine.
class stream_owner {
 public:
  virtual ~stream_owner() = default;
  /// A token event of choice `index` was taken by the reader. Thread: the engine's executor.
  virtual void event_read(std::uint64_t stream_id, std::uint32_t index) = 0;
  /// The client is done with the stream. Idempotent. Thread: any.
  virtual void cancel_stream(std::uint64_t stream_id) = 0;
};

using read_handler = boost::asio::any_completion_handler<void(boost::system::error_code, stream_event)>;

/// Thread: the engine's executor, but for the constants, `cancelled` and where said.
struct stream_state : std::enable_shared_from_this<stream_state> {
  stream_state(
      boost::asio::any_io_executor ex, std::uint64_t stream_id, std::weak_ptr<stream_owner> reports_to);

  /// Hands an event to the waiting reader, or keeps it. After a terminal event nothing more is taken. A
  /// failure drops the unread tokens, and goes to the watcher when no reader waits.
  void push(stream_event event);
  /// Connects the handler's cancellation slot and goes to the engine's executor for the read. Thread: any.
  void start_read(read_handler handler);
  /// `number` names the read to its cancellation.
  void read(read_handler handler, std::uint64_t number = 0);
  /// The same for the wait for a failure.
  void start_watch(read_handler handler);
  void watch(read_handler handler, std::uint64_t number = 0);
  bool ended() const noexcept { return terminal_pushed_; }

  const boost::asio::any_io_executor executor;
  const std::uint64_t id;
  const std::weak_ptr<stream_owner> owner;
  std::atomic<bool> cancelled{false}; ///< set by the client, perhaps before the engine has seen the request

 private:
  struct waiting_reader {
    read_handler handler;
    std::uint64_t number;
    boost::asio::any_io_executor work; // keeps the executor running while a read waits
  };
  void hand_over(waiting_reader reader, stream_event event);
  void deliver(waiting_reader reader, boost::system::error_code code, stream_event event);
  void end_watch();
  read_handler connected(read_handler handler, std::uint64_t number);
  void cancel_read(std::uint64_t number); // Thread: any
  void end_read(std::uint64_t number);

  // Reads and watches that were started; a slot outlives its operation, and must not end the next one.
  std::atomic<std::uint64_t> reads_{0};
  std::deque<stream_event> pending_;
  std::optional<waiting_reader> reader_;
  std::optional<waiting_reader> watcher_;
  bool terminal_pushed_ = false;
};

/// True for done_event and failed_event.
bool is_terminal(const stream_event& event) noexcept;

} // namespace troupe::detail
