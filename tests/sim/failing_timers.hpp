// SPDX-License-Identifier: Apache-2.0
// Timers that cannot always be started: whoever starts one then crashes.
#pragma once

#include "runtime/timers.hpp"

#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>

namespace troupe::sim {

class failing_timers final : public runtime::timers {
 public:
  explicit failing_timers(std::shared_ptr<runtime::timers> real) : real_(std::move(real)) {}

  runtime::timer_handle start(runtime::duration after, unique_function<void()> fire) override {
    if (fails && fails()) throw std::runtime_error("no timer to be had");
    return real_->start(after, std::move(fire));
  }
  bool cancel(runtime::timer_handle timer) noexcept override { return real_->cancel(timer); }

  std::function<bool()> fails; ///< asked at every start

 private:
  std::shared_ptr<runtime::timers> real_;
};

} // namespace troupe::sim
