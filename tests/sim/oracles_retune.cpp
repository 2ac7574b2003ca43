// SPDX-License-Identifier: Apache-2.0
// The policy that holds at each moment: what a change of settings and a smaller batch do to those in hand.
#include "sim/simulation.hpp"

#include <algorithm>
#include <tuple>

namespace troupe::sim {

/// Before the scheduler hears of it: from now on the oracles follow the new settings.
void simulation::note_retune(const actors::retune& m) {
  const auto& to = *m.options;
  const bool was_limited = policy_.tenants.requests_per_second > 0;
  for (auto& [name, t] : tenants_) {
    const double most = to.tenants.request_burst;
    t.requests = filled(t, t.requests);
    t.at_least = filled(t, t.at_least);
    // An account without requests and with a full bucket may have been closed; then it begins anew, full.
    const bool closed = t.live == 0 && t.requests >= policy_.tenants.request_burst;
    t.requests = was_limited && !closed ? std::min(t.requests, most) : most;
    t.at_least = was_limited ? std::min(t.at_least, most) : most;
    t.at = now_;
  }
  policy_ = to;
  full_.move(to.kv_high_watermark, actors::reopening_level(to.kv_high_watermark, to.hysteresis));
  shed_.move(to.kv_low_watermark, actors::reopening_level(to.kv_low_watermark, to.hysteresis));
  queue_left_ = scheduler_.queued();
  yields_then_ = scheduler_.stats().seats_yielded;
}

void simulation::note_batch_limit(const actors::limit_batch& m) {
  batch_limit_ = std::max(1U, m.sequences);
}

/// Those that were sent back from their seats had places of their own, and those that were let in under other
/// bounds stay; but nobody comes to them.
void simulation::check_queue_bounds(std::uint64_t waiting, bool admitted) {
  const auto yielded = scheduler_.stats().seats_yielded;
  const auto came_back = scheduler_.stats().readmitted;
  require(
      waiting <= std::max(policy_.max_queue + yielded, queue_left_ + yielded - yields_then_) + came_back,
      "more requests in the queue than max_queue");
  if (!admitted || yielded != door_yielded_) return; // whoever yields its seat joins the queue, full or not
  require(!door_queue_full_ || waiting <= door_queued_, "admitted into a full queue");
  require(
      !door_bytes_full_ || scheduler_.queued_bytes() <= std::max(policy_.max_queue_bytes, door_bytes_),
      "admitted into a queue without room for its bytes");
}

/// More seats than memory leaves are taken for so long only; then those of the worst rank are given up.
/// Nobody loses a seat otherwise, but to one of higher class.
void simulation::check_batch(const views& now_seen) {
  const bool in_time = above_since_ == time_point::max() || now_ < above_since_ + policy_.batch_patience;
  const auto loads = [](const auto& v) { return v.parking == actors::scheduler_core::parking::loading; };
  std::uint32_t active = 0;
  bool may_give = false;
  for (const auto& v : now_seen) {
    active += v.seated && !v.paused;
    may_give = may_give || (v.seated && !v.paused && !loads(v));
  }
  require(active == scheduler_.active_seats(), "seats were miscounted");
  for (const auto& v : now_seen) {
    const auto* was = seen_before(v.id);
    if (was == nullptr || !was->seated || v.seated || v.closing || v.seats_lost != was->seats_lost) continue;
    require(!in_time && !step_ran_, "gave its seat up for nothing", v.id.number);
    require(v.rank == was->rank, "its rank changed with a seat that nobody took", v.id.number);
    for (const auto& u : now_seen) {
      const auto* sat = seen_before(u.id);
      if (sat == nullptr || !sat->seated || sat->paused || !u.seated || u.paused) continue;
      if (!loads(*sat) && !loads(u))
        require(
            std::tuple(of(u.id).script->priority, u.rank, u.id) <
                std::tuple(of(v.id).script->priority, v.rank, v.id),
            "gave its seat up before one of lower priority or worse rank", v.id.number);
    }
  }
  if (active <= batch_limit_) {
    above_since_ = time_point::max();
    return;
  }
  above_since_ = std::min(above_since_, now_);
  require(
      !step_ended_ || !may_give || now_ < above_since_ + policy_.batch_patience,
      "more seats are taken than memory leaves, for too long");
}

} // namespace troupe::sim
