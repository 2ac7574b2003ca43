// SPDX-License-Identifier: Apache-2.0
// What must hold after every message and at the end of a run.
#include "sim/simulation.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace troupe::sim {
namespace {

constexpr auto slack = std::chrono::milliseconds(60); // mail under way, and a step or two

} // namespace

void simulation::complain(std::string what, std::uint64_t request) const {
  throw violation{std::move(what), request};
}

/// The blocks of a request that is told to end are free at once, or at the end of the step that writes them:
/// no later step goes by, and nothing else waits in limbo.
void simulation::check_endings() {
  if (mail_.waits(scheduler, cache_manager)) return;
  require(cache_.level().limbo <= limbo_allowed_, "blocks are in limbo that no running step writes");
  for (const ending& e : ending_)
    require(
        cache_.pool().held(e.id) == 0 || copied_now(e.id), "an ended request keeps its blocks", e.id.number);
  if (mail_.waits(cache_manager, scheduler)) return;
  for (const ending& e : ending_)
    require(
        e.in_step || copied_now(e.id) || of(e.id).finished,
        "a request outlives the step that ran when it ended", e.id.number);
  std::erase_if(ending_, [this](const ending& e) { return of(e.id).finished.has_value(); });
}

/// KV sums, and that nothing the backend still writes belongs to anybody else.
void simulation::check_ledger() {
  const auto& pool = cache_.pool();
  require(pool.balanced(), "free + leased + limbo + cached is not total");
  if (mail_.sent() % 16 == 0) require(pool.audit(), "the ledger's counts differ from its blocks");
  if (mail_.sent() % 4 == 0) check_groups();
  check_endings();
  if (copying_ && copying_->work != actors::park_work::write && copying_->work != actors::park_work::read)
    for (const auto& m : copying_->all())
      require(pool.holders(m.block) >= 1, "a block that is copied is nobody's");
  if (!in_backend_) return;
  for (const auto& s : in_backend_->sequences) {
    const auto& p = participants_.at(s.sampling.seed - 1000);
    const auto table = pool.table(p.core->id());
    for (const auto b : s.blocks) {
      if (b == actors::no_block) continue; // see check_holes
      require(!pool.is_free(b), "a block that the running step writes is free", p.core->id().number);
      if (!table.empty())
        require(
            std::find(table.begin(), table.end(), b) != table.end(),
            "a block that the running step writes left its owner's table", p.core->id().number);
    }
  }
}

/// The scheduler waits until nobody touches its blocks.
bool simulation::copied_now(actors::request_id id) const {
  using parking = actors::scheduler_core::parking;
  return std::any_of(seen_.begin(), seen_.end(), [&](const auto& v) {
    return v.id == id && (v.parking == parking::saving || v.parking == parking::loading);
  });
}

bool simulation::is_closing(actors::request_id id) const {
  return std::any_of(seen_.begin(), seen_.end(), [&](const auto& v) { return v.id == id && v.closing; });
}

/// Within its bounds, and every slot in one place.
void simulation::check_parking() {
  const auto level = parker_.level();
  require(
      level.memory <= scenario_.park_memory && level.disk <= scenario_.park_disk,
      "more is parked than there is room for");
  if (mail_.sent() % 4 == 0) require(parker_.audit(), "parked blocks lie in two places, or in none");
}

void simulation::check_event(participant& p, const stream_event& event) {
  const auto id = p.core->id().number;
  require(!p.over, "an event after the terminal event", id);
  if (const auto* a = std::get_if<accepted_event>(&event)) {
    require(!p.accepted && p.events == 0, "accepted twice, or not first", id);
    require(a->prompt_token_ids == p.script->prompt, "accepted with another prompt", id);
    require(p.started || p.script->max_tokens == 0, "accepted before its first row", id);
    p.accepted = true;
  } else if (const auto* t = std::get_if<token_event>(&event)) {
    check_token(p, *t);
  } else {
    p.over = true;
    p.ended = now_;
    if (const auto* d = std::get_if<done_event>(&event))
      check_done(p, *d);
    else
      check_failure(p, std::get<failed_event>(event).why);
  }
}

