// SPDX-License-Identifier: Apache-2.0
// The scheduler's door: who comes in, who is refused, and how long one waits.
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
  std::optional<error> why;
  try {
    tenant_account& tenant = tenants_.open(m.tenant);
    why = refuse_at_door(m, tenant, t);
    if (!why) why = let_in(m, tenant, t);
  } catch (const std::bad_alloc&) {
    if (auto* s = find(m.id)) forget(*s, now);
    why = error{errc::no_memory, "no memory to admit the request", {}, 0};
  }
  if (why) {
    tenants_.close_if_idle(m.tenant, now);
    ++stats_.failed[static_cast<std::size_t>(why->code)];
    out.emplace_back(refused{m.id, std::move(*why)});
  }
  pump(t);
}

std::optional<error>
scheduler_core::refuse_at_door(const admission_request& m, const tenant_account& tenant, turn& t) {
  if (draining_) return error{errc::draining, "the server is shutting down and takes no new work", {}, 0};
  if (!ready_) return error{errc::model_loading, "the model is not loaded yet", {}, 1000};
  if (m.deadline <= t.now)
    return error{
        errc::deadline_exceeded, "the deadline had passed when the request arrived", "deadline_ms", 0};
  const double total = model_.kv_blocks;
  const double need = most_blocks(0, forecast_positions(m.prompt_tokens, m.max_tokens));
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
  const bool low = m.priority >= options_.low_priority;
  if (shed_.on() && low)
    return overload(
        errc::shed_low_priority,
        "KV cache use is " + percent(kv_use()) + "; priorities from " +
            std::to_string(options_.low_priority) + " on are refused from " +
            percent(options_.kv_low_watermark),
        static_cast<double>(committed_blocks()) + need -
            reopening_level(options_.kv_low_watermark, options_.hysteresis) * total,
        m.id, t.now);
  if (busy_.on() && low)
    return overload(
        errc::shed_low_priority,
        "requests want " + percent(compute_use()) +
            " of the tokens per second that the TPOT goal leaves room for; " + "priorities from " +
            std::to_string(options_.low_priority) + " on are refused from " +
            percent(options_.compute_low_watermark),
        0, m.id, t.now);
  auto over = tenants_.refuse(tenant, forecast_tokens(m.prompt_tokens, m.max_tokens), t.now);
  if (over) {
    const error advice = overload(over->code, {}, 0, m.id, t.now);
    if (over->retry_after_ms == 0) over->retry_after_ms = advice.retry_after_ms;
    over->queue_length = advice.queue_length;
  }
  return over;
}

/// Gives the request a seat or a place in the queue; in a full queue, that of those of low priority that wait
/// for their first row, if it is not of low priority itself.
std::optional<error> scheduler_core::let_in(const admission_request& m, tenant_account& tenant, turn& t) {
  sequence& s = sequences_[m.id];
  s.id = m.id;
  s.priority = m.priority;
  s.arrival = t.now;
  s.rank =
      (t.now.time_since_epoch() + options_.ageing_quantum * static_cast<std::int64_t>(m.priority)).count();
  s.group = m.group;
  s.salt = XXH3_64bits(m.tenant.data(), m.tenant.size());
  s.prompt_tokens = m.prompt_tokens;
  s.foreseen = forecast_positions(m.prompt_tokens, m.max_tokens);
  foresee(s);
  s.wish.max_tokens = m.max_tokens;
  s.foreseen_tokens = forecast_tokens(m.prompt_tokens, m.max_tokens);
  s.tenant = &tenant;
  tenants_.admit(tenant, s.foreseen_tokens, t.now);
  join_line(s);
  if (!begun(m.group)) unstarted_.insert({t.now.time_since_epoch().count(), m.id});
  seat_from_queue(t);
  const bool too_many = line_.size() > options_.max_queue;
  if (!s.seated && (too_many || queued_bytes_ > options_.max_queue_bytes)) {
    if (m.priority >= options_.low_priority || !make_room(s, t)) {
      tenant.requests.take(-1, t.now); // it did not begin
      forget(s, t.now);
      return overload(
          errc::queue_full,
          too_many ? std::to_string(line_.size()) + " requests wait for a place; at most " +
                         std::to_string(options_.max_queue) + " may"
                   : "prompts of " + std::to_string(queued_bytes_) + " bytes wait for a place; at most " +
                         std::to_string(options_.max_queue_bytes) + " may",
          0, m.id, t.now);
    }
  }
  t.out.emplace_back(admitted{m.id});
  return std::nullopt;
}

