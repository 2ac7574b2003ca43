// SPDX-License-Identifier: Apache-2.0
// The bounds, from outside: ranks and ages are reckoned here again.
#include "sim/load_watch.hpp"

#include <algorithm>
#include <utility>

namespace troupe::sim {
namespace {

constexpr std::size_t most_complaints = 10;
constexpr std::uint32_t tokens_before_yielding = 16, most_seats_lost = 3; // as documented

std::string seconds_of(duration d) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(d).count();
  return std::to_string(ms / 1000) + "." + std::to_string(1000 + ms % 1000).substr(1) + " s";
}

bool is_waiting(const actors::scheduler_core::view& v) {
  return !v.seated && !v.closing;
}

} // namespace

load_watch::load_watch(const load_settings& settings, bool one_tenant, std::uint32_t replica) :
    options_(settings.options), kv_blocks_(settings.kv_blocks), replica_(replica) {
  const auto& goals = options_.tpot_goals;
  yields_at_once_ =
      one_tenant && std::all_of(goals.begin(), goals.end(), [](duration g) { return g == duration::zero(); });
}

void load_watch::require(bool holds, const char* what, std::uint64_t request, time_point now) {
  ++checks_;
  if (holds || wrong_.size() > most_complaints) return;
  if (wrong_.size() == most_complaints) {
    wrong_.emplace_back("and more");
    return;
  }
  wrong_.push_back(
      "replica " + std::to_string(replica_) + ", request " + std::to_string(request) + ", at " +
      seconds_of(now.time_since_epoch()) + ": " + what);
}

void load_watch::waits::join(const waits& other) {
  requests += other.requests;
  began += other.began;
  turned_away += other.turned_away;
  steps = std::max(steps, other.steps);
  to_begin = std::max(to_begin, other.to_begin);
  for_seat_again = std::max(for_seat_again, other.for_seat_again);
}

std::string load_watch::waits::text(std::uint32_t priority) const {
  return "priority " + std::to_string(priority) + ": " + std::to_string(requests) + " requests, " +
         std::to_string(began) + " began, the last of them after " + seconds_of(to_begin) + " and " +
         std::to_string(steps) + " steps, " + std::to_string(turned_away) +
         " were refused; longest wait for a lost seat " + seconds_of(for_seat_again);
}

void load_watch::asked(const actors::admission_request& m, time_point now) {
  known k;
  k.priority = m.priority;
  k.asked = now;
  k.asked_at_step = steps_;
  k.tenant = m.tenant;
  tenants_.insert(m.tenant);
  requests_.emplace(m.id.number, k);
  ++waits_[m.priority].requests;
}

void load_watch::refused(const actors::scheduler_core& s, const actors::refused& m, time_point now) {
  const known& k = requests_.at(m.id.number);
  const auto n = m.id.number;
  ++waits_[k.priority].turned_away;
  if (m.why.code == errc::shed_low_priority) require(low(k.priority), "shed though it is not low", n, now);
  if (m.why.code == errc::queue_full && !low(k.priority)) {
    bool low_waits = false;
    for (const auto& v : s.requests())
      low_waits = low_waits || (is_waiting(v) && !v.started && low(requests_.at(v.id.number).priority));
    require(!low_waits, "the queue is full of low ones, and it was refused", n, now);
  }
  requests_.erase(n);
}

void load_watch::started(std::uint64_t request, time_point now) {
  known& k = requests_.at(request);
  auto& w = waits_[k.priority];
  k.began = true;
  ++w.began;
  w.to_begin = std::max(w.to_begin, now - k.asked);
  w.steps = std::max(w.steps, steps_ - k.asked_at_step);
  require(now - k.asked <= options_.queue_timeout, "it began after the queue's timeout", request, now);
}

void load_watch::drew(std::uint64_t request) {
  ++requests_.at(request).drawn;
}

void load_watch::finished(const actors::sequence_finished& m, time_point now) {
  const known& k = requests_.at(m.id.number);
  if (!k.began) ++waits_[k.priority].turned_away;
  if (m.failed && m.failed->code == errc::shed_low_priority)
    require(low(k.priority) && !k.began, "displaced though it runs or is not low", m.id.number, now);
  if (!k.began)
    require(now - k.asked <= options_.queue_timeout, "refused after the queue's timeout", m.id.number, now);
  requests_.erase(m.id.number);
}

const actors::scheduler_core::view* load_watch::before(actors::request_id id) const {
  const auto at =
      std::lower_bound(seen_.begin(), seen_.end(), id, [](const auto& v, auto x) { return v.id < x; });
  return at != seen_.end() && at->id == id ? &*at : nullptr;
}

void load_watch::launched(const actors::scheduler_core& s, const actors::run_step& step, time_point now) {
  auto now_seen = s.requests();
  check_order(now_seen, now);
  check_seats_again(now_seen, now);
  check_yielding(s, now_seen, now);
  for (const auto& e : step.entries)
    if (e.open) requests_.at(e.id.number).drawn = 0;
  ++steps_;
  looked_ = now;
  seen_ = std::move(now_seen);
}

