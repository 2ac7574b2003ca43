// SPDX-License-Identifier: Apache-2.0
// Seeded executor, virtual clock and virtual timers together, and the loop that drives them.
#pragma once

#include "runtime/sim/seeded_executor.hpp"
#include "runtime/sim/virtual_timers.hpp"

#include <cstdint>
#include <functional>

namespace troupe::runtime::sim {

/// A simulated machine. Time stands still while tasks are ready, except for a drawn `step_time` per task, and
/// jumps to the next timer when nothing is ready. The same seed gives the same run, provided that the code
/// under test takes time, chance and threads from here only. Thread: one.
class world {
 public:
  explicit world(std::uint64_t seed, duration max_step_time = {}) :
      executor(seed), timers(clock), time_(seed, 1), max_step_time_(max_step_time) {}

  /// One event: a ready task or a timer that is due, else the next timer. False when nothing is left to
  /// happen.
  bool advance() {
    const auto due = timers.next_due();
    const bool timer_due = due && *due <= clock.now();
    if (!timer_due && executor.ready() == 0) return timers.fire_next();
    if (timer_due && (executor.ready() == 0 || time_.below(2) == 0)) return timers.fire_next();
    if (max_step_time_.count() > 0) clock.advance(duration(time_.between(0, max_step_time_.count())));
    return executor.step();
  }
  /// Advances until nothing is left, `after_each` returns false, or `max_events` have passed; events that
  /// happened.
  std::uint64_t run(std::uint64_t max_events, const std::function<bool()>& after_each = {}) {
    std::uint64_t events = 0;
    while (events < max_events && advance()) {
      ++events;
      if (after_each && !after_each()) break;
    }
    return events;
  }

  virtual_clock clock;
  seeded_context executor;
  virtual_timers timers;

 private:
  random_stream time_;
  duration max_step_time_;
};

} // namespace troupe::runtime::sim
