// SPDX-License-Identifier: Apache-2.0
// The parker's shell: hands pieces of copying to a worker and takes its answers back into the mailbox.
#pragma once

#include "actors/cast.hpp"
#include "actors/park_core.hpp"
#include "actors/park_store.hpp"
#include "runtime/actor.hpp"

#include <boost/asio/any_io_executor.hpp>

#include <memory>

namespace troupe::actors {

/// State: which parked blocks lie where. In: park_protocol. The worker's answer uses a slot that is reserved
/// for the actor's whole life. On stop: the piece under way ends on its own; its answer finds nobody.
class park_actor final : public runtime::actor<park_protocol> {
 public:
  /// `worker` is not the engine's executor: its jobs wait for disks.
  park_actor(
      std::shared_ptr<park_store> store, std::shared_ptr<kernels::backend> backend,
      boost::asio::any_io_executor worker, std::shared_ptr<cast> others) :
      core_(store->limits()),
      store_(std::move(store)), backend_(std::move(backend)), worker_(std::move(worker)),
      cast_(std::move(others)) {}

  template<class Message>
  requires(park_protocol::accepts<Message>) void on(Message&& m) {
    if constexpr (std::is_same_v<Message, park_job_done>) answer_slot_ = renew();
    core_.on(std::move(m), now(), effects_);
    carry_out();
  }

 private:
  void on_start() override {
    effects_.reserve(16); // an answer must not want for memory
    answer_slot_ = self().reserve(1, sizeof(park_job_done));
    if (!answer_slot_) throw failure(errc::internal, "no room for the worker's answers");
    cast_->listener->park_changed(core_.level());
  }
  void carry_out();
  void work(const park_job& job);

  park_core core_;
  std::shared_ptr<park_store> store_;
  std::shared_ptr<kernels::backend> backend_;
  boost::asio::any_io_executor worker_;
  std::shared_ptr<cast> cast_;
  park_effects effects_;
  runtime::reservation<park_protocol> answer_slot_; ///< empty while a piece is copied
};

} // namespace troupe::actors
