// SPDX-License-Identifier: Apache-2.0
#include "actors/request_actor.hpp"

#include <utility>

namespace troupe::actors {

void request_actor::on_start() {
  core_.begin(now(), effects_);
  carry_out();
}

/// Between a crash and the new scheduler nobody is there to knock at: that is made up for, see
/// cast::generation.
void request_actor::knock(admission_request&& m) {
  if (m.id.generation != cast_->generation) return;
  const auto sent = send(cast_->scheduler, std::move(m));
  if (sent == runtime::enqueue_result::ok) return;
  // The scheduler's admission mail is at its bound, or it is gone: refused before the door.
  error why{errc::queue_full, "more requests knock at once than the server takes: try again", {}, 1000};
  if (sent != runtime::enqueue_result::full) why = {errc::draining, "the engine is shutting down", {}, 0};
  core_.on(refused{core_.id(), std::move(why)}, now(), effects_);
}

/// See cast_request::paused.
template<class Message>
void request_actor::tell_flow(Message&& m) {
  const auto found = cast_->requests.find(core_.id().number);
  if (found == cast_->requests.end()) return; // ended without its actor
  found->second.paused = std::is_same_v<Message, stream_paused>;
  if (!std::exchange(found->second.flow_told, true)) must_send(cast_->scheduler, std::move(m));
}

/// What was under way of its flow went to the scheduler under the earlier id, and says nothing of this one.
void request_actor::come_back(readmission&& m) {
  if (m.id.generation != cast_->generation) return; // of an earlier call: another one is on its way
  const auto found = cast_->requests.find(core_.id().number);
  if (found == cast_->requests.end()) return; // ended without its actor
  found->second.paused = core_.paused();
  found->second.flow_told = false;
  must_send(cast_->scheduler, std::move(m));
}

void request_actor::carry_out() {
  // By index: carrying out an effect may add more.
  for (std::size_t i = 0; i < effects_.size(); ++i) {
    request_effect effect = std::move(effects_[i]);
    std::visit(
        [this](auto& e) {
          using effect_type = std::remove_reference_t<decltype(e)>;
          if constexpr (std::is_same_v<effect_type, admission_request>)
            knock(std::move(e));
          else if constexpr (
              std::is_same_v<effect_type, stream_paused> || std::is_same_v<effect_type, stream_resumed>)
            tell_flow(std::move(e));
          else if constexpr (std::is_same_v<effect_type, readmission>)
            come_back(std::move(e));
          else if constexpr (scheduler_protocol::accepts<effect_type>)
            must_send(cast_->scheduler, std::move(e));
          else if constexpr (std::is_same_v<effect_type, tokenize_prompt>)
            cast_->listener->tokenize(e.id);
          else if constexpr (std::is_same_v<effect_type, emit_event>)
            cast_->listener->emit(core_.id(), std::move(e.event));
          else if constexpr (std::is_same_v<effect_type, set_alarm>)
            set(e);
          else if constexpr (std::is_same_v<effect_type, retire>) {
            cast_->listener->retired(core_.id());
            stop();
          }
        },
        effect);
  }
  effects_.clear();
}

} // namespace troupe::actors