/// Of those that waited at the last step and wait still, the best rank bounds who may have been seated.
void load_watch::check_order(const std::vector<actors::scheduler_core::view>& now_seen, time_point now) {
  const actors::scheduler_core::view* first = nullptr;
  std::uint32_t largest = 0; // that waited at the last step or since: it may have a seat now
  for (const auto& w : seen_)
    if (is_waiting(w)) largest = std::max(largest, w.whole);
  const auto took_seat = [&](const auto& v) {
    const auto* was = before(v.id);
    return v.seated && (was == nullptr || !was->seated || was->seats_lost != v.seats_lost);
  };
  bool any = false;
  for (const auto& w : now_seen) {
    const auto* was = before(w.id);
    any = any || took_seat(w);
    if (is_waiting(w) || was == nullptr) largest = std::max(largest, w.whole);
    if (!is_waiting(w) || was == nullptr || !is_waiting(*was) || was->seats_lost != w.seats_lost) continue;
    if (first == nullptr || w.rank < first->rank) first = &w;
    require(
        w.started || now - w.arrival <= options_.queue_timeout, "it waits beyond the queue's timeout",
        w.id.number, now);
  }
  if (first == nullptr || !any) return;
  // Of which priorities somebody stood no later in line than `first`.
  std::set<std::uint32_t> served;
  for (const auto& v : now_seen)
    if (v.rank <= first->rank && (is_waiting(v) || took_seat(v)))
      served.insert(requests_.at(v.id.number).priority);
  const known& passed = requests_.at(first->id.number);
  for (const auto& v : now_seen) {
    if (!took_seat(v)) continue;
    const known& k = requests_.at(v.id.number);
    const bool small = v.whole <= largest / 4 &&
                       looked_.time_since_epoch() < duration(first->rank) + options_.ageing_quantum;
    const bool in_turn = k.tenant != passed.tenant && served.contains(k.priority);
    require(
        v.rank <= first->rank || small || in_turn, "passed by one that came more than its age allows",
        first->id.number, now);
  }
}

void load_watch::check_seats_again(
    const std::vector<actors::scheduler_core::view>& now_seen, time_point now) {
  for (const auto& v : now_seen) {
    known& k = requests_.at(v.id.number);
    if (v.closing) continue;
    if (v.seats_lost != k.seats_lost) {
      k.seats_lost = v.seats_lost;
      k.lost_seat = now;
      require(v.seats_lost <= most_seats_lost, "it lost its seat again and again", v.id.number, now);
    }
    if (k.lost_seat == time_point::max()) continue;
    auto& w = waits_[k.priority];
    w.for_seat_again = std::max(w.for_seat_again, now - k.lost_seat);
    require(
        now - k.lost_seat <= (k.priority + 1) * options_.ageing_quantum * std::ssize(tenants_),
        "it waits for its seat longer than its age allows", v.id.number, now);
    if (v.seated) k.lost_seat = time_point::max();
  }
}

/// The first in line, if it is not low and lacks a seat only, has to be given that of a low one that may
/// yield, at once.
void load_watch::check_yielding(
    const actors::scheduler_core& s, const std::vector<actors::scheduler_core::view>& now_seen,
    time_point now) {
  if (!yields_at_once_ || s.active_seats() < options_.max_batch) return;
  const actors::scheduler_core::view* first = nullptr;
  for (const auto& v : now_seen)
    if (is_waiting(v) && (first == nullptr || std::pair(v.rank, v.id) < std::pair(first->rank, first->id)))
      first = &v;
  if (first == nullptr || low(requests_.at(first->id.number).priority)) return;
  const double then = static_cast<double>(s.committed_blocks() + first->needs);
  if (then > options_.kv_high_watermark * kv_blocks_) return;
  const auto quantum = options_.ageing_quantum.count();
  std::map<std::uint32_t, std::pair<time_point, actors::request_id>> eldest; // seated, of each priority
  for (const auto& v : now_seen)
    if (v.seated) {
      const std::pair age(v.arrival, v.id);
      const auto [at, fresh] = eldest.try_emplace(requests_.at(v.id.number).priority, age);
      if (!fresh) at->second = std::min(at->second, age);
    }
  for (const auto& v : now_seen) {
    const known& k = requests_.at(v.id.number);
    if (!v.seated || v.paused || v.held == 0 || !low(k.priority) || v.seats_lost >= most_seats_lost) continue;
    const bool spared = eldest.at(k.priority).second == v.id || k.drawn < tokens_before_yielding;
    const bool of_lower_class = v.rank - first->rank >= quantum; // surely; its time on the seat adds to it
    require(
        spared || !of_lower_class, "a low one that could yield keeps its seat before it", first->id.number,
        now);
  }
}

void load_watch::settled(const actors::scheduler_core& s, bool in_step, time_point now) {
  const bool idle = !in_step && s.active_seats() > 0 && options_.max_wait == duration::zero();
  if (idle_since_ && now > *idle_since_) {
    require(false, "nothing ran though someone seated could", 0, now);
    idle_since_.reset();
  }
  if (!idle)
    idle_since_.reset();
  else if (!idle_since_)
    idle_since_ = now;
}

void load_watch::ended(const actors::scheduler_core& s) {
  ++checks_;
  if (!requests_.empty() || !s.idle())
    wrong_.push_back(
        "replica " + std::to_string(replica_) + ": " + std::to_string(requests_.size()) +
        " requests never ended");
}

} // namespace troupe::sim
