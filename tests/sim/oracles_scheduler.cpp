// SPDX-License-Identifier: Apache-2.0
// What the scheduler shows of itself after every message, and the steps that it launches.
#include "sim/simulation.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace troupe::sim {

void simulation::check_scheduler(std::string_view message) {
  const auto& o = policy_;
  auto now_seen = scheduler_.requests();
  std::uint64_t waiting = 0;
  for (const auto& v : now_seen) {
    require(!(v.closing && v.seated), "an ended request keeps its seat", v.id.number);
    waiting += !v.seated && !v.closing;
    const auto aged =
        v.arrival.time_since_epoch() + o.ageing_quantum * std::int64_t{of(v.id).script->priority};
    require(
        v.seats_lost == 0 ? v.rank == aged.count() : v.rank >= aged.count(),
        "a rank that does not age as documented", v.id.number);
    if (!v.started && !v.closing && of(v.id).script->group == 0)
      require(
          now_ <= std::max(v.arrival + o.queue_timeout, up_since_) + scenario_.faults.alarm_lateness + slack,
          "a request waits beyond the queue's timeout", v.id.number);
  }
  require(now_seen.size() > 0 || scheduler_.committed_blocks() == 0, "blocks are committed to nobody");
  check_queue_bounds(waiting, message == "admission_request" && now_seen.size() > seen_.size());
  require(waiting == scheduler_.queued(), "the queue's count differs from who is in it");
  if (message == "admission_request") {
    const bool grew = now_seen.size() > seen_.size();
    require(!(grew && door_was_full_), "admitted above the high watermark");
    require(!(grew && door_was_shedding_), "low priority admitted above the low watermark");
    require(!(grew && (drain_told_ || !open_)), "admitted while draining or loading");
  }
  if (message == "admission_request" && now_seen.size() > seen_.size())
    require(!full_.on(), "admitted before the level let go");
  check_flapping(message == "admission_request" && now_seen.size() > seen_.size(), door_priority_);
  full_.update(scheduler_.kv_use());
  shed_.update(scheduler_.kv_use());
  check_seating(now_seen);
  check_yielding(now_seen);
  check_batch(now_seen);
  check_takers(now_seen);
  check_shares(now_seen);
  check_preemptions(now_seen, message);
  if (launched_) {
    check_turns(now_seen);
    check_lengths(now_seen);
    check_prompt_shares(now_seen);
  }
  launched_ = false;
  seen_ = std::move(now_seen);
}

void simulation::check_plan(const actors::run_step& step) {
  const auto& o = policy_;
  std::uint64_t rows = 0, scored = 0;
  require(running_requests_.empty(), "a step was launched while another one runs");
  require(!step.entries.empty(), "an empty step was launched");
  for (const auto& e : step.entries)
    require(
        !of(e.id).on_trial || step.entries.size() == 1, "one that was in hand at a crash runs with others",
        e.id.number);
  require(step.entries.size() <= o.max_batch, "more sequences in a step than max_batch");
  ++steps_launched_;
  launched_ = true;
  running_rows_.clear();
  prompts_only_ = true;
  for (std::size_t i = 0; i < step.entries.size(); ++i) {
    const auto& e = step.entries[i];
    auto& p = of(e.id);
    rows += e.count;
    require(e.count > 0, "an entry without rows", e.id.number);
    const std::uint64_t prompt_end = p.script->prompt.size() - 1;
    const std::uint64_t scores_end = std::min<std::uint64_t>(e.first + e.count, prompt_end);
    scored += scores_end - std::min<std::uint64_t>(scores_end, std::max(e.first, e.score_from));
    require(i == 0 || step.entries[i - 1].id < e.id, "entries not in order of id", e.id.number);
    require(!p.paused_at_plan, "a paused sequence was planned", e.id.number);
    require(!p.finished, "an ended sequence was planned", e.id.number);
    p.last_in_step = steps_launched_;
    p.begins = e.open.has_value();
    p.prompt_rows += static_cast<std::uint32_t>(
        std::min<std::size_t>(p.script->prompt.size(), e.first + e.count) -
        std::min<std::size_t>(p.script->prompt.size(), e.first));
    if (p.begins) p.fresh = 0;
    running_requests_.push_back(e.id);
    running_rows_.push_back(e.count);
    prompts_only_ = prompts_only_ && !e.open && (e.count > 1 || !e.want_token);
  }
  require(rows <= o.max_step_tokens, "more rows in a step than max_step_tokens");
  check_step_time(step);
  require(
      scored <= o.max_scored_rows + step.entries.size(),
      "more scored rows in a step than max_scored_rows and "
      "one of each sequence");
}

