// SPDX-License-Identifier: Apache-2.0
// A request's shell: one actor per request, from submission to its terminal event.
#pragma once

#include "actors/cast.hpp"
#include "actors/request_core.hpp"
#include "actors/waking_actor.hpp"

#include <memory>

namespace troupe::actors {

/// State: the core. In: request_protocol; out: admission and control to the scheduler, events to the engine.
/// It ends itself after its terminal event, and outlives the scheduler: see scheduler_renewed.
class request_actor final : public waking_actor<request_protocol> {
 public:
  request_actor(request_options options, std::unique_ptr<token_text> text, std::shared_ptr<cast> others) :
      core_(std::move(options), std::move(text)), cast_(std::move(others)) {}

  template<class Message>
  requires(request_protocol::accepts<Message>) void on(Message&& m) {
    if constexpr (std::is_same_v<Message, alarm_rang>) rang();
    core_.on(std::move(m), now(), effects_);
    carry_out();
    if constexpr (std::is_same_v<Message, scheduler_renewed>) cast_->listener->came_back(core_.id());
  }

 private:
  void on_start() override;
  void requests_in_hand(std::vector<std::uint64_t>& out) const override { out.push_back(core_.id().number); }
  void carry_out();
  void knock(admission_request&& m);
  void come_back(readmission&& m);
  template<class Message>
  void tell_flow(Message&& m);

  request_core core_;
  std::shared_ptr<cast> cast_;
  request_effects effects_;
};

} // namespace troupe::actors
