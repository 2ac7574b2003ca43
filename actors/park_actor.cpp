// SPDX-License-Identifier: Apache-2.0
#include "actors/park_actor.hpp"

#include <boost/asio/post.hpp>

#include <exception>
#include <utility>

namespace troupe::actors {

void park_actor::work(const park_job& job) {
  std::shared_ptr<runtime::reservation<park_protocol>> slot;
  try {
    slot = std::make_shared<runtime::reservation<park_protocol>>();
    auto copies = [job, slot, store = store_, backend = backend_, others = cast_] {
      const park_job_done answer = store->run(job, *backend);
      others->parker_busy = false;
      (void)slot->tell(park_job_done(answer)); // `closed` when the engine is gone: nobody waits
    };
    *slot = std::move(answer_slot_);
    cast_->parker_busy = true;
    boost::asio::post(worker_, std::move(copies));
  } catch (const std::exception&) { // no memory: nothing copies, and the piece must still have an end
    if (slot && !answer_slot_) answer_slot_ = std::move(*slot);
    cast_->parker_busy = false;
    core_.on(park_job_done{job.number, park_outcome::failed, {}}, now(), effects_);
  }
}

void park_actor::carry_out() {
  // By index: carrying out an effect may add more.
  for (std::size_t i = 0; i < effects_.size(); ++i) {
    park_effect effect = std::move(effects_[i]);
    std::visit(
        [this](auto& e) {
          using effect_type = std::remove_reference_t<decltype(e)>;
          if constexpr (std::is_same_v<effect_type, park_job>)
            work(e);
          else if constexpr (std::is_same_v<effect_type, park_level>)
            cast_->listener->park_changed(e);
          else if constexpr (std::is_same_v<effect_type, park_room>)
            (void)send(cast_->scheduler, std::move(e)); // without memory for it the next one tells
          else
            must_send(cast_->scheduler, std::move(e));
        },
        effect);
  }
  effects_.clear();
}

} // namespace troupe::actors
