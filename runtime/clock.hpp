// SPDX-License-Identifier: Apache-2.0
// Monotonic time as a value, and the clock that actors are handed instead of reading one themselves.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace troupe::runtime {

/// Integer nanoseconds, so that simulated time never rounds.
using duration = std::chrono::nanoseconds;
/// An instant of the process's monotonic clock, or of the simulation's. Never wall-clock time.
using time_point = std::chrono::time_point<std::chrono::steady_clock, duration>;

/// Where `now` comes from. Thread: any.
class clock {
 public:
  virtual ~clock() = default;
  virtual time_point now() const noexcept = 0;
};

/// The machine's monotonic clock.
class steady_clock final : public clock {
 public:
  time_point now() const noexcept override { return std::chrono::steady_clock::now(); }
};

/// Time that moves only when it is told to; starts at zero. Thread: any may read, one thread moves it.
class virtual_clock final : public clock {
 public:
  time_point now() const noexcept override {
    return time_point(duration(ns_.load(std::memory_order_relaxed)));
  }

  /// Moves forward to `t`; an earlier instant is ignored, because monotonic time never goes back.
  void advance_to(time_point t) noexcept {
    if (t > now()) ns_.store(t.time_since_epoch().count(), std::memory_order_relaxed);
  }
  void advance(duration by) noexcept { advance_to(now() + by); }

 private:
  std::atomic<std::int64_t> ns_{0};
};

} // namespace troupe::runtime
