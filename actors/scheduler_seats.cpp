// SPDX-License-Identifier: Apache-2.0
// Seats: a place in the batch with a share of the KV cache, whose turn it is, and who gives one up.
#include "actors/scheduler_core.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace troupe::actors {

scheduler_core::room scheduler_core::taken() const noexcept {
  room r{active_seats_, committed_blocks(), 0};
  if (strictest_goal(nullptr) > duration::zero())
    for (const auto* s : seated_)
      if (!s->paused) r.positions += s->known();
  return r;
}

/// What a seat for `s` beside those `taken` lacks.
scheduler_core::lack scheduler_core::lack_of(const sequence& s, const room& taken) const noexcept {
  if (taken.seats >= most_seats()) return lack::seat;
  if (seated_.empty()) return lack::nothing; // whatever fits the pool at all may run alone
  const std::uint64_t need = s.predicted - std::min(s.predicted, s.shared);
  if (static_cast<double>(taken.blocks + need) > options_.kv_high_watermark * model_.kv_blocks)
    return lack::memory;
  if (const duration goal = strictest_goal(&s); goal > duration::zero() && taken.seats > 0) {
    const step_shape all{taken.seats + 1, 0, taken.positions + s.known()};
    if (step_times_.predict(all) > goal) return lack::compute;
  }
  return lack::nothing;
}

/// Of those that are seated, and of `with`.
duration scheduler_core::strictest_goal(const sequence* with) const noexcept {
  duration goal = with == nullptr ? duration::zero() : goal_of(*with);
  for (const auto* s : seated_) {
    const duration g = s->paused ? duration::zero() : goal_of(*s);
    if (g > duration::zero() && (goal == duration::zero() || g < goal)) goal = g;
  }
  return goal;
}

/// Of the rows that the goal leaves room for, those that all who are admitted want: one each.
double scheduler_core::compute_use() const noexcept {
  const duration goal = strictest_goal(nullptr);
  const std::uint32_t rows = active_seats_ + static_cast<std::uint32_t>(line_.size());
  if (goal == duration::zero() || !step_times_.knows() || rows == 0) return 0;
  std::uint64_t positions = 0;
  for (const auto* s : seated_)
    if (!s->paused) positions += s->known();
  const step_shape none{};
  const step_shape all{rows, 0, positions * rows / std::max(1U, active_seats_)};
  const double base = std::chrono::duration<double>(step_times_.predict(none)).count();
  const double each = std::chrono::duration<double>(step_times_.predict(all)).count() - base;
  const double left = std::chrono::duration<double>(goal).count() - base;
  if (each <= 0) return 0;
  return left <= each / rows ? rows : each / left; // one at least is served, however slowly
}

/// Tokens of the request that were not computed yet.
std::int64_t scheduler_core::seat_cost_of(request_id id) const noexcept {
  const sequence& s = sequences_.find(id)->second;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(s.foreseen_tokens) - s.high_water);
}

void scheduler_core::join_line(sequence& s) {
  const queue_key key{s.rank, s.id, s.priority};
  if (s.priority >= options_.low_priority) low_line_.insert(key);
  try {
    line_.join(*s.tenant, key);
  } catch (...) {
    low_line_.erase(key);
    throw;
  }
  s.bytes = std::uint64_t{s.prompt_tokens} * sizeof(std::int32_t) + s.tenant->name.size();
  queued_bytes_ += s.bytes;
}

void scheduler_core::leave_line(sequence& s) noexcept {
  if (s.tenant != nullptr) line_.leave(*s.tenant, {s.rank, s.id});
  low_line_.erase({s.rank, s.id});
  queued_bytes_ -= std::exchange(s.bytes, 0);
}

/// Keeps `growth_` true: call it after anything that a sequence's share depends on.
void scheduler_core::recount(sequence& s) {
  if (groups_.forgets()) foresee(s);
  const bool expects_more = s.seated && !s.paused && s.phase != phase::closing;
  const std::uint32_t there = s.held + s.shared;
  const std::uint32_t share = expects_more && s.predicted > there ? s.predicted - there : 0;
  growth_ += share;
  growth_ -= s.counted;
  s.counted = share;
}

