// SPDX-License-Identifier: Apache-2.0
// Timers in virtual time: they fire only when the simulation says so, ties in the order of their start.
#pragma once

#include "runtime/timers.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace troupe::runtime::sim {

/// Thread: one.
class virtual_timers final : public timers {
 public:
  explicit virtual_timers(virtual_clock& clock) noexcept : clock_(clock) {}

  timer_handle start(duration after, unique_function<void()> fire) override {
    const duration late = lateness ? std::max(lateness(), duration::zero()) : duration::zero();
    const time_point due = clock_.now() + std::max(after, duration::zero()) + late;
    const std::uint64_t id = ++last_id_;
    due_of_.emplace(id, due);
    pending_.emplace(std::pair(due, id), std::move(fire));
    return {id};
  }
  bool cancel(timer_handle timer) noexcept override {
    const auto known = due_of_.find(timer.id);
    if (known == due_of_.end()) return false;
    const auto dropped =
        pending_.extract({known->second, timer.id}); // destroyed last: captures may call back
    due_of_.erase(known);
    return true;
  }

  std::optional<time_point> next_due() const {
    if (pending_.empty()) return std::nullopt;
    return pending_.begin()->first.first;
  }
  /// Moves the clock to the earliest due time, unless it is there already, and calls that timer; false when
  /// none waits.
  bool fire_next() {
    if (pending_.empty()) return false;
    auto node = pending_.extract(pending_.begin());
    due_of_.erase(node.key().second);
    clock_.advance_to(node.key().first);
    node.mapped()();
    return true;
  }
  std::size_t pending() const noexcept { return pending_.size(); }

  /// Fault point: how much later than asked the timer being started will fire.
  unique_function<duration()> lateness;

 private:
  virtual_clock& clock_;
  std::map<std::pair<time_point, std::uint64_t>, unique_function<void()>> pending_;
  std::map<std::uint64_t, time_point> due_of_;
  std::uint64_t last_id_ = 0;
};

} // namespace troupe::runtime::sim
