// SPDX-License-Identifier: Apache-2.0
// The scheduler's shell: carries the core's effects to their receivers.
#pragma once

#include "actors/cast.hpp"
#include "actors/scheduler_core.hpp"
#include "actors/waking_actor.hpp"

#include <memory>

namespace troupe::actors {

/// State: the core. In: scheduler_protocol. Mailbox: admission up to the live requests, control sized for
/// them, so that nothing of an admitted request is ever refused. On crash: the group of engine actors is made
/// anew, and requests come back (`readmission`).
class scheduler_actor final : public waking_actor<scheduler_protocol> {
 public:
  scheduler_actor(const scheduler_options& options, std::shared_ptr<cast> others) :
      core_(options), cast_(std::move(others)) {}

  template<class Message>
  requires(scheduler_protocol::accepts<Message>) void on(Message&& m) {
    if constexpr (std::is_same_v<Message, alarm_rang>) rang();
    if constexpr (std::is_same_v<Message, stream_paused> || std::is_same_v<Message, stream_resumed>)
      take_flow(m.id, std::is_same_v<Message, stream_paused>);
    else
      core_.on(std::move(m), now(), effects_);
    // A crash until here was one over the step that has ended.
    if constexpr (std::is_same_v<Message, step_done> || std::is_same_v<Message, step_failed>)
      cast_->in_step.clear();
    carry_out();
  }

 private:
  void requests_in_hand(std::vector<std::uint64_t>& out) const override {
    for (const request_id& id : core_.planned_requests()) out.push_back(id.number);
  }
  void carry_out();
  template<class Message>
  void to_request(Message&& m);
  template<class Message>
  void to_executor(Message&& m);
  void take_flow(request_id id, bool paused);

  scheduler_core core_;
  std::shared_ptr<cast> cast_;
  scheduler_effects effects_; ///< of one turn, kept for its capacity
};

} // namespace troupe::actors
