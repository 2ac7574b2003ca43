// SPDX-License-Identifier: Apache-2.0
// Messages under way between the simulated actors: first in first out per sender, receiver and class,
// otherwise in any order. Of state the latest replaces the one that waits.
#pragma once

#include "actors/messages.hpp"
#include "runtime/rng.hpp"

#include <cstdint>
#include <deque>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

namespace troupe::sim {

using any_message = std::variant<
    actors::admission_request, actors::enqueue, actors::cancel, actors::finish, actors::stream_paused,
    actors::stream_resumed, actors::blocks_reserved, actors::blocks_released, actors::step_done,
    actors::step_failed, actors::model_ready, actors::drain, actors::cut, actors::alarm_rang,
    actors::admitted, actors::refused, actors::started, actors::token_ready, actors::prompt_scored,
    actors::sequence_finished, actors::prompt_ready, actors::prompt_failed, actors::client_cancel,
    actors::events_read, actors::reserve_blocks, actors::release_blocks, actors::step_finished,
    actors::publish_blocks, actors::run_step, actors::close_sequence, actors::step_computed,
    actors::row_verdicts, actors::check_rows, actors::park_blocks, actors::prefetch_parked,
    actors::restore_blocks, actors::drop_parked, actors::park_job_done, actors::sequence_parked,
    actors::sequence_restored, actors::park_room, actors::limit_batch, actors::spare_memory, actors::retune,
    actors::readmission, actors::scheduler_renewed>;

/// Participants: the fixed ones, then one per request.
using party = std::uint32_t;
enum : party { scheduler = 0, cache_manager, executor, guard, backend, client, parker, first_request };

struct delivery {
  party from = 0, to = 0;
  any_message message;
};

/// The mail of the whole troupe. Thread: one.
class network {
 public:
  explicit network(std::uint64_t seed) : choice_(seed, 7) {}

  template<class Protocol, class Message>
  void push(party from, party to, Message&& m) {
    constexpr auto kind = Protocol::template kind_of<std::remove_cvref_t<Message>>;
    const auto [at, fresh] = index_.try_emplace(key_of(from, to, kind), channels_.size());
    if (fresh) channels_.emplace_back();
    auto& channel = channels_[at->second];
    if (kind == runtime::message_class::state)
      for (delivery& waiting : channel)
        if (auto* old = std::get_if<std::remove_cvref_t<Message>>(&waiting.message)) {
          *old = std::forward<Message>(m);
          return;
        }
    if (channel.empty()) ready_.push_back(at->second);
    channel.push_back({from, to, any_message(std::forward<Message>(m))});
    ++sent_;
  }

  bool empty() const noexcept { return ready_.empty(); }
  /// What is on its way to those for whom `gone(party)` holds is lost.
  template<class Gone>
  void lose(Gone&& gone) {
    std::erase_if(ready_, [&](std::size_t channel) {
      const bool lost = gone(channels_[channel].front().to);
      if (lost) channels_[channel].clear();
      return lost;
    });
  }
  /// Whether control from one to the other is under way.
  bool waits(party from, party to) const {
    const auto at = index_.find(key_of(from, to, runtime::message_class::control));
    return at != index_.end() && !channels_[at->second].empty();
  }
  std::uint64_t sent() const noexcept { return sent_; }
  /// Takes the oldest message of a channel drawn at random; mail to `lazy` is mostly left for later.
  delivery take(party lazy) {
    auto at = choice_.below(ready_.size());
    if (channels_[ready_[at]].front().to == lazy && choice_.below(8) != 0) at = choice_.below(ready_.size());
    auto& channel = channels_[ready_[at]];
    delivery next = std::move(channel.front());
    channel.pop_front();
    if (channel.empty()) {
      ready_[at] = ready_.back();
      ready_.pop_back();
    }
    return next;
  }

 private:
  static std::uint64_t key_of(party from, party to, runtime::message_class kind) noexcept {
    return std::uint64_t{from} << 36 | std::uint64_t{to} << 4 | static_cast<std::uint64_t>(kind);
  }

  runtime::random_stream choice_;
  std::unordered_map<std::uint64_t, std::size_t> index_; // looked up, never walked
  std::vector<std::deque<delivery>> channels_;
  std::vector<std::size_t> ready_; // channels that hold mail
  std::uint64_t sent_ = 0;
};

} // namespace troupe::sim