/// Of one that has left the line.
void scheduler_core::take_seat(sequence& s, time_point now) {
  const auto at = std::lower_bound(
      seated_.begin(), seated_.end(), s.id, [](const sequence* x, request_id id) { return x->id < id; });
  seated_.insert(at, &s);
  low_line_.erase({s.rank, s.id});
  queued_bytes_ -= std::exchange(s.bytes, 0);
  s.seated = true;
  s.seated_at = now;
  s.seat_cost = seat_cost_of(s.id);
  s.seated_from = s.high_water;
  if (!s.paused) ++active_seats_;
  recount(s);
}

void scheduler_core::leave_seat(sequence& s) {
  if (!s.seated) return;
  seated_.erase(std::lower_bound(
      seated_.begin(), seated_.end(), s.id, [](const sequence* x, request_id id) { return x->id < id; }));
  s.seated = false;
  if (!s.paused) --active_seats_;
  line_.give_back(*s.tenant, s.seat_cost - (s.high_water - s.seated_from));
  recount(s);
}

/// The next in turn first, and none past it for long: a large request is not starved by small ones.
void scheduler_core::seat_from_queue(turn& t) {
  while (!line_.empty()) {
    const auto chosen = line_.next([this](request_id id) { return seat_cost_of(id); });
    sequence& head = *find(chosen.key.id);
    const lack lacking = lack_of(head, taken());
    if (lacking == lack::nothing) {
      line_.take(chosen, seat_cost_of(head.id));
      take_seat(head, t.now);
    } else if (!take_from_lower(chosen, head, t) && !(lacking == lack::memory && backfill(head, t))) {
      prefetch(head, t);
      return;
    }
  }
}

void scheduler_core::seat_out_of_turn(sequence& s, turn& t) {
  s.tenant->deficit -= seat_cost_of(s.id);
  line_.leave(*s.tenant, {s.rank, s.id});
  take_seat(s, t.now);
}

/// Seats one of the next in line that needs no more than a quarter of what `head` waits for, unless the best
/// rank in line has waited a quantum longer than it says.
bool scheduler_core::backfill(const sequence& head, turn& t) {
  constexpr int most_looked_at = 16;
  const std::int64_t best = line_.by_rank().begin()->order;
  if (t.now.time_since_epoch().count() >= best + options_.ageing_quantum.count()) return false;
  int looked_at = 0;
  const room now_taken = taken();
  for (const queue_key& key : line_.by_rank()) {
    sequence& s = *find(key.id);
    if (++looked_at > most_looked_at) return false;
    if (s.predicted > head.predicted / 4 || lack_of(s, now_taken) != lack::nothing) continue;
    seat_out_of_turn(s, t);
    ++stats_.backfilled;
    return true;
  }
  return false;
}

/// The rank that it would wait with if the time on its seat did not count.
std::int64_t scheduler_core::standing(const sequence& s, time_point now) const noexcept {
  return s.rank + (now - s.seated_at).count();
}

bool scheduler_core::may_yield(const sequence& s, const sequence& needy, time_point now) const noexcept {
  const bool begun = s.phase == phase::running;
  if (s.parking == parking::loading) return false;
  if (s.paused || s.in_step || s.demand_pending || (!begun && s.phase != phase::ready)) return false;
  if (s.seats_lost >= most_seats_lost || (begun && s.fresh_tokens < least_tokens_seated)) return false;
  if (s.priority <= needy.priority) return false;
  if (line_.class_of(standing(s, now), now) <= line_.class_of(needy.rank, now)) return false;
  const bool at_once = s.priority >= options_.low_priority && needy.priority < options_.low_priority;
  return at_once || now - needy.arrival >= options_.ttft_goal;
}