/// A full queue refuses those of low priority that wait for their first row, the last in line first, until it
/// holds no more than before `s` came, or than it may. False, and nobody is refused, when they are too few.
bool scheduler_core::make_room(const sequence& s, turn& t) {
  const std::uint64_t most_bytes = std::max(options_.max_queue_bytes, queued_bytes_ - s.bytes);
  std::uint64_t bytes = queued_bytes_;
  std::vector<request_id> gone;
  for (auto at = low_line_.rbegin(), end = low_line_.rend(); gone.empty() || bytes > most_bytes; ++at) {
    if (at == end) return false;
    const sequence& low = *find(at->id);
    if (!unstarted_.contains({low.arrival.time_since_epoch().count(), low.id})) continue;
    gone.push_back(low.id);
    bytes -= low.bytes;
  }
  for (const request_id id : gone) {
    const sequence* low = find(id);
    if (low == nullptr || low->phase == phase::closing) continue; // with another choice of its request
    ++stats_.displaced;
    const error why = overload(
        errc::shed_low_priority, "the queue is full, and a request of higher priority came", 0, id, t.now);
    end_unstarted(id, why, t);
  }
  return true;
}

/// A refusal with advice: when, at the measured rates, `excess_blocks` will be free, or with 0, the queue
/// will have moved up by one. Spread by 20 % either way, so that those refused together do not come back
/// together.
error scheduler_core::overload(
    errc code, std::string message, double excess_blocks, request_id id, time_point now) const {
  const bool by_ends = excess_blocks <= 0;
  const double rate = by_ends ? finished_requests_.per_second(now) : released_blocks_.per_second(now);
  const double amount = by_ends ? 1.0 + static_cast<double>(line_.size()) : std::max(1.0, excess_blocks);
  const double seconds = rate > 0 ? amount / rate : 1.0;
  const double spread =
      0.8 + 0.4 * static_cast<double>(std::hash<request_id>{}(id) >> 40) / static_cast<double>(1 << 24);
  const double ms = std::clamp(1000 * seconds * spread, 100.0, 60'000.0);
  return {
      code, std::move(message), {}, static_cast<std::uint32_t>(ms), static_cast<std::uint32_t>(line_.size())};
}

std::uint32_t
scheduler_core::forecast_positions(std::uint32_t prompt, std::uint32_t max_tokens) const noexcept {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(limit_, std::uint64_t{prompt} + outputs_.predict(max_tokens)));
}

double scheduler_core::kv_use() const noexcept {
  return model_.kv_blocks == 0 ? 0 : static_cast<double>(committed_blocks()) / model_.kv_blocks;
}

/// Once a turn: in the middle of one, blocks may count twice.
void scheduler_core::watch_levels() noexcept {
  const double use = kv_use();
  full_.update(use);
  shed_.update(use);
  busy_.update(compute_use());
}

void scheduler_core::expire_queue(turn& t) {
  while (!unstarted_.empty()) {
    const auto first = *unstarted_.begin();
    if (time_point(duration(first.order)) + options_.queue_timeout > t.now) return;
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(options_.queue_timeout).count();
    const error why = overload(
        errc::queue_timeout, "waited " + std::to_string(ms) + " ms for a place, the longest allowed", 0,
        first.id, t.now);
    end_unstarted(first.id, why, t);
  }
}

/// Ends one whose client was not told that it runs. The other choices of its request wait for nothing any
/// more, and none of them must begin now.
void scheduler_core::end_unstarted(request_id first, const error& why, turn& t) {
  const std::uint64_t group = find(first)->group;
  std::vector<request_id> all{first};
  if (group != 0)
    for (const queue_key& k : unstarted_)
      if (k.id != first && find(k.id)->group == group) all.push_back(k.id);
  for (const request_id id : all) end_sequence(*find(id), why, t);
}

} // namespace troupe::actors
