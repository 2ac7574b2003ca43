// SPDX-License-Identifier: Apache-2.0
#include "actors/scheduler_actor.hpp"

#include <utility>

namespace troupe::actors {

/// Hands the core the latest of a request's flow, see cast_request::paused.
void scheduler_actor::take_flow(request_id id, bool paused) {
  if (const auto found = cast_->requests.find(id.number); found != cast_->requests.end()) {
    found->second.flow_told = false;
    paused = found->second.paused;
  }
  if (paused)
    core_.on(stream_paused{id}, now(), effects_);
  else
    core_.on(stream_resumed{id}, now(), effects_);
}

/// A request that cannot be told goes on without a token or without its end: it ends here, and not through
/// the mailbox that refused.
template<class Message>
void scheduler_actor::to_request(Message&& m) {
  const auto found = cast_->requests.find(m.id.number);
  if (found == cast_->requests.end()) return; // retired: its terminal event is out
  const request_id id = m.id;
  if (send(found->second.actor, std::move(m)) == runtime::enqueue_result::full)
    cast_->listener->unreachable(id);
}

template<class Message>
void scheduler_actor::to_executor(Message&& m) {
  if constexpr (std::is_same_v<std::remove_cvref_t<Message>, run_step>)
    for (const plan_entry& e : m.entries) cast_->in_step.push_back(e.id.number);
  must_send(cast_->executor, std::move(m));
}

void scheduler_actor::carry_out() {
  for (scheduler_effect& effect : effects_)
    std::visit(
        [this](auto& e) {
          using effect_type = std::remove_reference_t<decltype(e)>;
          if constexpr (request_protocol::accepts<effect_type>)
            to_request(std::move(e));
          else if constexpr (cache_protocol::accepts<effect_type>)
            must_send(cast_->cache, std::move(e));
          else if constexpr (executor_protocol::accepts<effect_type>)
            to_executor(std::move(e));
          else if constexpr (park_protocol::accepts<effect_type>)
            must_send(cast_->parker, std::move(e));
          else if constexpr (std::is_same_v<effect_type, set_alarm>)
            set(e);
          else if constexpr (std::is_same_v<effect_type, drained>)
            cast_->listener->drained();
        },
        effect);
  effects_.clear();
  cast_->listener->scheduler_changed(core_.stats());
}

} // namespace troupe::actors
