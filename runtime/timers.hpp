// SPDX-License-Identifier: Apache-2.0
// One-shot timers behind an interface: Asio's in production, virtual ones in the simulation.
#pragma once

#include "runtime/base/unique_function.hpp"
#include "runtime/clock.hpp"

#include <cstdint>
#include <memory>

namespace boost::asio {
class any_io_executor;
}

namespace troupe::runtime {

/// Names one started timer; the default value names none. Plain data, never dangles.
struct timer_handle {
  std::uint64_t id = 0;
  explicit operator bool() const noexcept { return id != 0; }
  friend bool operator==(timer_handle, timer_handle) = default;
};

/// Starts and cancels one-shot timers. Thread: any; callbacks run on the implementation's executor, never
/// inside `start` or `cancel`. Timers with equal due times fire in the order in which they were started.
class timers {
 public:
  virtual ~timers() = default;
  /// Calls `fire` once, not before `after` has passed; zero or less means "as soon as possible".
  virtual timer_handle start(duration after, unique_function<void()> fire) = 0;
  /// True when the callback will now never run; false when it has run, is running or was never started.
  virtual bool cancel(timer_handle timer) noexcept = 0;
};

/// Timers of an Asio executor (any of them: io_context, thread_pool, strand, a user's own). One kernel timer
/// serves all. Pending ones keep the context's run() busy; destruction cancels them without calling anything.
/// Owns: its queue, shared with the wait in flight, so that it may be destroyed before the context is
/// drained.
class asio_timers final : public timers {
 public:
  explicit asio_timers(const boost::asio::any_io_executor& executor);
  ~asio_timers() override;
  asio_timers(const asio_timers&) = delete;
  asio_timers& operator=(const asio_timers&) = delete;

  timer_handle start(duration after, unique_function<void()> fire) override;
  bool cancel(timer_handle timer) noexcept override;

 private:
  struct queue;
  std::shared_ptr<queue> queue_;
};

} // namespace troupe::runtime
