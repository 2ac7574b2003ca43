// SPDX-License-Identifier: Apache-2.0
// The scheduler's messages: prompts, results, ends, drain.
#include "actors/scheduler_core.hpp"

#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

namespace troupe::actors {

scheduler_core::scheduler_core(const scheduler_options& options) :
    options_(options), tenants_(options.tenants), line_(std::max(options.ageing_quantum, duration(1))),
    full_(options.kv_high_watermark, reopening_level(options.kv_high_watermark, options.hysteresis)),
    shed_(options.kv_low_watermark, reopening_level(options.kv_low_watermark, options.hysteresis)),
    busy_(options.compute_low_watermark, reopening_level(options.compute_low_watermark, options.hysteresis)) {
  options_.max_batch = std::max<std::uint32_t>(1, options_.max_batch);
  options_.max_step_tokens = std::max<std::uint32_t>(1, options_.max_step_tokens);
  options_.max_scored_rows = std::max<std::uint32_t>(1, options_.max_scored_rows);
  options_.least_prefill_rows = std::max<std::uint32_t>(1, options_.least_prefill_rows);
  options_.ageing_quantum = std::max(options_.ageing_quantum, duration(1));
  for (auto* v : {&scratch_, &victims_, &seated_}) v->reserve(2 * std::size_t{options_.max_batch});
  candidates_.reserve(2 * std::size_t{options_.max_batch});
  restores_.reserve(2 * std::size_t{options_.max_batch});
  plan_.reserve(options_.max_batch);
}

scheduler_core::sequence* scheduler_core::find(request_id id) noexcept {
  const auto at = sequences_.find(id);
  return at == sequences_.end() ? nullptr : &at->second;
}

void scheduler_core::on(model_ready&& m, time_point now, scheduler_effects& out) {
  turn t{now, out};
  if (ready_) return;
  model_ = std::move(m);
  model_.block_tokens = std::max<std::uint32_t>(1, model_.block_tokens);
  groups_ = kv_groups(model_.block_tokens, model_.windows);
  limit_ = groups_.longest(model_.kv_blocks, options_.max_step_tokens, model_.context);
  park_room_ = model_.parking_room;
  ready_ = true;
  pump(t);
}

void scheduler_core::on(enqueue&& m, time_point now, scheduler_effects& out) {
  turn t{now, out};
  auto* s = find(m.id);
  if (s == nullptr || s->phase != phase::admitted) return;
  if (auto why = prompt_refusal(m)) {
    ++stats_.failed[static_cast<std::size_t>(why->code)];
    const auto id = s->id;
    forget(*s, now);
    out.emplace_back(refused{id, std::move(*why)});
    pump(t);
    return;
  }
  const double foreseen = forecast_tokens(static_cast<std::uint32_t>(m.prompt->size()), m.max_tokens);
  s->tenant->tokens.take(foreseen - std::exchange(s->foreseen_tokens, foreseen), now);
  take_prompt(*s, std::move(m), now);
  if (const auto reason = whole_answer(*s)) end_sequence(*s, *reason, t);
  pump(t);
}

/// Why the prompt can never run.
std::optional<error> scheduler_core::prompt_refusal(const enqueue& m) const {
  const std::size_t length = m.prompt ? m.prompt->size() : 0;
  const std::size_t drawn = m.max_tokens > 0 ? 1 : 0; // at least
  if (length == 0)
    return error{errc::bad_request, "the prompt has no tokens; at least 1 is needed", "prompt", 0};
  if (length + drawn <= limit_) return std::nullopt;
  return error{
      errc::context_length_exceeded,
      "the prompt has " + std::to_string(length) + " tokens; " + (drawn > 0 ? "with one new token " : "") +
          "at most " + std::to_string(limit_) + " fit " +
          (limit_ < model_.context ? "the KV cache" : "the model's context"),
      "prompt", 0};
}

/// The sequence is ready to run.
void scheduler_core::take_prompt(sequence& s, enqueue&& m, time_point now) {
  s.prompt_tokens = static_cast<std::uint32_t>(m.prompt->size());
  s.foreseen = forecast_positions(s.prompt_tokens, m.max_tokens);
  foresee(s);
  s.wish = std::move(m);
  s.phase = phase::ready;
  s.ready_since = now;
  s.filter = filter_of(s.wish);
  place(s);
  if (may_find(s)) s.shared = shared_with_running(s).blocks * groups_.whole();
  recount(s);
}

/// What must not be drawn: banned ids never, and before `min_tokens` nothing that would end the sequence.
std::shared_ptr<const token_filter> scheduler_core::filter_of(const enqueue& wish) const {
  auto ends = wish.stop_ids;
  if (!wish.ignore_eos) ends.insert(ends.end(), model_.end_of_sequence.begin(), model_.end_of_sequence.end());
  return make_id_filter(wish.banned, ends, wish.min_tokens);
}

void scheduler_core::on(cancel&& m, time_point now, scheduler_effects& out) {
  turn t{now, out};
  auto* s = find(m.id);
  if (s == nullptr || s->phase == phase::closing) return;
  if (m.why.code == errc::cancelled)
    end_sequence(*s, finish_reason::cancelled, t);
  else
    end_sequence(*s, std::move(m.why), t);
  pump(t);
}

void scheduler_core::on(finish&& m, time_point now, scheduler_effects& out) {
  turn t{now, out};
  auto* s = find(m.id);
  if (s == nullptr || s->phase == phase::closing) return;
  end_sequence(*s, finish_reason::stop, t);
  pump(t);
}

void scheduler_core::on(blocks_released&& m, time_point now, scheduler_effects& out) {
  turn t{now, out};
  released_blocks_.add(m.blocks, now);
  note_used(m.level);
  auto* s = find(m.id);
  if (s == nullptr || s->releases_pending == 0) return;
  --s->releases_pending;
  const std::uint32_t back = std::min(s->in_transit, m.blocks);
  s->in_transit -= back;
  in_transit_ -= back;
  if (s->phase == phase::closing && s->releases_pending == 0) conclude(*s, t);
  pump(t);
}

void scheduler_core::on(step_done&& m, time_point now, scheduler_effects& out) {
  turn t{now, out};
  if (step_ != step_state::running || m.step_seq != step_seq_) return;
  stats_.step_time.add(m.took);
  step_times_.observe(shape_, m.took);
  end_step(t);
  const std::size_t answered = std::min(plan_.size(), m.results.size());
  publish(m, t); // before an end takes the blocks away
  for (std::size_t i = 0; i < answered; ++i) {
    auto* s = find(plan_[i].id);
    if (s == nullptr || s->phase != phase::running || m.results[i].id != s->id) continue;
    s->computed = plan_[i].first + plan_[i].count;
    const auto again = std::min(s->high_water, s->computed) - std::min(s->high_water, plan_[i].first);
    stats_.recomputed_tokens += again;
    s->high_water = std::max(s->high_water, s->computed);
    if (plan_[i].first >= s->prompt_tokens)
      stats_.decode_tokens += plan_[i].count;
    else
      stats_.prefill_tokens += plan_[i].count;
    take_result(*s, plan_[i], m.results[i], m.step_seq, t);
  }
  plan_.clear();
  force_preemption(t);
  pump(t);
}

void scheduler_core::take_result(
    sequence& s, const planned& p, sequence_result& r, std::uint64_t step_seq, turn& t) {
  if (r.not_finite) {
    end_sequence(
        s,
        {errc::not_finite,
         "NaN or Inf in the model's numbers at position " + std::to_string(s.computed - 1),
         {},
         0},
        t);
    return;
  }
  if (!r.scores.empty()) {
    const auto count = static_cast<std::uint32_t>(r.scores.size());
    t.out.emplace_back(prompt_scored{s.id, s.scored + 1, std::move(r.scores)});
    s.scored += count;
  }
  if (p.want_token)
    take_token(s, r, step_seq, t);
  else if (s.wish.max_tokens == 0 && s.computed == s.known())
    end_sequence(s, finish_reason::length, t);
}

void scheduler_core::take_token(sequence& s, sequence_result& r, std::uint64_t step_seq, turn& t) {
  try {
    s.generated.push_back(r.token);
  } catch (const std::bad_alloc&) {
    end_sequence(s, {errc::no_memory, "no memory for the request's tokens", {}, 0}, t);
    return;
  }
  const auto count = static_cast<std::uint32_t>(s.generated.size());
  s.strikes = 0;
  ++s.fresh_tokens;
  if (count == 1)
    stats_.time_to_first_token.add(t.now - s.arrival);
  else
    stats_.time_per_output_token.add(t.now - s.last_token);
  s.last_token = t.now;
  const bool stops = ends_with(s, r.token);
  t.out.emplace_back(token_ready{s.id, r.token, s.known() - 1, step_seq, stops, r.logprob, std::move(r.top)});
  if (stops)
    end_sequence(s, finish_reason::stop, t);
  else if (count >= s.wish.max_tokens || s.known() >= limit_)
    end_sequence(s, finish_reason::length, t);
}

/// Whether `token`, the latest of its tokens, ends the sequence.
bool scheduler_core::ends_with(const sequence& s, std::int32_t token) const {
  const auto among = [&](const std::vector<std::int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  // The sampler held them back; a backend that draws one all the same does not end the sequence early.
  const auto count = s.generated.size();
  return count > s.wish.min_tokens &&
         ((!s.wish.ignore_eos && among(model_.end_of_sequence)) || among(s.wish.stop_ids));
}

void scheduler_core::on(step_failed&& m, time_point now, scheduler_effects& out) {
  turn t{now, out};
  if (step_ != step_state::running || m.step_seq != step_seq_) return;
  ++stats_.failed_steps;
  end_step(t);
  for (const auto& p : std::exchange(plan_, {})) {
    auto* s = find(p.id);
    if (s == nullptr || s->phase != phase::running) continue;
    // A second failure came from a step of its own (see keep_one_suspect), so it is the culprit.
    if (++s->strikes >= 2)
      end_sequence(
          *s, {errc::poison_request, "two steps with this request in them failed: " + m.reason, {}, 0}, t);
    else
      preempt(*s, t, false); // what the step wrote may be partial
  }
  pump(t);
}

/// The step writes and copies no more; what waited for that may go.
void scheduler_core::end_step(turn& t) {
  step_ = step_state::idle;
  for (const auto& p : plan_)
    if (auto* s = find(p.id)) s->in_step = false;
  if (std::exchange(end_awaited_, false)) t.out.emplace_back(step_finished{step_seq_});
}

void scheduler_core::on(drain&&, time_point now, scheduler_effects& out) {
  turn t{now, out};
  draining_ = true;
  pump(t);
}

void scheduler_core::on(cut&& m, time_point now, scheduler_effects& out) {
  turn t{now, out};
  draining_ = true;
  std::vector<request_id> all;
  for (const auto& [id, s] : sequences_)
    if (s.phase != phase::closing) all.push_back(id);
  std::sort(all.begin(), all.end());
  for (const auto id : all) end_sequence(*find(id), m.why, t);
  pump(t);
}

void scheduler_core::on(alarm_rang&&, time_point now, scheduler_effects& out) {
  turn t{now, out};
  alarm_ = time_point::max();
  expire_queue(t);
  pump(t);
}

/// After every message: fill the seats, plan if idle, ask to be woken.
void scheduler_core::pump(turn& t) {
  if (ready_) {
    shrink_batch(t);
    seat_from_queue(t);
    if (step_ == step_state::idle) plan_step(t);
  }
  watch_levels();
  above_since_ = active_seats_ <= seat_limit_ ? time_point::max() : std::min(above_since_, t.now);
  set_next_alarm(t);
  if (draining_ && !drained_told_ && sequences_.empty()) {
    drained_told_ = true;
    t.out.emplace_back(drained{});
  }
}

void scheduler_core::set_next_alarm(turn& t) {
  auto next = retry_at_;
  if (!unstarted_.empty())
    next = std::min(next, time_point(duration(unstarted_.begin()->order)) + options_.queue_timeout);
  if (next == alarm_) return;
  alarm_ = next;
  t.out.emplace_back(set_alarm{next});
}

void scheduler_core::end_sequence(sequence& s, finish_reason reason, turn& t) {
  s.reason = reason;
  begin_close(s, t);
}

void scheduler_core::end_sequence(sequence& s, error why, turn& t) {
  s.failed = std::move(why);
  begin_close(s, t);
}

/// Takes the sequence out of everything and sends for its blocks; its end is told when they are free.
void scheduler_core::begin_close(sequence& s, turn& t) {
  assert(s.phase != phase::closing);
  const bool seated = s.seated;
  s.phase = phase::closing;
  if (!seated) leave_line(s);
  if (!s.started) unstarted_.erase({s.arrival.time_since_epoch().count(), s.id});
  leave_seat(s);
  leave_chain(s);
  recount(s);
  if (step_ == step_state::reserving) drop_from_plan(s.id);
  if (s.opened) t.out.emplace_back(close_sequence{s.id});
  s.opened = false;
  forget_parked(s, t);
  // A demand under way may still be granted: the cache manager must hear of the end after it.
  if (s.parking == parking::loading) {
    ++s.releases_pending; // its blocks go back when nobody writes them any more
  } else if (s.held > 0 || s.demand_pending) {
    t.out.emplace_back(release_blocks{s.id, s.in_step ? step_seq_ : 0});
    end_awaited_ = end_awaited_ || s.in_step;
    ++s.releases_pending;
  }
  if (s.releases_pending == 0) conclude(s, t);
}

/// The last act: `s` is gone afterwards.
void scheduler_core::conclude(sequence& s, turn& t) {
  const auto tokens = static_cast<std::uint32_t>(s.generated.size());
  if (s.failed) {
    ++stats_.failed[static_cast<std::size_t>(s.failed->code)];
  } else if (s.reason == finish_reason::cancelled) {
    ++stats_.cancelled;
  } else {
    ++(s.reason == finish_reason::stop ? stats_.finished_stop : stats_.finished_length);
    outputs_.observe(tokens);
  }
  finished_requests_.add(1, t.now);
  t.out.emplace_back(sequence_finished{
      s.id, s.reason, std::move(s.failed), s.wish.prompt ? s.prompt_tokens : 0, tokens, s.scored});
  forget(s, t.now);
}

void scheduler_core::forget(sequence& s, time_point now) {
  leave_seat(s);
  leave_chain(s);
  leave_line(s);
  unstarted_.erase({s.arrival.time_since_epoch().count(), s.id});
  in_transit_ -= std::exchange(s.in_transit, 0);
  s.held = s.indices = 0;
  s.phase = phase::closing;
  recount(s);
  const double used = s.started ? s.known() : 0;
  if (s.tenant != nullptr) tenants_.settle(*s.tenant, s.foreseen_tokens, used, now);
  const auto id = s.id;
  sequences_.erase(id);
}

scheduler_stats scheduler_core::stats() const {
  auto s = stats_;
  s.waiting = static_cast<std::uint32_t>(line_.size());
  for (const queue_key& key : line_.by_rank()) {
    const sequence& x = sequences_.find(key.id)->second;
    ++s.waiting_by_priority[std::min<std::size_t>(x.priority, priorities - 1)];
  }
  s.compute_use = compute_use();
  s.step_seconds = step_times_.coefficients();
  s.tenants = static_cast<std::uint32_t>(tenants_.size());
  s.parked =
      static_cast<std::uint32_t>(s.parks - s.parks_failed - s.parks_dropped - s.resumes - s.resumes_failed);
  for (const auto* x : seated_) {
    if (x->paused)
      ++s.paused;
    else if (x->started)
      ++s.running;
    else
      ++s.waiting;
  }
  return s;
}

std::vector<request_id> scheduler_core::planned_requests() const {
  std::vector<request_id> ids;
  for (const planned& p : plan_) ids.push_back(p.id);
  return ids;
}

std::vector<scheduler_core::view> scheduler_core::requests() const {
  std::vector<view> all;
  all.reserve(sequences_.size());
  for (const auto& [id, s] : sequences_)
    all.push_back(
        {id, s.seated, s.paused, s.started, s.phase == phase::closing, s.rank, s.arrival, s.held, s.computed,
         static_cast<std::uint32_t>(s.generated.size()), s.predicted,
         s.predicted - std::min(s.predicted, s.held + s.shared), s.seats_lost, s.parking});
  std::sort(all.begin(), all.end(), [](const view& a, const view& b) { return a.id < b.id; });
  return all;
}

} // namespace troupe::actors
