// SPDX-License-Identifier: Apache-2.0
#include "actors/executor_actor.hpp"

namespace troupe::actors {

void executor_actor::submit(kernels::step_input input) {
  // A std::function must be copyable, a reservation is not: it travels in a shared box.
  auto slot = std::make_shared<runtime::reservation<executor_protocol>>(std::move(answer_slot_));
  cast_->backend_busy = true;
  backend_->submit(program_, std::move(input), [slot, others = cast_](kernels::step_result result) {
    others->backend_busy = false;
    (void)slot->tell(step_computed{std::move(result)}); // `closed` when the engine is gone: nobody waits
  });
}

void executor_actor::carry_out() {
  for (executor_effect& effect : effects_)
    std::visit(
        [this](auto& e) {
          using effect_type = std::remove_reference_t<decltype(e)>;
          if constexpr (std::is_same_v<effect_type, submit_step>)
            submit(std::move(e.input));
          else if constexpr (scheduler_protocol::accepts<effect_type>)
            (void)send(cast_->scheduler, std::move(e));
          else
            (void)send(cast_->guard, std::move(e));
        },
        effect);
  effects_.clear();
}

} // namespace troupe::actors