/// Prompts' rows beside streams keep the step near the goal, once the scheduler had time to learn.
void simulation::check_step_time(const actors::run_step& step) {
  const auto& o = policy_;
  std::uint32_t decode_rows = 0, prompt_rows = 0;
  duration goal{};
  for (const auto& e : step.entries) { // a single row of a prompt counts for neither
    if (e.count > 1) prompt_rows += e.count;
    decode_rows += e.count == 1 && e.want_token && !e.open && e.first >= of(e.id).script->prompt.size();
  }
  for (const auto& v : scheduler_.requests()) {
    const duration g = goals_at_plan_[of(v.id).script->priority];
    if (v.seated && !v.paused && !v.closing && g > duration::zero() && (goal == duration::zero() || g < goal))
      goal = g;
  }
  const bool learnt =
      steps_launched_ - scheduler_.stats().failed_steps > 3 * actors::step_time_model::least_steps;
  const bool plain = scenario_.step_time >= 50 * scenario_.hop && scenario_.faults.step_fails == 0;
  if (!learnt || !plain || decode_rows == 0 || prompt_rows <= o.least_prefill_rows) return;
  const auto time_of = [&](std::uint32_t n) { return scenario_.step_time + n * scenario_.step_time / 16; };
  const duration limit = goal > duration::zero() ? goal : 2 * time_of(decode_rows);
  const auto us = [](duration d) {
    return std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(d).count());
  };
  if (time_of(decode_rows + prompt_rows) > limit + limit / 2)
    complain(
        std::to_string(decode_rows) + " decode rows and " + std::to_string(prompt_rows) +
        " of prompts take " + us(time_of(decode_rows + prompt_rows)) + " us; the limit is " + us(limit) +
        " us");
}

/// Of those that hold blocks, every decode row comes round, and some prompt gets on, however full the steps
/// are. Steps with a shortage or with a suspect alone do not count.
void simulation::check_turns(const views& now_seen) {
  const bool suspects = std::any_of(
      participants_.begin(), participants_.end(), [](const auto& p) { return p.failed_in_a_row > 0; });
  const bool disturbed = std::exchange(shortage_, false) || suspects;
  bool prompt_waits = false, prompt_runs = false;
  for (const auto& v : now_seen) {
    auto& p = of(v.id);
    const bool in_step =
        std::find(running_requests_.begin(), running_requests_.end(), v.id) != running_requests_.end();
    const bool loads = v.parking == actors::scheduler_core::parking::loading;
    if (in_step || disturbed || v.paused || v.closing || v.held == 0 || loads) p.passed_over = 0;
    const bool decodes = v.computed + 1 == p.script->prompt.size() + v.generated;
    if (in_step && (!decodes || p.begins)) prompt_runs = true; // the last row of a prompt that was known, too
    if (v.paused || v.closing || v.held == 0 || in_step || disturbed || loads) continue;
    if (decodes)
      require(
          ++p.passed_over <= 2 * now_seen.size() + 8, "a decode row is passed over for ever", v.id.number);
    else
      prompt_waits = true;
  }
  prompts_starved_ = prompt_waits && !prompt_runs ? prompts_starved_ + 1 : 0;
  require(prompts_starved_ <= now_seen.size() + 4, "prompts starve beside decode rows");
}

/// Of prompts under way, none is left out of a step for a longer one that is not the eldest.
void simulation::check_lengths(const views& now_seen) {
  const bool undisturbed = generation_ == first_generation && scenario_.faults.step_fails == 0 &&
                           scenario_.faults.allocation_fails == 0 && row_faults_.poison_seeds.empty() &&
                           row_faults_.not_finite.empty();
  if (!undisturbed || shortage_) return;
  const auto left = [&](const actors::scheduler_core::view& v) {
    return of(v.id).script->prompt.size() + v.generated - v.computed;
  };
  const auto length_class = [](std::size_t n) { return std::bit_width(n | 63U) / 2; };
  const auto in_step = [&](actors::request_id id) {
    return std::find(running_requests_.begin(), running_requests_.end(), id) != running_requests_.end();
  };
  const auto prompt_under_way = [&](const auto& v) {
    const bool loads = v.parking == actors::scheduler_core::parking::loading;
    return v.held > 0 && v.seated && !v.paused && !v.closing && !loads && left(v) > 1 &&
           !of(v.id).script->echo;
  };
  for (const auto& v : now_seen) {
    if (!prompt_under_way(v) || in_step(v.id)) continue;
    const auto longer = std::count_if(now_seen.begin(), now_seen.end(), [&](const auto& w) {
      return prompt_under_way(w) && in_step(w.id) && length_class(left(w)) > length_class(left(v));
    });
    require(longer <= 1, "a short prompt is left out for longer ones", v.id.number);
  }
}

} // namespace troupe::sim
