// SPDX-License-Identifier: Apache-2.0
// The executor's shell: hands steps to the backend and takes its answers back into the mailbox.
#pragma once

#include "actors/cast.hpp"
#include "actors/executor_core.hpp"
#include "kernels/backend.hpp"
#include "runtime/actor.hpp"

#include <memory>

namespace troupe::actors {

/// State: each open sequence's tokens and block table. In: executor_protocol. The backend's answer uses a
/// slot that is reserved for the actor's whole life. On stop: the
/// running step ends on its own; its answer finds nobody.
class executor_actor final : public runtime::actor<executor_protocol> {
 public:
  executor_actor(
      std::shared_ptr<kernels::backend> backend, std::shared_ptr<const kernels::step_program> program,
      std::shared_ptr<cast> others) :
      core_(program->kv.groups()),
      backend_(std::move(backend)), program_(std::move(program)), cast_(std::move(others)) {}

  template<class Message>
  requires(executor_protocol::accepts<Message>) void on(Message&& m) {
    if constexpr (std::is_same_v<Message, step_computed>) answer_slot_ = renew();
    core_.on(std::move(m), now(), effects_);
    carry_out();
  }

 private:
  void on_start() override {
    effects_.reserve(8); // the end of a step must not want for memory
    answer_slot_ = self().reserve(1, sizeof(step_computed));
    if (!answer_slot_) throw failure(errc::internal, "no room for the backend's answers");
  }
  void requests_in_hand(std::vector<std::uint64_t>& out) const override {
    for (const request_id& id : core_.requests_in_step()) out.push_back(id.number);
  }
  void carry_out();
  void submit(kernels::step_input input);

  executor_core core_;
  std::shared_ptr<kernels::backend> backend_;
  std::shared_ptr<const kernels::step_program> program_;
  std::shared_ptr<cast> cast_;
  executor_effects effects_;
  runtime::reservation<executor_protocol> answer_slot_; ///< empty while a step runs
};

} // namespace troupe::actors
