// SPDX-License-Identifier: Apache-2.0
// Another's timers, with a count of those that are started and have neither fired nor been cancelled.
#pragma once

#include "runtime/timers.hpp"

#include <cstddef>
#include <memory>

namespace troupe::runtime::sim {

/// Thread: one.
class counting_timers final : public timers {
 public:
  explicit counting_timers(std::shared_ptr<timers> real) : real_(std::move(real)) {}

  timer_handle start(duration after, unique_function<void()> fire) override {
    ++*pending_;
    return real_->start(after, [count = pending_, f = std::move(fire)]() mutable {
      --*count;
      f();
    });
  }
  bool cancel(timer_handle timer) noexcept override {
    const bool cancelled = real_->cancel(timer);
    if (cancelled) --*pending_;
    return cancelled;
  }
  std::size_t pending() const noexcept { return *pending_; }

 private:
  std::shared_ptr<timers> real_;
  std::shared_ptr<std::size_t> pending_ = std::make_shared<std::size_t>(0);
};

} // namespace troupe::runtime::sim