void simulation::check_token(participant& p, const token_event& e) {
  const auto id = p.core->id().number;
  require(p.accepted, "a token before the request was accepted", id);
  require(e.seq == p.next_seq++, "events out of sequence", id);
  if (!e.token_ids.empty()) ++p.given;
  if (e.echo) return check_echo(p, e);
  require(
      !p.script->echo || p.echoed == p.script->prompt.size(), "a token before the prompt was echoed whole",
      id);
  for (const auto t : e.token_ids) {
    require(
        p.tokens.size() < p.expected.tokens.size() && p.expected.tokens[p.tokens.size()] == t,
        "token " + std::to_string(p.tokens.size()) + " differs from the request run alone", id);
    require(
        !p.script->not_finite_token || p.tokens.size() < *p.script->not_finite_token,
        "a token of a row that was not finite left", id);
    p.tokens.push_back(t);
  }
  p.text += e.text;
  require(p.expected.text.starts_with(p.text), "the text differs from the request run alone", id);
  require(
      e.logprobs.size() == (p.script->logprobs ? e.token_ids.size() : 0), "log probabilities are missing",
      id);
  require(
      e.top_logprobs.size() == (p.script->top_logprobs > 0 ? e.token_ids.size() : 0),
      "alternatives are missing", id);
  for (const auto& top : e.top_logprobs)
    require(
        top.size() == p.script->top_logprobs && top[0].logprob == e.logprobs[0].logprob, "wrong alternatives",
        id);
}

/// The prompt in order and once, each token with the score that the model gives it.
void simulation::check_echo(participant& p, const token_event& e) {
  const auto id = p.core->id().number;
  require(p.script->echo && p.tokens.empty(), "an echo that nobody asked for, or late", id);
  require(!e.token_ids.empty(), "an echo of nothing", id);
  require(e.logprobs.size() == (p.script->logprobs ? e.token_ids.size() : 0), "scores are missing", id);
  std::string text;
  for (std::size_t i = 0; i < e.token_ids.size(); ++i) {
    const auto token = e.token_ids[i];
    require(
        p.echoed < p.script->prompt.size() && p.script->prompt[p.echoed] == token,
        "the echo differs from the prompt", id);
    if (p.script->logprobs)
      require(
          p.echoed == 0 ? std::isnan(e.logprobs[i].logprob)
                        : e.logprobs[i].logprob == score_of(p.echo_state, token),
          "a score differs from the model's", id);
    ++p.echoed;
    p.echo_state =
        state_after(scenario_.model, std::span(p.script->prompt).first(p.echoed), p.script->prompt.size());
    text += plain_text({}).bytes_of(token);
  }
  require(e.text == text, "the echo's text differs from its tokens", id);
}

/// When the first of its group came: they time out together.
time_point simulation::group_submitted(const participant& p) const {
  time_point first = p.submitted;
  if (p.script->group == 0) return first;
  for (const auto& other : participants_)
    if (other.core && other.script->group == p.script->group) first = std::min(first, other.submitted);
  return first;
}

/// Whether another choice of its group runs.
bool simulation::group_runs(const participant& p) const {
  return p.script->group != 0 &&
         std::any_of(participants_.begin(), participants_.end(), [&](const auto& other) {
           return &other != &p && other.script->group == p.script->group && other.started && !other.finished;
         });
}

void simulation::check_done(participant& p, const done_event& e) {
  const auto id = p.core->id().number;
  ++result_.completed;
  require(p.accepted, "done before it was accepted", id);
  require(e.seq == p.next_seq, "the last event is out of sequence", id);
  require(e.usage.completion_tokens == p.tokens.size(), "usage differs from the tokens given", id);
  require(e.usage.prompt_tokens == p.script->prompt.size(), "usage differs from the prompt", id);
  if (e.reason == finish_reason::cancelled) {
    require(p.cancel_sent, "cancelled by nobody", id);
    ++result_.cancelled;
    return;
  }
  require(
      p.tokens == p.expected.tokens,
      "ended after " + std::to_string(p.tokens.size()) + " tokens instead of " +
          std::to_string(p.expected.tokens.size()),
      id);
  require(p.text == p.expected.text, "the whole text differs from the request run alone", id);
  require(!p.script->echo || p.echoed == p.script->prompt.size(), "the prompt was not echoed whole", id);
  require((e.reason == finish_reason::stop) == p.expected.stop, "the wrong finish reason", id);
  ++(p.expected.stop ? result_.stopped : result_.full_length);
  require(!p.script->poison || p.tokens.empty(), "a poisonous request gave tokens", id);
}

