// SPDX-License-Identifier: Apache-2.0
// The scheduler's door: refusals, seats and the queue for them.
#include "actors/scheduler_core.hpp"

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>
#include <xxhash.h>

namespace troupe::actors {

void scheduler_core::on(admission_request&& m, time_point now, scheduler_effects& out) {
  turn t{now, out};
  if (find(m.id) != nullptr) return;
  ++stats_.submitted;
  const std::uint32_t need = ready_ ? forecast_blocks(m.prompt_tokens, m.max_tokens) : 0;
  const std::int64_t rank =
      (now.time_since_epoch() + options_.ageing_quantum * static_cast<std::int64_t>(m.priority)).count();
  const bool first = queue_.empty() || queue_key{rank, m.id} < *queue_.begin();
  const bool seatable = first && seat_free(need);
  auto why = refuse_at_door(m, need, seatable, t);
  if (!why) {
    try {
      sequence& s = sequences_[m.id];
      s.id = m.id;
      s.priority = m.priority;
      s.arrival = now;
      s.rank = rank;
      s.group = m.group;
      s.salt = XXH3_64bits(m.tenant.data(), m.tenant.size());
      s.prompt_tokens = m.prompt_tokens;
      s.predicted = need;
      if (!begun(m.group)) unstarted_.insert({now.time_since_epoch().count(), m.id});
      if (seatable)
        take_seat(s);
      else
        queue_.insert({rank, m.id});
      out.emplace_back(admitted{m.id});
    } catch (const std::bad_alloc&) {
      if (auto* s = find(m.id)) forget(*s);
      why = error{errc::no_memory, "no memory to admit the request", {}, 0};
    }
  }
  if (why) {
    ++stats_.failed[static_cast<std::size_t>(why->code)];
    out.emplace_back(refused{m.id, std::move(*why)});
  }
  pump(t);
}

std::optional<error>
scheduler_core::refuse_at_door(const admission_request& m, std::uint32_t need, bool seatable, turn& t) {
  if (draining_) return error{errc::draining, "the server is shutting down and takes no new work", {}, 0};
  if (!ready_) return error{errc::model_loading, "the model is not loaded yet", {}, 1000};
  if (m.deadline <= t.now)
    return error{
        errc::deadline_exceeded, "the deadline had passed when the request arrived", "deadline_ms", 0};
  const double total = model_.kv_blocks;
  const auto percent = [](double x) { return std::to_string(std::lround(100 * x)) + " %"; };
  if (full_.on())
    return overload(
        errc::kv_cache_full,
        "KV cache use is " + percent(kv_use()) + "; new work is refused from " +
            percent(options_.kv_high_watermark) + " until it falls below " +
            percent(reopening_level(options_.kv_high_watermark, options_.hysteresis)),
        static_cast<double>(committed_blocks()) + need -
            reopening_level(options_.kv_high_watermark, options_.hysteresis) * total,
        m.id, t.now);
  if (shed_.on() && m.priority >= options_.low_priority)
    return overload(
        errc::shed_low_priority,
        "KV cache use is " + percent(kv_use()) + "; priorities from " +
            std::to_string(options_.low_priority) + " on are refused from " +
            percent(options_.kv_low_watermark),
        static_cast<double>(committed_blocks()) + need -
            reopening_level(options_.kv_low_watermark, options_.hysteresis) * total,
        m.id, t.now);
  if (!seatable && queue_.size() >= options_.max_queue)
    return overload(
        errc::queue_full,
        std::to_string(queue_.size()) + " requests wait for a place; at most " +
            std::to_string(options_.max_queue) + " may",
        0, m.id, t.now);
  return std::nullopt;
}

/// A refusal with advice: when the measured rates will have made room. Spread by 20 % either way, so that
/// those refused together do not come back together.
error scheduler_core::overload(
    errc code, std::string message, double excess_blocks, request_id id, time_point now) const {
  const double rate =
      code == errc::queue_full ? finished_requests_.per_second(now) : released_blocks_.per_second(now);
  const double amount =
      code == errc::queue_full ? 1.0 + static_cast<double>(queue_.size()) : std::max(1.0, excess_blocks);
  const double seconds = rate > 0 ? amount / rate : 1.0;
  const double spread =
      0.8 + 0.4 * static_cast<double>(std::hash<request_id>{}(id) >> 40) / static_cast<double>(1 << 24);
  const double ms = std::clamp(1000 * seconds * spread, 100.0, 60'000.0);
  return {code, std::move(message), {}, static_cast<std::uint32_t>(ms)};
}

std::uint32_t scheduler_core::forecast_blocks(std::uint32_t prompt, std::uint32_t max_tokens) const noexcept {
  const std::uint64_t tokens =
      std::min<std::uint64_t>(limit_, std::uint64_t{prompt} + outputs_.predict(max_tokens));
  return static_cast<std::uint32_t>((tokens + model_.block_tokens - 1) / model_.block_tokens);
}

double scheduler_core::kv_use() const noexcept {
  return model_.kv_blocks == 0 ? 0 : static_cast<double>(committed_blocks()) / model_.kv_blocks;
}

bool scheduler_core::seat_free(std::uint32_t need) const noexcept {
  if (active_seats_ >= options_.max_batch) return false;
  // Whatever fits the pool at all may run alone.
  return seated_.empty() ||
         static_cast<double>(committed_blocks() + need) <= options_.kv_high_watermark * model_.kv_blocks;
}

/// Keeps `growth_` true: call it after anything that a sequence's share depends on.
void scheduler_core::recount(sequence& s) {
  const bool expects_more = s.seated && !s.paused && s.phase != phase::closing;
  const std::uint32_t share = expects_more && s.predicted > s.held ? s.predicted - s.held : 0;
  growth_ += share;
  growth_ -= s.counted;
  s.counted = share;
}

/// Once a turn: in the middle of one, blocks may count twice.
void scheduler_core::watch_levels() noexcept {
  const double use = kv_use();
  full_.update(use);
  shed_.update(use);
}

void scheduler_core::take_seat(sequence& s) {
  const auto at = std::lower_bound(
      seated_.begin(), seated_.end(), s.id, [](const sequence* x, request_id id) { return x->id < id; });
  seated_.insert(at, &s);
  s.seated = true;
  if (!s.paused) ++active_seats_;
  recount(s);
}

void scheduler_core::leave_seat(sequence& s) {
  if (!s.seated) return;
  seated_.erase(std::lower_bound(
      seated_.begin(), seated_.end(), s.id, [](const sequence* x, request_id id) { return x->id < id; }));
  s.seated = false;
  if (!s.paused) --active_seats_;
  recount(s);
}

/// The best rank first, and nobody past it: a large request is not starved by small ones.
void scheduler_core::seat_from_queue() {
  while (!queue_.empty()) {
    sequence& head = *find(queue_.begin()->id);
    if (!seat_free(head.predicted)) return;
    queue_.erase(queue_.begin());
    take_seat(head);
  }
}

void scheduler_core::expire_queue(turn& t) {
  while (!unstarted_.empty()) {
    const auto first = *unstarted_.begin();
    if (time_point(duration(first.order)) + options_.queue_timeout > t.now) return;
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(options_.queue_timeout).count();
    const error why = overload(
        errc::queue_timeout, "waited " + std::to_string(ms) + " ms for a place, the longest allowed", 0,
        first.id, t.now);
    // The other choices of its request wait for nothing any more, and none of them must begin now.
    const std::uint64_t group = find(first.id)->group;
    std::vector<request_id> all{first.id};
    if (group != 0)
      for (const queue_key& k : unstarted_)
        if (k.id != first.id && find(k.id)->group == group) all.push_back(k.id);
    for (const request_id id : all) end_sequence(*find(id), why, t);
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
