// SPDX-License-Identifier: Apache-2.0
#include "actors/scheduler_actor.hpp"

#include "runtime/base/log.hpp"

namespace troupe::actors {

template<class Message>
void scheduler_actor::to_request(Message&& m) {
  const auto found = cast_->requests.find(m.id.number);
  if (found == cast_->requests.end()) return; // retired: its terminal event is out
  const request_id id = m.id;
  if (send(found->second, std::move(m)) == runtime::enqueue_result::full) {
    // It has not come to its turn for as many messages as its mailbox holds: it cannot go on without losing
    // tokens.
    log().error("request {}: mailbox full, the request is ended", id.number);
    (void)found->second.tell(
        client_cancel{id, error{errc::internal, "the request's mailbox overflowed", {}, 0}});
  }
}

void scheduler_actor::set(const set_alarm& alarm) {
  if (alarm_ != 0) cancel(alarm_);
  alarm_ = alarm.at == time_point::max() ? 0 : after(alarm.at - now(), alarm_rang{});
}

void scheduler_actor::carry_out() {
  for (scheduler_effect& effect : effects_)
    std::visit(
        [this](auto& e) {
          using effect_type = std::remove_reference_t<decltype(e)>;
          if constexpr (request_protocol::accepts<effect_type>)
            to_request(std::move(e));
          else if constexpr (cache_protocol::accepts<effect_type>)
            (void)send(cast_->cache, std::move(e));
          else if constexpr (executor_protocol::accepts<effect_type>)
            (void)send(cast_->executor, std::move(e));
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