void simulation::check_failure(participant& p, const error& why) {
  const auto id = p.core->id().number;
  const auto& f = scenario_.faults;
  const bool door = !p.accepted && p.tokens.empty();
  const auto needs = [&](bool because) {
    require(
        because, "failed without cause: " + std::string(code_name(why.code)) + " (" + why.message + ")", id);
  };
  ++result_.failed[static_cast<std::size_t>(why.code)];
  require(!why.message.empty(), "a failure without a message", id);
  switch (why.code) {
  case errc::context_length_exceeded:
    needs(door && p.expects_refusal && !p.script->prompt.empty());
    break;
  case errc::bad_request:
    needs(door && p.script->prompt.empty());
    break;
  case errc::bad_template:
    needs(door && p.script->tokenising_fails);
    break;
  case errc::rate_limited:
  case errc::tenant_busy: {
    const auto& limits = scenario_.options.tenants;
    needs(
        why.code == errc::tenant_busy ? limits.max_live > 0
                                      : limits.requests_per_second + limits.tokens_per_second > 0);
    [[fallthrough]];
  }
  case errc::kv_cache_full:
  case errc::shed_low_priority:
  case errc::queue_full:
    needs(door);
    require(
        why.retry_after_ms > 0 && why.retry_after_ms <= 60'000 && why.queue_length,
        "a refusal under load without advice", id);
    break;
  case errc::model_loading:
    needs(door && p.submitted < time_point(scenario_.model_loads) + slack);
    break;
  case errc::draining:
    needs(door && draining_);
    break;
  case errc::shutdown:
    needs(cut_);
    break;
  case errc::cancelled:
    needs(door && p.cancel_sent);
    break;
  case errc::queue_timeout:
    needs(door && !p.started && now_ >= group_submitted(p) + scenario_.options.queue_timeout);
    break;
  case errc::deadline_exceeded:
    needs(p.script->deadline > duration::zero() && now_ >= p.submitted + p.script->deadline);
    break;
  case errc::slow_consumer:
    needs(p.paused_since != time_point::max() && p.given_up);
    // Half the credit back resumes it, unless that is still under way.
    needs(p.given - p.read_told > p.script->credit / 2 || now_ < p.told_at + std::chrono::milliseconds(5));
    break;
  case errc::poison_request:
    needs(p.failed_steps >= 2);
    if (f.step_fails == 0 && !allocation_failed_) needs(p.script->poison);
    break;
  case errc::not_finite: // tokens under way may be lost to a failure
    needs(
        p.script->not_finite_token && p.finished &&
        p.finished->completion_tokens == *p.script->not_finite_token);
    break;
  case errc::no_memory:
    needs(allocation_failed_);
    break;
  default:
    needs(false);
  }
}

/// The block table that reaches the backend is the one in the ledger.
void simulation::check_step_input(const kernels::step_input& input) {
  for (const auto& s : input.sequences) {
    const auto& p = participants_.at(s.sampling.seed - 1000);
    const auto id = p.core->id();
    const auto table = cache_.pool().table(id);
    const bool alive =
        std::any_of(seen_.begin(), seen_.end(), [&](const auto& v) { return v.id == id && !v.closing; });
    if (alive)
      require(
          s.blocks.size() == table.size() &&
              std::equal(
                  s.blocks.begin(), s.blocks.end(), table.begin(),
                  [](auto told, auto there) { return told == actors::no_block || told == there; }),
          "the backend's block table differs from the ledger", id.number);
  }
  check_holes(input);
  for (std::size_t i = 0; i < input.rows.size(); ++i) {
    const auto& s = input.sequences.at(input.rows[i].sequence);
    for_written(s, input.rows[i], [this](actors::block_id b) {
      require(cache_.pool().holders(b) <= 1, "a row writes a block that others hold, too");
    });
  }
}

