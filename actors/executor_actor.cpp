// SPDX-License-Identifier: Apache-2.0
#include "actors/executor_actor.hpp"

#include <exception>
#include <functional>
#include <utility>

namespace troupe::actors {

void executor_actor::submit(kernels::step_input input) {
  const auto step_seq = input.step_seq;
  // A std::function must be copyable, a reservation is not: it travels in a shared box.
  std::shared_ptr<runtime::reservation<executor_protocol>> slot;
  try {
    slot = std::make_shared<runtime::reservation<executor_protocol>>();
    std::function<void(kernels::step_result)> done = [slot, others = cast_](kernels::step_result result) {
      others->backend_busy = false;
      (void)slot->tell(step_computed{std::move(result)}); // `closed` when the engine is gone: nobody waits
    };
    *slot = std::move(answer_slot_);
    cast_->backend_busy = true;
    backend_->submit(program_, std::move(input), std::move(done));
  } catch (const std::exception&) {
    // No memory, or a backend that breaks its contract: nothing computes, and the step must still have an
    // end.
    if (slot && !answer_slot_) answer_slot_ = std::move(*slot);
    cast_->backend_busy = false;
    step_computed refused;
    refused.result.step_seq = step_seq;
    refused.result.failed = true;
    refused.result.failure = "not submitted"; // short: needs no memory
    core_.on(std::move(refused), now(), effects_);
  } catch (...) { // nothing that a step's failure stands for: the actor ends, and no step runs
    cast_->backend_busy = false;
    throw;
  }
}

void executor_actor::carry_out() {
  // By index: carrying out an effect may add more.
  for (std::size_t i = 0; i < effects_.size(); ++i) {
    executor_effect effect = std::move(effects_[i]);
    std::visit(
        [this](auto& e) {
          using effect_type = std::remove_reference_t<decltype(e)>;
          if constexpr (std::is_same_v<effect_type, submit_step>)
            submit(std::move(e.input));
          else if constexpr (scheduler_protocol::accepts<effect_type>)
            must_send(cast_->scheduler, std::move(e));
          else
            must_send(cast_->guard, std::move(e));
        },
        effect);
  }
  effects_.clear();
}

} // namespace troupe::actors
