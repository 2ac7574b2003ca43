// SPDX-License-Identifier: Apache-2.0
// Who takes a seat, who loses one, and who gives blocks up.
#include "sim/simulation.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe::sim {

/// Who takes a seat past one of better rank: tenants take turns at the priority of the best rank in line;
/// small ones pass one that waits for memory, until it has waited a quantum longer than its rank says. And
/// whoever could take a seat has one.
void simulation::check_seating(const views& now_seen) {
  const auto& o = policy_;
  const auto quantum = o.ageing_quantum.count();
  const auto waits = [](const auto& v) { return !v.seated && !v.closing; };
  const auto takes = [&](const auto& v) {
    const auto* was = seen_before(v.id);
    return v.seated && (was == nullptr || !was->seated || was->seats_lost != v.seats_lost);
  };
  const auto takers = static_cast<std::size_t>(std::ranges::count_if(now_seen, takes));
  if (takers == 0) return check_no_idle_seat(now_seen);
  // Those who stood in line when the seats were given, in order of rank; who gave one up joined it
  // afterwards.
  std::vector<const actors::scheduler_core::view*> line;
  for (const auto& v : now_seen) {
    const auto* was = seen_before(v.id);
    if (takes(v) || (waits(v) && (was == nullptr || !was->seated))) line.push_back(&v);
  }
  std::ranges::sort(line, [](const auto* a, const auto* b) {
    return std::pair(a->rank, a->id) < std::pair(b->rank, b->id);
  });
  for (const auto& v : now_seen) {
    if (!takes(v)) continue;
    of(v.id).seated_at = now_;
    const auto& script = *of(v.id).script;
    // The large one may be the newcomer that a full queue refused then.
    const bool beside_a_large_one =
        refused_one_ || std::any_of(now_seen.begin(), now_seen.end(), [&](const auto& w) {
          return waits(w) && v.whole <= w.whole / 4;
        });
    for (const auto* w : line) {
      if (!waits(*w) || std::pair(v.rank, v.id) < std::pair(w->rank, w->id)) continue;
      // One of so many was the best when its turn came, and none worse than the one that is passed.
      const auto end = std::find(line.begin(), line.end(), w) + 1;
      const bool turns =
          script.tenant != of(w->id).script->tenant &&
          std::any_of(line.begin(), std::min(end, line.begin() + takers), [&](const auto* best) {
            return of(best->id).script->priority == script.priority;
          });
      const bool small = beside_a_large_one && now_.time_since_epoch().count() < w->rank + quantum;
      require(turns || small, "seated past a waiting request of better rank", v.id.number);
    }
    require(scheduler_.active_seats() <= most_seats(), "more seats than there may be", v.id.number);
    const auto seats =
        std::count_if(now_seen.begin(), now_seen.end(), [](const auto& w) { return w.seated; });
    // What others shared may have gone in the same turn.
    double grown = 0;
    for (const auto& w : now_seen)
      if (const auto* had = seen_before(w.id); w.seated && had != nullptr && w.needs > had->needs)
        grown += (w.needs - had->needs) / static_cast<double>(scenario_.blocks);
    require(
        seats == 1 || scheduler_.kv_use() - grown <= o.kv_high_watermark + 1e-9,
        "seated although the KV forecast does not fit", v.id.number);
  }
  check_no_idle_seat(now_seen);
  if (scenario_.two_floods) check_fairness(now_seen);
}

/// While two tenants wait, they are served alike in tokens, whatever the number and the length of their
/// requests: within a tenth, and what a turn and the requests under way are worth.
void simulation::check_fairness(const views& now_seen) {
  std::map<std::string, std::uint64_t> waiting;
  for (const auto& v : now_seen) waiting[of(v.id).script->tenant] += !v.seated && !v.closing;
  if (submitted_ < participants_.size() || fairness_over_) return;
  for (const auto& v : now_seen) {
    const auto at =
        std::lower_bound(seen_.begin(), seen_.end(), v.id, [](const auto& x, auto id) { return x.id < id; });
    const bool sat = at != seen_.end() && at->id == v.id && at->seated;
    const auto& p = of(v.id);
    if (v.seated && !sat)
      tenants_[p.script->tenant].served += p.script->prompt.size() + p.expected.tokens.size();
  }
  if (waiting["many"] > 0 && waiting["few"] > 0) return;
  fairness_over_ = true;
  const auto many = static_cast<double>(tenants_["many"].served),
             few = static_cast<double>(tenants_["few"].served);
  const double under_way =
      2.0 * policy_.max_batch * scenario_.limit() + actors::waiting_line::tokens_per_turn;
  require(
      std::abs(many - few) <= 0.1 * (many + few) + under_way,
      "tenants were served " + std::to_string(many) + " and " + std::to_string(few) + " tokens");
}