void simulation::check_plan(const actors::run_step& step) {
  const auto& o = scenario_.options;
  std::uint64_t rows = 0, scored = 0;
  require(running_requests_.empty(), "a step was launched while another one runs");
  require(!step.entries.empty(), "an empty step was launched");
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
  const auto& o = scenario_.options;
  std::uint32_t decode_rows = 0, prompt_rows = 0;
  duration goal{};
  for (const auto& e : step.entries) { // a single row of a prompt counts for neither
    if (e.count > 1) prompt_rows += e.count;
    decode_rows += e.count == 1 && e.want_token && !e.open && e.first >= of(e.id).script->prompt.size();
  }
  for (const auto& v : scheduler_.requests()) {
    const duration g = o.tpot_goals[of(v.id).script->priority];
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

/// Only one that read nothing for the whole time is given up.
void simulation::check_patience(participant& p) {
  const auto id = p.core->id().number;
  require(p.paused_since != time_point::max(), "a reader with credit was given up", id);
  require(
      now_ >= std::max(p.paused_since, p.read_at) + p.script->slow_consumer,
      "a reader that reads was given up", id);
  p.given_up = true;
}

/// Whether the tenant has what its limits ask for, by a bucket kept here.
bool simulation::tenant_may(const tenant_seen& t) const {
  const auto& limits = scenario_.options.tenants;
  const double passed = std::chrono::duration<double>(now_ - t.at).count();
  const double level = std::min(limits.request_burst, t.requests + passed * limits.requests_per_second);
  return (limits.requests_per_second == 0 || level >= 1 - 1e-6) &&
         (limits.max_live == 0 || t.live < limits.max_live);
}

void simulation::note_admitted(actors::request_id id) {
  auto& t = tenants_[of(id).script->tenant];
  const auto& limits = scenario_.options.tenants;
  require(tenant_may(t), "admitted beyond its tenant's limits", id.number);
  const double passed = std::chrono::duration<double>(now_ - t.at).count();
  t.requests = std::min(limits.request_burst, t.requests + passed * limits.requests_per_second) - 1;
  t.at = now_;
  ++t.live;
}

void simulation::check_admission(const actors::admission_request& m) {
  ++submitted_;
  door_priority_ = m.priority;
  auto [tenant, fresh] = tenants_.try_emplace(of(m.id).script->tenant);
  if (fresh) tenant->second.requests = scenario_.options.tenants.request_burst;
  const double use = scheduler_.kv_use(); // before the message; its parts are checked after every turn
  door_use_ = use;
  door_was_full_ = open_ && !draining_ && use >= scenario_.options.kv_high_watermark;
  door_was_shedding_ = open_ && !draining_ && use >= scenario_.options.kv_low_watermark &&
                       m.priority >= scenario_.options.low_priority;
  const auto& o = scenario_.options;
  door_queue_full_ = scheduler_.queued() >= o.max_queue;
  door_could_displace_ =
      m.priority < o.low_priority && std::any_of(seen_.begin(), seen_.end(), [&](const auto& v) {
        const auto& p = of(v.id);
        return !v.seated && !v.closing && !v.started && p.script->group == 0 &&
               p.script->priority >= o.low_priority;
      });
}

void simulation::check_refusal(const actors::refused& m) {
  const auto& o = scenario_.options;
  ++result_.refused;
  note_shut(m);
  auto& tenant = tenants_[of(m.id).script->tenant];
  tenant.live -= of(m.id).handed_in; // it was admitted, and its prompt is refused
  // The door says nothing of levels that let go before.
  require(
      m.why.code != errc::kv_cache_full || full_.on(), "refused as full after the level let go", m.id.number);
  require(
      m.why.code != errc::shed_low_priority || shed_.on() || scheduler_.compute_use() > 0,
      "shed after the level let go", m.id.number);
  require(
      m.why.code != errc::tenant_busy || tenant.live >= o.tenants.max_live,
      "tenant_busy with few requests in hand", m.id.number);
  require(
      m.why.code != errc::rate_limited || o.tenants.tokens_per_second > 0 || !tenant_may(tenant),
      "rate_limited within its rate", m.id.number);
  const double use = std::max(door_use_, scheduler_.kv_use()); // a plan may have followed in the same turn
  switch (m.why.code) {
  case errc::kv_cache_full:
    require(
        use >= actors::reopening_level(o.kv_high_watermark, o.hysteresis) - 1e-9,
        "refused below the watermark", m.id.number);
    break;
  case errc::shed_low_priority:
    require(
        use >= actors::reopening_level(o.kv_low_watermark, o.hysteresis) - 1e-9 ||
            scheduler_.compute_use() >= actors::reopening_level(o.compute_low_watermark, o.hysteresis) - 1e-9,
        "shed below the watermarks", m.id.number);
    require(of(m.id).script->priority >= o.low_priority, "a high priority was shed", m.id.number);
    break;
  case errc::queue_full: {
    require(door_queue_full_, "queue_full while the queue had room", m.id.number);
    require(!door_could_displace_, "queue_full although one of low priority waited", m.id.number);
    const bool nobody = seen_.empty();
    require(!nobody, "queue_full although a place was free", m.id.number);
    break;
  }
  case errc::draining:
    require(draining_, "draining before the drain", m.id.number);
    break;
  case errc::model_loading:
    require(!open_, "model_loading after it was loaded", m.id.number);
    break;
  default:
    break;
  }
}

/// Told only once, and only when the ledger holds nothing for the request any more.
void simulation::check_finish(const actors::sequence_finished& m) {
  --tenants_[of(m.id).script->tenant].live;
  auto& p = of(m.id);
  require(!p.finished, "sequence_finished twice", m.id.number);
  check_displaced(m);
  p.finished = m;
  require(
      !m.failed || m.failed->code != errc::queue_timeout || !group_runs(p),
      "a choice timed out in the queue although its request runs", m.id.number);
  require(
      !m.failed || m.failed->code != errc::shed_low_priority ||
          (!p.started && !group_runs(p) &&
           (p.script->group != 0 || p.script->priority >= scenario_.options.low_priority)), // with its group
      "displaced though it runs, or is not of low priority", m.id.number);
  require(cache_.pool().held(m.id) == 0, "sequence_finished before its blocks were free", m.id.number);
  require(
      std::find(running_requests_.begin(), running_requests_.end(), m.id) == running_requests_.end() ||
          cache_.pool().level().limbo == 0,
      "sequence_finished while its blocks are in limbo", m.id.number);
}

void simulation::check_scheduler(std::string_view message) {
  const auto& o = scenario_.options;
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
          now_ <= v.arrival + o.queue_timeout + scenario_.faults.alarm_lateness + slack,
          "a request waits beyond the queue's timeout", v.id.number);
  }
  require(now_seen.size() > 0 || scheduler_.committed_blocks() == 0, "blocks are committed to nobody");
  // Those that were sent back from their seats had places of their own.
  require(
      waiting <= o.max_queue + scheduler_.stats().seats_yielded, "more requests in the queue than max_queue");
  require(waiting == scheduler_.queued(), "the queue's count differs from who is in it");
  if (message == "admission_request") {
    const bool grew = now_seen.size() > seen_.size();
    require(!(grew && door_was_full_), "admitted above the high watermark");
    require(!(grew && door_was_shedding_), "low priority admitted above the low watermark");
    require(!(grew && (draining_ || !open_)), "admitted while draining or loading");
  }
  if (message == "admission_request" && now_seen.size() > seen_.size())
    require(!full_.on(), "admitted before the level let go");
  check_flapping(message == "admission_request" && now_seen.size() > seen_.size(), door_priority_);
  full_.update(scheduler_.kv_use());
  shed_.update(scheduler_.kv_use());
  check_seating(now_seen);
  check_yielding(now_seen);
  check_preemptions(now_seen, message);
  if (launched_) {
    check_turns(now_seen);
    check_lengths(now_seen);
    check_prompt_shares(now_seen);
  }
  launched_ = false;
  seen_ = std::move(now_seen);
}

