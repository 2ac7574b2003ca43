// SPDX-License-Identifier: Apache-2.0
// The guard's shell.
#pragma once

#include "actors/cast.hpp"
#include "actors/guard_core.hpp"
#include "runtime/actor.hpp"

#include <memory>

namespace troupe::actors {

/// State: none. In: guard_protocol, one message per step at most.
class guard_actor final : public runtime::actor<guard_protocol> {
 public:
  explicit guard_actor(std::shared_ptr<cast> others) : cast_(std::move(others)) {}

  void on(check_rows&& m) {
    core_.on(std::move(m), now(), effects_);
    for (guard_effect& effect : effects_)
      std::visit([this](auto& e) { must_send(cast_->executor, std::move(e)); }, effect);
    effects_.clear();
  }

 private:
  guard_core core_;
  std::shared_ptr<cast> cast_;
  guard_effects effects_;
};

} // namespace troupe::actors