/// Whoever could take a seat has one, a few turns after the room for it came at the latest: a plan may change
/// what others are expected to need after the seats were looked at.
void simulation::check_no_idle_seat(const views& now_seen) {
  const auto& o = policy_;
  const actors::scheduler_core::view* first = nullptr;
  bool one_tenant = true, alone = true;
  for (const auto& v : now_seen) {
    alone = alone && !v.seated;
    if (v.seated || v.closing) continue;
    // With one tenant it is known whose turn it is.
    one_tenant = one_tenant && (first == nullptr || of(v.id).script->tenant == of(first->id).script->tenant);
    if (first == nullptr || std::pair(v.rank, v.id) < std::pair(first->rank, first->id)) first = &v;
  }
  const auto before = std::exchange(could_be_seated_, {});
  if (first == nullptr || !one_tenant || !open_ || scheduler_.active_seats() >= most_seats()) return;
  const bool fits = static_cast<double>(scheduler_.committed_blocks() + first->needs) <=
                    o.kv_high_watermark * scenario_.blocks;
  if (!fits && !alone) return;
  const bool goals =
      std::any_of(o.tpot_goals.begin(), o.tpot_goals.end(), [](duration g) { return g > duration(0); });
  if (goals && !alone) return; // which may be why it waits
  could_be_seated_ = {first->id.number, before.first == first->id.number ? before.second + 1 : 1};
  require(could_be_seated_.second <= 4, "the first in line waits although a seat is free", first->id.number);
}

/// Seats change hands only downwards: from one whose class, counting only its waiting, is lower, not the
/// oldest of its priority; and not for ever. The one that yields stands at the front of its priority.
void simulation::check_yielding(const views& now_seen) {
  const auto& o = policy_;
  for (const auto& v : now_seen) {
    const auto* was = seen_before(v.id);
    if (was == nullptr || was->seats_lost == v.seats_lost) continue;
    require(
        v.seats_lost == was->seats_lost + 1 && v.seats_lost <= 3, "loses its seat again and again",
        v.id.number);
    require(!step_ran_, "a seat was taken in a running step", v.id.number);
    const auto priority = of(v.id).script->priority;
    // It may have had its seat in this turn only.
    const auto standing = was->rank + (was->seated ? (now_ - of(v.id).seated_at).count() : 0);
    std::int64_t taken_for = 0;
    bool for_a_better = false;
    for (const auto& w : now_seen) {
      const auto* x = seen_before(w.id);
      const bool took = w.seated && (x == nullptr || !x->seated);
      const bool at_once = priority >= o.low_priority && of(w.id).script->priority < o.low_priority;
      if (!took || of(w.id).script->priority >= priority || w.rank >= v.rank ||
          class_of(standing) <= class_of(w.rank) || (!at_once && now_ < w.arrival + o.ttft_goal))
        continue;
      taken_for = for_a_better ? std::max(taken_for, w.rank) : w.rank;
      for_a_better = true;
    }
    require(for_a_better, "lost its seat to nobody of higher class", v.id.number);
    check_place_after(v, taken_for, now_seen);
    const auto elder_sits = [&](const auto& w) {
      return w.seated && of(w.id).script->priority == priority &&
             std::pair(w.arrival, w.id) < std::pair(v.arrival, v.id);
    };
    const bool elder_left = std::any_of(seen_.begin(), seen_.end(), elder_sits) ||
                            std::any_of(now_seen.begin(), now_seen.end(), elder_sits);
    require(elder_left, "the oldest of its priority lost its seat", v.id.number);
  }
}

/// A shortage takes from the paused first, and from others only for one who is their elder.
void simulation::check_preemptions(const views& now_seen, std::string_view message) {
  bool took_active = false, spares_paused = false;
  for (const auto& v : now_seen) {
    const auto was =
        std::lower_bound(seen_.begin(), seen_.end(), v.id, [](const auto& s, auto x) { return s.id < x; });
    if (was == seen_.end() || was->id != v.id || v.closing) continue;
    const bool loads = was->parking == actors::scheduler_core::parking::loading;
    if (v.held > 0 && v.paused && was->paused && was->held > 0 && !loads) spares_paused = true;
    if (v.held > 0 || was->held == 0) continue;
    require(
        std::find(running_requests_.begin(), running_requests_.end(), v.id) == running_requests_.end(),
        "preempted in a running step", v.id.number);
    if (message != "blocks_reserved") continue;
    if (v.paused) continue;
    took_active = true;
    const bool for_an_elder = std::any_of(now_seen.begin(), now_seen.end(), [&](const auto& w) {
      return std::pair(w.rank, w.id) < std::pair(v.rank, v.id) &&
             std::find(short_of_blocks_.begin(), short_of_blocks_.end(), w.id) != short_of_blocks_.end();
    });
    require(for_an_elder, "preempted, but not for an elder", v.id.number);
  }
  require(
      !(took_active && spares_paused), "an active sequence was preempted while a paused one kept its blocks");
}

} // namespace troupe::sim