/// Of those that hold blocks, every decode row comes round, and some prompt gets on, however full the steps
/// are. Steps with a shortage or with a suspect alone do not count.
void simulation::check_turns(const std::vector<actors::scheduler_core::view>& now_seen) {
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

/// Who takes a seat past one of better rank: within a quantum of its rank tenants take turns; small ones pass
/// one that waits for memory, until it has waited a quantum longer than its rank says. And whoever could take
/// a seat has one.
void simulation::check_seating(const std::vector<actors::scheduler_core::view>& now_seen) {
  const auto& o = scenario_.options;
  const auto quantum = o.ageing_quantum.count();
  const auto before = [&](actors::request_id id) {
    const auto at =
        std::lower_bound(seen_.begin(), seen_.end(), id, [](const auto& v, auto x) { return v.id < x; });
    return at != seen_.end() && at->id == id ? &*at : nullptr;
  };
  const auto waits = [](const auto& v) { return !v.seated && !v.closing; };
  for (const auto& v : now_seen) {
    const auto* was = before(v.id);
    if (!v.seated || (was != nullptr && was->seated && was->seats_lost == v.seats_lost)) continue;
    const bool beside_a_large_one = std::any_of(
        now_seen.begin(), now_seen.end(), [&](const auto& w) { return waits(w) && v.whole <= w.whole / 4; });
    for (const auto& w : now_seen) {
      if (!waits(w) || std::pair(v.rank, v.id) < std::pair(w.rank, w.id)) continue;
      const bool turns = v.rank < w.rank + quantum && of(v.id).script->tenant != of(w.id).script->tenant;
      const bool small = beside_a_large_one && now_.time_since_epoch().count() < w.rank + quantum;
      const auto* had = before(w.id);
      const bool gave = had != nullptr && had->seated; // in this turn, to another
      require(turns || small || gave, "seated past a waiting request of better rank", v.id.number);
    }
    require(scheduler_.active_seats() <= o.max_batch, "more seats than max_batch", v.id.number);
    const auto seats =
        std::count_if(now_seen.begin(), now_seen.end(), [](const auto& w) { return w.seated; });
    // What others shared may have gone in the same turn.
    double grown = 0;
    for (const auto& w : now_seen)
      if (const auto* had = before(w.id); w.seated && had != nullptr && w.needs > had->needs)
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
void simulation::check_fairness(const std::vector<actors::scheduler_core::view>& now_seen) {
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
      2.0 * scenario_.options.max_batch * scenario_.limit() + actors::waiting_line::tokens_per_turn;
  require(
      std::abs(many - few) <= 0.1 * (many + few) + under_way,
      "tenants were served " + std::to_string(many) + " and " + std::to_string(few) + " tokens");
}

/// Whoever could take a seat has one, a few turns after the room for it came at the latest: a plan may change
/// what others are expected to need after the seats were looked at.
void simulation::check_no_idle_seat(const std::vector<actors::scheduler_core::view>& now_seen) {
  const auto& o = scenario_.options;
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
  if (first == nullptr || !one_tenant || !open_ || scheduler_.active_seats() >= scheduler_.most_seats())
    return;
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
/// oldest of its priority; and not for ever.
void simulation::check_yielding(const std::vector<actors::scheduler_core::view>& now_seen) {
  const auto& o = scenario_.options;
  for (const auto& v : now_seen) {
    const auto was =
        std::lower_bound(seen_.begin(), seen_.end(), v.id, [](const auto& s, auto x) { return s.id < x; });
    if (was == seen_.end() || was->id != v.id || was->seats_lost == v.seats_lost) continue;
    require(
        v.seats_lost == was->seats_lost + 1 && v.seats_lost <= 3, "loses its seat again and again",
        v.id.number);
    require(was->seated && !step_ran_, "a seat was taken in a running step", v.id.number);
    const auto priority = of(v.id).script->priority;
    const bool for_a_better = std::any_of(now_seen.begin(), now_seen.end(), [&](const auto& w) {
      const auto x = std::lower_bound(
          seen_.begin(), seen_.end(), w.id, [](const auto& s, auto id) { return s.id < id; });
      const bool took = w.seated && (x == seen_.end() || x->id != w.id || !x->seated);
      const bool at_once = priority >= o.low_priority && of(w.id).script->priority < o.low_priority;
      return took && of(w.id).script->priority < priority && w.rank < v.rank &&
             (at_once || now_ >= w.arrival + o.ttft_goal);
    });
    require(for_a_better, "lost its seat to nobody of higher class", v.id.number);
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
void simulation::check_preemptions(
    const std::vector<actors::scheduler_core::view>& now_seen, std::string_view message) {
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

/// Every wait has an end.
void simulation::check_bounds() {
  const auto late = scenario_.faults.alarm_lateness + slack + 4 * scenario_.step_time;
  for (const auto& p : participants_) {
    if (!p.core || p.over) continue;
    const auto id = p.core->id().number;
    if (p.script->deadline > duration::zero())
      require(now_ <= p.submitted + p.script->deadline + late, "still there after its deadline", id);
    if (p.left_at != time_point::max())
      require(now_ <= p.left_at + late, "still there after its client left", id);
    if (p.silent_since != time_point::max())
      require(now_ <= p.silent_since + p.script->slow_consumer + late, "a slow reader is still there", id);
  }
  // A sequence with blocks gets a row before the others could have used the budget up many times over.
  const auto& o = scenario_.options;
  const std::uint64_t live = seen_.size();
  // Elders that are preempted for the test's sake are computed again and again before it.
  const std::uint64_t again = o.preempt_every != 0 ? scenario_.context : 1;
  const std::uint64_t patience = 64 + 16 * live * again * (1 + 4 * scenario_.context / o.max_step_tokens);
  for (const auto& v : seen_) {
    auto& p = participants_.at(v.id.number - 1);
    if (v.held == 0 || v.paused || v.closing || p.failed_steps > 0 || copied_now(v.id)) {
      p.last_in_step = steps_launched_;
      continue;
    }
    require(
        steps_launched_ - p.last_in_step <= patience, "a running sequence is passed over for ever",
        v.id.number);
  }
}

/// Of prompts under way, none is left out of a step for a longer one that is not the eldest.
void simulation::check_lengths(const std::vector<actors::scheduler_core::view>& now_seen) {
  const bool undisturbed = scenario_.faults.step_fails == 0 && scenario_.faults.allocation_fails == 0 &&
                           row_faults_.poison_seeds.empty() && row_faults_.not_finite.empty();
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

/// Nothing is under way and time is about to jump: whoever could run must have a reason to wait.
void simulation::check_not_stalled() {
  if (!mail_.empty() || in_backend_ || copying_ || !open_) return;
  for (const auto& v : seen_) {
    const auto& p = participants_.at(v.id.number - 1);
    if (v.closing) complain("an ended sequence waits for nobody", v.id.number);
    if (v.seated && !v.paused && p.handed_in) {
      const auto& o = scenario_.options;
      const bool may_wait =
          !v.started && o.max_wait > duration::zero() && scheduler_alarm_at_ <= now_ + o.max_wait;
      const bool late_alarm = scheduler_alarm_at_ == time_point::max() || scheduler_alarm_at_ <= now_;
      const bool lateness =
          scenario_.faults.alarm_lateness > duration::zero() && o.max_wait > duration::zero() && late_alarm;
      require(may_wait || lateness, "a request that could run waits for nothing", v.id.number);
    }
  }
}

void simulation::check_end() {
  for (const auto& p : participants_) {
    const auto id = p.core->id().number;
    require(p.over && p.retired, "never ended", id);
  }
  require(scheduler_.idle(), "the scheduler still knows requests");
  require(cache_.pool().audit(), "the ledger's counts differ from its blocks");
  require(cache_.pool().available() == scenario_.blocks, "blocks are not free at the end");
  require(cache_.pool().owners() == 0, "blocks are leased at the end");
  require(executor_.sequences() == 0, "the executor still knows sequences");
  require(executor_.running_step() == 0, "the executor still runs a step");
  require(scheduler_.committed_blocks() == 0, "blocks are committed at the end");
  const auto parked = parker_.level();
  require(parked.sequences == 0 && !parker_.busy(), "something is parked at the end");
  require(parked.memory == 0 && parked.disk == 0, "parked blocks are not free at the end");
  require(drained_ == draining_, "drained was not told");
  const auto s = scheduler_.stats();
  std::uint64_t ended = s.finished_stop + s.finished_length + s.cancelled;
  for (const auto n : s.failed) ended += n;
  require(ended == s.submitted && s.submitted == participants_.size(), "the counters do not add up");
  require(s.steps == steps_launched_, "steps were miscounted");
  require(s.parked == 0, "a park ended neither in a resume nor in a release");
}

} // namespace troupe::sim
