// SPDX-License-Identifier: Apache-2.0
// Seats that should change hands, where those stand who lost theirs, and what the scheduler counts and tells.
#include "sim/simulation.hpp"

#include <algorithm>
#include <utility>

namespace troupe::sim {

const actors::scheduler_core::view* simulation::seen_before(actors::request_id id) const {
  const auto at =
      std::lower_bound(seen_.begin(), seen_.end(), id, [](const auto& v, auto x) { return v.id < x; });
  return at != seen_.end() && at->id == id ? &*at : nullptr;
}

/// In how many quanta from now a rank is due, rounded down.
std::int64_t simulation::class_of(std::int64_t rank) const {
  const std::int64_t quantum = policy_.ageing_quantum.count(), left = rank - now_.time_since_epoch().count();
  return left / quantum - (left % quantum < 0 ? 1 : 0);
}

/// One that lost its seat to another of rank `taken_for` stands before all of its priority that waited,
/// unless its own rank or that of the other one comes after theirs.
void simulation::check_place_after(
    const actors::scheduler_core::view& v, std::int64_t taken_for, const views& now_seen) {
  const std::int64_t must = std::max(seen_before(v.id)->rank, taken_for + 1);
  if (v.rank <= must) return;
  for (const auto& u : now_seen) {
    const auto* was = seen_before(u.id);
    if (u.seated || u.closing || was == nullptr || was->seated) continue;
    require(
        of(u.id).script->priority != of(v.id).script->priority ||
            std::pair(v.rank, v.id) < std::pair(u.rank, u.id),
        "lost its seat, and does not stand at the front of its priority", v.id.number);
  }
}

/// Between two steps the first in line takes a seat from one of lower class that may yield. Looked at where
/// nothing but that seat is lacking, and one tenant waits, so that it is known whose turn it is.
void simulation::check_takers(const views& now_seen) {
  constexpr std::uint32_t drawn_before_yielding = 16, most_seats_lost = 3; // as documented
  if (!step_ended_) return;
  const auto& o = policy_;
  const auto before = std::exchange(could_take_, {});
  const actors::scheduler_core::view* first = nullptr;
  for (const auto& v : now_seen) {
    if (v.seated || v.closing) continue;
    if (first != nullptr && of(v.id).script->tenant != of(first->id).script->tenant) return;
    if (first == nullptr || std::pair(v.rank, v.id) < std::pair(first->rank, first->id)) first = &v;
  }
  const bool goals =
      std::any_of(o.tpot_goals.begin(), o.tpot_goals.end(), [](duration g) { return g > duration(0); });
  if (first == nullptr || goals || scheduler_.active_seats() != most_seats()) return;
  const auto priority = of(first->id).script->priority;
  for (const auto& v : now_seen) {
    const auto& p = of(v.id);
    const auto low = p.script->priority;
    const bool rests = v.paused || v.closing || v.parking != actors::scheduler_core::parking::none;
    if (!v.seated || rests || v.held == 0 || p.fresh < drawn_before_yielding) continue;
    if (v.seats_lost >= most_seats_lost || low <= priority) continue;
    if (class_of(v.rank + (now_ - p.seated_at).count()) <= class_of(first->rank)) continue;
    const bool at_once = low >= o.low_priority && priority < o.low_priority;
    if (!at_once && now_ < first->arrival + o.ttft_goal) continue;
    const bool eldest = std::ranges::none_of(now_seen, [&](const auto& u) {
      return u.seated && of(u.id).script->priority == low &&
             std::pair(u.arrival, u.id) < std::pair(v.arrival, v.id);
    });
    const auto left = static_cast<double>(scheduler_.committed_blocks() + first->needs) -
                      static_cast<double>(v.held + v.needs);
    if (eldest || left > o.kv_high_watermark * scenario_.blocks) continue;
    could_take_ = {first->id.number, before.first == first->id.number ? before.second + 1 : 1};
    require(could_take_.second <= 3, "waits though one of lower class may yield its seat", first->id.number);
    return;
  }
}

/// What is expected of those that hold blocks is the rest of what they need, whatever they shared before.
void simulation::check_shares(const views& now_seen) {
  std::uint64_t expected = 0;
  for (const auto& v : now_seen) {
    if (v.closing) continue;
    if (v.held > 0)
      require(
          v.needs == v.whole - std::min(v.whole, v.held), "its growth is not what it needs beyond its blocks",
          v.id.number);
    if (v.seated && !v.paused) expected += v.needs;
  }
  require(expected <= scheduler_.committed_blocks(), "less is committed than seats are expected to need");
}

/// Each token of the prompt but the first is scored once, in order, and no other token.
void simulation::check_scores(const actors::prompt_scored& m) {
  auto& p = of(m.id);
  require(m.first == p.scores_told + 1, "scores out of order, or told twice", m.id.number);
  p.scores_told += static_cast<std::uint32_t>(m.scores.size());
  require(
      p.scores_told < p.script->prompt.size(), "a token was scored that is not the prompt's", m.id.number);
}

} // namespace troupe::sim
