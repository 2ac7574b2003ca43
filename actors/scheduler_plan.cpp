// SPDX-License-Identifier: Apache-2.0
// The scheduler's steps: which rows, whose blocks, and who yields.
#include "actors/scheduler_core.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

namespace troupe::actors {
namespace {

/// Looks again after a step that nobody could run in, should no message come first.
constexpr auto retry_delay = std::chrono::milliseconds(10);
constexpr std::uint64_t probe_every = 16; ///< steps

} // namespace

void scheduler_core::plan_step(turn& t) {
  retry_at_ = time_point::max();
  collect_candidates(t);
  if (candidates_.empty() && restores_.empty()) return;
  if (restores_.empty() && waits_for_company(t)) return;
  keep_one_suspect();
  share_budget();
  if (candidates_.empty() && restores_.empty()) return;
  ++step_seq_;
  plan_.clear();
  for (const auto& c : candidates_) {
    const bool all = c.s->computed + c.rows == c.s->known();
    plan_.push_back(
        {c.s->id, c.s->computed, c.rows, all && c.s->wish.max_tokens > 0,
         c.s->scores_wanted() > 0 ? c.s->scored : no_limit});
  }
  for (const sequence* s : restores_)
    if (groups_.forgets())
      plan_.push_back({s->id, s->parked_positions, 0, false, no_limit, true});
    else
      plan_.push_back({s->id, 0, s->known(), false, no_limit, true});
  ask_for_blocks(t);
}

/// Everyone who could use a row now: running ones, then ready ones in order of rank for whom there is room.
void scheduler_core::collect_candidates(turn& t) {
  candidates_.clear();
  restores_.clear();
  scratch_.clear();
  std::uint32_t running = 0;
  std::int64_t available =
      static_cast<std::int64_t>(model_.kv_blocks) - static_cast<std::int64_t>(used_blocks());
  for (auto* s : seated_) {
    if (s->paused) {
      available += s->held; // the first to yield
      continue;
    }
    cross_border(*s, t);
    if (s->phase == phase::running) {
      ++running;
      const std::uint32_t most = most_blocks(goes_on_at(*s), s->known()); // its prompt, still to come
      available -= most - std::min(most, s->held);
      if (s->parking != parking::loading) candidates_.push_back({s, s->known() - s->computed, 0});
    } else if (s->phase == phase::ready && s->parking != parking::saving) {
      scratch_.push_back(s);
    }
  }
  open_ready(running, available, t);
}

/// A sequence begins, or begins anew, only with all it has to compute in reach and a block to spare for each
/// one that runs: else it would be preempted at once. In order of rank, and nobody past one who must wait for
/// blocks. One whose prefix is being computed waits for that, and holds nobody up.
void scheduler_core::open_ready(std::uint32_t running, std::int64_t available, turn& t) {
  std::sort(scratch_.begin(), scratch_.end(), [](const auto* a, const auto* b) { return elder(*a, *b); });
  opening_.clear();
  for (auto* s : scratch_) {
    const auto shared = shared_with_running(*s);
    s->shared = may_find(*s) ? shared.blocks * groups_.whole() : 0;
    recount(*s);
    const bool twice = shared.numbers < s->chain.size() && opening_.contains(s->chain[shared.numbers]);
    if (may_find(*s) && (shared.being_computed || twice)) continue;
    const std::uint32_t begins = may_find(*s) ? shared.blocks * model_.block_tokens : 0;
    const std::int64_t need =
        most_blocks(std::max(begins, goes_on_at(*s)), s->known()) - static_cast<std::int64_t>(s->shared);
    if (running > 0 && available < need + std::int64_t{running} * groups_.size()) return prefetch(*s, t);
    opening_.insert(s->chain.begin() + shared.numbers, s->chain.end());
    available -= need;
    ++running;
    if (s->parking == parking::parked)
      restores_.push_back(s);
    else
      candidates_.push_back({s, s->known(), 0});
  }
}

/// True when nothing runs yet, the batch has room, and the first to come has not waited `max_wait`.
bool scheduler_core::waits_for_company(turn& t) {
  if (options_.max_wait <= duration::zero() || candidates_.size() >= most_seats()) return false;
  for (const auto* s : seated_)
    if (s->started && !s->paused) return false; // a stream under way, even if it waits for blocks
  auto first = time_point::max();
  for (const auto& c : candidates_) first = std::min(first, c.s->ready_since);
  if (first + options_.max_wait <= t.now) return false;
  retry_at_ = first + options_.max_wait;
  ++stats_.company_waits;
  return true;
}

/// A sequence that was in a failed step is tried alone until it has drawn a token: if that fails too, it is
/// to blame, and its neighbours are spared.
void scheduler_core::keep_one_suspect() {
  sequence* suspect = nullptr;
  bool others = false;
  for (const auto& c : candidates_) {
    if (c.s->strikes == 0)
      others = true;
    else if (suspect == nullptr || elder(*c.s, *suspect))
      suspect = c.s;
  }
  if (suspect == nullptr) return;
  const bool yields =
      others && stuck_in_a_row_ % 2 == 1; // it lacked blocks that only its elders could give up
  std::erase_if(candidates_, [&](const candidate& c) { return yields ? c.s->strikes > 0 : c.s != suspect; });
}

/// Cuts the candidates down to `max_batch` sequences and `max_step_tokens` rows. Decode rows come first, but
/// a quarter of the rows is kept for prompts while there are any, so that neither starves the other; whoever
/// was passed over is first the next time.
///
/// Prompts: the eldest has a quarter of the rows they get, the rest goes by length, the shorter first
/// (by powers of four of what is left of them), then by rank: a long one never holds a short one up.
/// While streams are under way the rows of prompts are cut to what keeps the step within `step_limit`, but
/// not below `least_prefill_rows`.
void scheduler_core::share_budget() {
  const auto longest_waiting = [](const candidate& a, const candidate& b) {
    return a.s->last_step != b.s->last_step ? a.s->last_step < b.s->last_step : elder(*a.s, *b.s);
  };
  if (candidates_.size() > options_.max_batch) {
    std::sort(candidates_.begin(), candidates_.end(), longest_waiting);
    candidates_.resize(options_.max_batch);
  }
  const auto decodes = std::partition(
      candidates_.begin(), candidates_.end(), [](const candidate& c) { return c.wanted == 1; });
  const auto decode_count = static_cast<std::uint32_t>(decodes - candidates_.begin());
  std::uint32_t budget = options_.max_step_tokens;
  std::uint32_t for_decode = budget;
  if (decodes != candidates_.end())
    for_decode -=
        budget > 1 ? std::max<std::uint32_t>(1, budget / 4) : static_cast<std::uint32_t>(step_seq_ & 1U);
  if (decode_count > for_decode) std::sort(candidates_.begin(), decodes, longest_waiting);
  for (auto c = candidates_.begin(); c != decodes; ++c)
    c->rows = static_cast<std::uint32_t>(c - candidates_.begin()) < for_decode ? 1 : 0;
  share_among_prompts(decodes - candidates_.begin(), budget - std::min(decode_count, for_decode));
  std::erase_if(candidates_, [](const candidate& c) { return c.rows == 0; });
  for (auto& c : candidates_) c.s->last_step = step_seq_ + 1;
  std::sort(
      candidates_.begin(), candidates_.end(), [](const auto& a, const auto& b) { return a.s->id < b.s->id; });
}

/// `budget` rows for the candidates from `from` on; those before it have their decode rows.
void scheduler_core::share_among_prompts(std::ptrdiff_t from, std::uint32_t budget) {
  const auto prompts = candidates_.begin() + from;
  if (prompts == candidates_.end()) return;
  step_shape shape;
  for (auto c = candidates_.begin(); c != prompts; ++c)
    if (c->rows > 0) shape.add(c->s->computed, 1, true);
  const duration limit = step_limit(shape);
  // Steps that are always full would never show what a prompt's row costs and what a decode row.
  if (shape.decode_rows > 0 && step_seq_ % probe_every == probe_every - 1) budget -= budget / 2;
  std::uint32_t scores = options_.max_scored_rows, given = 0;
  bool cut = false;
  const auto give = [&](candidate& c, std::uint32_t most) {
    const std::uint32_t asked = std::min({c.wanted - c.rows, budget, most});
    const std::uint32_t free_of_charge =
        options_.least_prefill_rows - std::min(options_.least_prefill_rows, given);
    const std::uint32_t in_time =
        std::max(std::min(asked, free_of_charge), within_time(shape, c.s->computed + c.rows, asked, limit));
    cut = cut || in_time < asked;
    const std::uint32_t rows = within_scores(*c.s, c.rows, in_time, scores);
    if (rows == 0) return;
    shape.add(c.s->computed + c.rows, rows, false);
    c.rows += rows;
    given += rows;
    budget -= rows;
  };
  std::sort(
      prompts, candidates_.end(), [](const candidate& a, const candidate& b) { return elder(*a.s, *b.s); });
  give(*prompts, candidates_.end() - prompts == 1 ? budget : std::max(1U, budget / 4));
  const auto length_class = [](const candidate& c) { return std::bit_width(c.wanted | 63U) / 2; };
  std::stable_sort(prompts, candidates_.end(), [&](const candidate& a, const candidate& b) {
    return length_class(a) < length_class(b);
  });
  for (auto c = prompts; c != candidates_.end(); ++c) give(*c, budget);
  stats_.cut_steps += cut;
}

/// How long a step with these decode rows may take; 0: as long as it likes.
duration scheduler_core::step_limit(const step_shape& decodes) const noexcept {
  if (decodes.decode_rows == 0 || !step_times_.knows()) return {};
  const duration goal = strictest_goal(nullptr);
  return goal > duration::zero() ? goal : 2 * step_times_.predict(decodes);
}

/// The most of `rows` more rows from position `first` on that keep the step within `limit`.
std::uint32_t scheduler_core::within_time(
    const step_shape& shape, std::uint32_t first, std::uint32_t rows, duration limit) const noexcept {
  if (limit == duration::zero()) return rows;
  std::uint32_t fits = 0, too_many = rows + 1;
  while (too_many - fits > 1) {
    const std::uint32_t tried = fits + (too_many - fits) / 2;
    step_shape with = shape;
    with.add(first, tried, false);
    (step_times_.predict(with) <= limit ? fits : too_many) = tried;
  }
  return fits;
}

/// Of `rows` rows after the `given` ones, as many as leave no more than `left` that want a score; takes those
/// from `left`.
std::uint32_t scheduler_core::within_scores(
    const sequence& s, std::uint32_t given, std::uint32_t rows, std::uint32_t& left) const {
  const std::uint32_t from = s.computed + given, first = std::max(from, s.scored), end = s.scores_wanted();
  if (first >= end || from + rows <= first) return rows;
  const std::uint32_t wanted = std::min(from + rows, end) - first;
  if (wanted <= left) {
    left -= wanted;
    return rows;
  }
  rows = first - from + left;
  left = 0;
  return rows;
}

/// The client was told that its request runs: what is left of it waits as long as it takes.
void scheduler_core::begin_group(std::uint64_t group) {
  std::erase_if(unstarted_, [&](const queue_key& k) { return find(k.id)->group == group; });
}

bool scheduler_core::begun(std::uint64_t group) const noexcept {
  return group != 0 && std::any_of(sequences_.begin(), sequences_.end(), [&](const auto& one) {
           return one.second.group == group && one.second.started;
         });
}

/// Asks for the blocks that the plan lacks, elders first; most steps lack none and run at once.
void scheduler_core::ask_for_blocks(turn& t) {
  scratch_.clear();
  for (const auto& p : plan_) {
    auto* s = find(p.id);
    if (groups_.indices(p.first + p.count) > s->indices) scratch_.push_back(s);
  }
  if (scratch_.empty()) {
    launch(t);
    return;
  }
  std::sort(scratch_.begin(), scratch_.end(), [](const auto* a, const auto* b) { return elder(*a, *b); });
  reserve_blocks ask{step_seq_, {}};
  ask.demands.reserve(scratch_.size());
  for (auto* s : scratch_) {
    const auto p = std::find_if(plan_.begin(), plan_.end(), [&](const planned& x) { return x.id == s->id; });
    ask.demands.push_back(demand_of(*s, *p));
    s->demand_pending = true;
  }
  step_ = step_state::reserving;
  t.out.emplace_back(std::move(ask));
}

void scheduler_core::on(blocks_reserved&& m, time_point now, scheduler_effects& out) {
  turn t{now, out};
  note_used(m.level);
  if (step_ != step_state::reserving || m.step_seq != step_seq_) return;
  note_passed();
  for (auto& g : m.grants) {
    auto* s = find(g.id);
    if (s == nullptr || s->phase == phase::closing) continue; // its release is under way
    s->new_blocks.insert(s->new_blocks.end(), g.blocks.begin(), g.blocks.end());
    if (table_known(*s)) note_table(*s, g.blocks);
    s->indices += static_cast<std::uint32_t>(g.blocks.size()) / groups_.size();
    s->demand_pending = false;
    if (s->phase == phase::ready) begin_behind(*s, g);
    count_held(*s);
    s->shared = 0;
    s->phase = phase::running;
    recount(*s);
    if (s->parking == parking::parked) begin_restoring(*s, g.cached, t);
  }
  for (const auto& p : plan_) find(p.id)->demand_pending = false;
  const std::uint32_t stuck = stuck_in_a_row_;
  fail_unserved(m, t);
  resolve_shortage(m, t);
  // Others may be chosen the next time; if nobody can run however the plan is cut, time must help, or the end
  // of a copy.
  if (stuck_in_a_row_ <= 2 * seated_.size() && (copies_ == 0 || stuck_in_a_row_ <= stuck))
    pump(t);
  else
    set_next_alarm(t);
}

/// Without memory for it the sequence cannot be parked, and nothing else.
void scheduler_core::note_table(sequence& s, const std::vector<block_id>& granted) noexcept {
  try {
    s.table.insert(s.table.end(), granted.begin(), granted.end());
  } catch (const std::bad_alloc&) {
    s.table.clear();
  }
}

/// A demand that was neither granted nor found short met an allocation failure in the ledger.
void scheduler_core::fail_unserved(const blocks_reserved& m, turn& t) {
  scratch_.clear();
  for (const auto& p : plan_) {
    auto* s = find(p.id);
    const bool told =
        std::any_of(m.shortages.begin(), m.shortages.end(), [&](const auto& x) { return x.id == p.id; });
    if (!told && s->indices < groups_.indices(p.first + p.count)) scratch_.push_back(s);
  }
  for (auto* s : scratch_)
    end_sequence(*s, {errc::no_memory, "no memory to note the request's KV blocks", {}, 0}, t);
}

/// The eldest in need is helped, or passed over together with all that are short: nobody younger takes what
/// it waits for. Ends by asking again or by running what is left.
void scheduler_core::resolve_shortage(const blocks_reserved& m, turn& t) {
  bool helped = false, passed_over = false;
  for (const auto& x : m.shortages) {
    auto* s = find(x.id);
    if (s == nullptr || s->phase == phase::closing) continue;
    if (helped) continue;
    if (s->paused) { // meanwhile: nobody yields to it
      drop_from_plan(x.id);
      continue;
    }
    if (!passed_over) {
      std::size_t able = 0; // planned sequences that could run without help
      for (const auto& p : plan_)
        able +=
            std::none_of(m.shortages.begin(), m.shortages.end(), [&](const auto& y) { return y.id == p.id; });
      if (x.missing <= leaving_) { // soon
        passed_over = true;
        drop_from_plan(x.id);
        continue;
      }
      const auto missing = static_cast<std::uint32_t>(x.missing - leaving_);
      if (pick_victims(*s, missing, able == 0 && copies_ == 0, t.now)) {
        stats_.preemptions += victims_.size();
        for (auto* v : victims_) preempt(*v, t);
        helped = true;
        continue;
      }
    }
    passed_over = true;
    drop_from_plan(x.id);
  }
  if (helped) {
    ask_for_blocks(t);
    return;
  }
  if (passed_over && plan_.empty()) {
    ++stuck_in_a_row_;
    retry_at_ = t.now + retry_delay;
  }
  launch(t);
}

void scheduler_core::launch(turn& t) {
  if (plan_.empty()) { // all cancelled, or short of blocks that nobody can give
    step_ = step_state::idle;
    return;
  }
  run_step step{step_seq_, {}};
  step.entries.reserve(plan_.size());
  std::uint32_t rows = 0;
  shape_ = {};
  for (const auto& p : plan_) {
    sequence& s = *find(p.id);
    shape_.add(p.first, p.count, p.count == 1 && p.first >= s.prompt_tokens);
    auto& e = step.entries.emplace_back();
    e = {
        p.id,
        p.first,
        p.count,
        p.want_token,
        std::exchange(s.new_blocks, {}),
        std::nullopt,
        p.score_from,
        std::exchange(s.copy, std::nullopt)};
    if (e.copy) {
      end_awaited_ = true; // until then the block that is copied is kept
      ++stats_.prefix_copied_blocks;
    }
    if (!s.opened) {
      e.open = sequence_opening{s.wish.prompt,       s.generated, s.wish.sampling, s.wish.logprobs,
                                s.wish.top_logprobs, s.filter,    s.known()};
      s.opened = true;
      s.fresh_tokens = 0;
    }
    s.in_step = true;
    rows += p.count;
    if (!s.started) {
      s.started = true;
      unstarted_.erase({s.arrival.time_since_epoch().count(), s.id});
      if (s.group != 0) begin_group(s.group);
      stats_.queue_time.add(t.now - s.arrival);
      t.out.emplace_back(started{s.id});
    }
  }
  // Its source is kept for this step only.
  assert(std::none_of(seated_.begin(), seated_.end(), [](const auto* s) { return s->copy.has_value(); }));
  const auto width = static_cast<std::uint32_t>(plan_.size());
  stuck_in_a_row_ = 0;
  ++stats_.steps;
  stats_.last_step_rows = rows;
  stats_.last_step_sequences = width;
  stats_.step_rows_max = std::max(stats_.step_rows_max, rows);
  stats_.step_sequences_max = std::max(stats_.step_sequences_max, width);
  step_ = step_state::running;
  t.out.emplace_back(std::move(step));
}

/// The oldest block holder of each effective class, ascending by class.
void scheduler_core::mark_class_elders(time_point now) {
  elders_.clear();
  for (const auto* s : seated_) {
    if (s->held == 0 || s->paused) continue;
    const auto c = line_.class_of(s->rank, now);
    const auto at = std::find_if(elders_.begin(), elders_.end(), [&](const auto& e) { return e.first == c; });
    if (at == elders_.end())
      elders_.emplace_back(c, s);
    else if (
        queue_key{s->arrival.time_since_epoch().count(), s->id} <
        queue_key{at->second->arrival.time_since_epoch().count(), at->second->id})
      at->second = s;
  }
}

/// Fills `victims_` with who yields `missing` blocks to `needy`; false, and nobody, when they cannot be
/// found. Paused sequences first; then younger ones of the lowest effective class, the least computed first.
/// The oldest of a class is spared, except as a `last_resort`, when nothing could run otherwise.
bool scheduler_core::pick_victims(
    const sequence& needy, std::uint32_t missing, bool last_resort, time_point now) {
  mark_class_elders(now);
  const auto spared = [&](const sequence& s) {
    return !last_resort &&
           std::any_of(elders_.begin(), elders_.end(), [&](const auto& e) { return e.second == &s; });
  };
  victims_.clear();
  for (auto* s : seated_)
    if (s != &needy && s->held > 0 && s->parking != parking::loading &&
        (s->paused || (elder(needy, *s) && !spared(*s))))
      victims_.push_back(s);
  std::sort(victims_.begin(), victims_.end(), [&](const auto* a, const auto* b) {
    if (a->paused != b->paused) return a->paused;
    const auto ca = line_.class_of(a->rank, now), cb = line_.class_of(b->rank, now);
    if (ca != cb) return ca > cb;
    if (a->computed != b->computed) return a->computed < b->computed;
    return elder(*b, *a);
  });
  std::uint32_t found = 0;
  std::size_t count = 0;
  while (count < victims_.size() && found < missing) found += victims_[count++]->held;
  victims_.resize(found < missing ? 0 : count);
  return found >= missing;
}

/// Gives the sequence's blocks back, perhaps after a copy of them; it keeps its seat and rank and goes on
/// later, or is computed anew. Never in a running step.
void scheduler_core::preempt(sequence& s, turn& t, bool may_park) {
  assert(!s.in_step && s.parking == parking::none);
  if (s.opened) t.out.emplace_back(close_sequence{s.id});
  s.opened = false;
  if (s.held > 0) {
    if (!may_park || !begin_parking(s, t)) t.out.emplace_back(release_blocks{s.id, 0});
    ++s.releases_pending;
    s.in_transit += s.held;
    in_transit_ += s.held;
  }
  leave_chain(s);
  s.held = s.indices = s.passed = 0;
  s.shared = 0;
  s.computed = 0;
  s.published = 0;
  s.tail_published = false;
  s.copy.reset();
  s.new_blocks.clear();
  s.table.clear();
  s.phase = phase::ready;
  s.ready_since = t.now;
  recount(s);
  drop_from_plan(s.id);
}

/// For tests: whoever's turn it is, if it drew a token since it was opened, so that everyone gets on.
void scheduler_core::force_preemption(turn& t) {
  if (options_.preempt_every == 0 || stats_.steps % options_.preempt_every != 0) return;
  scratch_.clear();
  for (auto* s : seated_)
    if (s->phase == phase::running && s->parking == parking::none && s->fresh_tokens > 0)
      scratch_.push_back(s);
  if (scratch_.empty()) return;
  ++stats_.preemptions;
  preempt(*scratch_[stats_.steps / options_.preempt_every % scratch_.size()], t);
}

void scheduler_core::drop_from_plan(request_id id) {
  std::erase_if(plan_, [&](const planned& p) { return p.id == id; });
}

} // namespace troupe::actors
