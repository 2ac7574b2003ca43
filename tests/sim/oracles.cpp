// SPDX-License-Identifier: Apache-2.0
// What must hold after every message and at the end of a run: the ledger, the bounds on every wait, the end.
#include "sim/simulation.hpp"

#include <algorithm>
#include <utility>

namespace troupe::sim {

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
  if (down_) return;
  const auto& pool = cache_.pool();
  require(pool.balanced(), "free + leased + limbo + cached is not total");
  if (mail_.sent() % 16 == 0) require(pool.audit(), "the ledger's counts differ from its blocks");
  if (mail_.sent() % 4 == 0) check_groups();
  check_endings();
  if (copying_ && copying_->work != actors::park_work::write && copying_->work != actors::park_work::read)
    for (const auto& m : copying_->all())
      require(pool.holders(m.block) >= 1, "a block that is copied is nobody's");
  if (!in_backend_) return;
  check_sources();
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
  if (mail_.sent() % 4 == 0)
    require(parker_.audit(now_), "parked blocks lie in two places, in none, or where they should not");
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
  check_copies(input);
}

/// Every wait has an end.
void simulation::check_bounds() {
  if (down_) return;
  const auto late = scenario_.faults.alarm_lateness + slack + 4 * scenario_.step_time;
  for (const auto& p : participants_) {
    if (!p.core || p.over) continue;
    const auto id = p.core->id().number;
    if (p.script->deadline > duration::zero())
      require(
          now_ <= std::max(p.submitted + p.script->deadline, up_since_) + late,
          "still there after its deadline", id);
    if (p.left_at != time_point::max())
      require(now_ <= std::max(p.left_at, up_since_) + late, "still there after its client left", id);
    if (p.silent_since != time_point::max())
      require(
          now_ <= std::max(p.silent_since + p.script->slow_consumer, up_since_) + late,
          "a slow reader is still there", id);
  }
  // A sequence with blocks gets a row before the others could have used the budget up many times over.
  const auto& o = policy_;
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

/// Nothing is under way and time is about to jump: whoever could run must have a reason to wait.
void simulation::check_not_stalled() {
  if (!mail_.empty() || in_backend_ || copying_ || !open_ || down_) return;
  for (const auto& v : seen_) {
    const auto& p = participants_.at(v.id.number - 1);
    if (v.closing) complain("an ended sequence waits for nobody", v.id.number);
    if (v.seated && !v.paused && p.handed_in) {
      const auto& o = policy_;
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
  require(
      ended == s.submitted &&
          (s.submitted == participants_.size() || generation_ != first_generation || down_),
      "the counters do not add up");
  require(s.steps == steps_launched_, "steps were miscounted");
  require(s.parked == 0, "a park ended neither in a resume nor in a release");
  if (scenario_.all_stays) check_choices();
}

} // namespace troupe::sim