/// Makes room for `needy`, whose turn it is, at the cost of seated ones of lower class: those of the lowest
/// class first, of those the least computed. False, and nothing is changed, when that would not be enough.
bool scheduler_core::take_from_lower(const waiting_line::choice& chosen, sequence& needy, turn& t) {
  if (step_ != step_state::idle) return false; // between two steps
  victims_.clear();
  for (auto* s : seated_) {
    if (!may_yield(*s, needy, t.now)) continue;
    const bool eldest = std::none_of(seated_.begin(), seated_.end(), [&](const sequence* x) {
      return x->priority == s->priority && std::pair(x->arrival, x->id) < std::pair(s->arrival, s->id);
    });
    if (!eldest) victims_.push_back(s);
  }
  std::sort(victims_.begin(), victims_.end(), [&](const auto* a, const auto* b) {
    const auto ca = line_.class_of(standing(*a, t.now), t.now),
               cb = line_.class_of(standing(*b, t.now), t.now);
    if (ca != cb) return ca > cb;
    if (a->computed != b->computed) return a->computed < b->computed;
    return elder(*b, *a);
  });
  room left = taken();
  std::size_t count = 0;
  while (lack_of(needy, left) != lack::nothing) {
    if (count == victims_.size()) return false;
    const sequence& v = *victims_[count++];
    --left.seats;
    left.blocks -= v.held + v.counted;
    left.positions -= std::min<std::uint64_t>(left.positions, v.known());
  }
  victims_.resize(count);
  line_.turn_to(chosen);
  bool any = false;
  for (auto* v : victims_) any = yield_seat(*v, needy, t) || any;
  // Not one whose tenant was given tokens back for a seat that it yielded, in its place.
  if (lack_of(needy, taken()) == lack::nothing) seat_out_of_turn(needy, t);
  return any;
}

/// Back to the front of its priority, behind the one that takes its seat.
bool scheduler_core::yield_seat(sequence& s, const sequence& to, turn& t) {
  std::int64_t rank = standing(s, t.now);
  for (const queue_key& key : line_.by_rank())
    if (find(key.id)->priority == s.priority) {
      rank = std::min(rank, key.order - 1);
      break;
    }
  if (!give_seat_up(s, std::max({rank, s.rank, to.rank + 1}), t)) return false;
  ++s.seats_lost;
  return true;
}

/// Back into the line, with that rank; what it holds is given back. False, and nothing is changed, when there
/// is no memory for its place there.
bool scheduler_core::give_seat_up(sequence& s, std::int64_t rank, turn& t) {
  const std::int64_t kept = std::exchange(s.rank, rank);
  try {
    join_line(s);
  } catch (const std::bad_alloc&) {
    s.rank = kept;
    return false;
  }
  leave_seat(s);
  if (s.phase == phase::running) {
    ++stats_.preemptions;
    preempt(s, t);
  }
  ++stats_.seats_yielded;
  return true;
}

/// While memory is short the batch may stand above its limit for `batch_patience`. Then seats are taken,
/// those of the lowest priority first, of these the youngest: none of them could take one of those that are
/// left. Whoever loses one waits with its own rank.
void scheduler_core::shrink_batch(turn& t) {
  if (active_seats_ <= seat_limit_ || step_ != step_state::idle) return;
  if (above_since_ > t.now || t.now - above_since_ < options_.batch_patience) return;
  victims_.clear();
  for (auto* s : seated_)
    if (!s->paused && s->parking != parking::loading) victims_.push_back(s);
  std::sort(victims_.begin(), victims_.end(), [](const auto* a, const auto* b) {
    return a->priority != b->priority ? a->priority > b->priority : elder(*b, *a);
  });
  for (auto* v : victims_) {
    if (active_seats_ <= seat_limit_) return;
    give_seat_up(*v, v->rank, t);
  }
}

void scheduler_core::on(stream_paused&& m, time_point now, scheduler_effects& out) {
  turn t{now, out};
  set_paused(m.id, true, t);
}

void scheduler_core::on(stream_resumed&& m, time_point now, scheduler_effects& out) {
  turn t{now, out};
  set_paused(m.id, false, t);
}

void scheduler_core::set_paused(request_id id, bool paused, turn& t) {
  auto* s = find(id);
  if (s == nullptr || s->phase == phase::closing || s->paused == paused) return;
  s->paused = paused;
  if (s->seated) active_seats_ = paused ? active_seats_ - 1 : active_seats_ + 1;
  recount(*s);
  pump(t); // a seat for another, or work again
}

} // namespace troupe::actors
