// SPDX-License-Identifier: Apache-2.0
// Oracles of the door's policies that reckon for themselves what the cores reckon in code of their own.
#include "sim/simulation.hpp"

#include <algorithm>
#include <bit>

namespace troupe::sim {

/// A full queue takes the last in line of low priority, never one before it.
void simulation::check_displaced(const actors::sequence_finished& m) {
  const auto& o = policy_;
  if (!m.failed || m.failed->code != errc::shed_low_priority || of(m.id).script->group != 0) return;
  const auto gone = std::find_if(seen_.begin(), seen_.end(), [&](const auto& v) { return v.id == m.id; });
  if (gone == seen_.end()) return;
  for (const auto& v : scheduler_.requests()) {
    const auto& script = *of(v.id).script;
    const bool waits = !v.seated && !v.closing && !v.started && script.group == 0;
    if (waits && script.priority >= o.low_priority &&
        std::pair(v.rank, v.id) > std::pair(gone->rank, gone->id))
      complain("displaced before one of low priority that stands behind it", m.id.number);
  }
}

/// The door says that the KV cache is too full, and keeps to it until its use has fallen by the hysteresis.
void simulation::note_shut(const actors::refused& m) {
  const auto& goals = policy_.tpot_goals;
  const bool by_memory =
      std::all_of(goals.begin(), goals.end(), [](duration g) { return g == duration::zero(); });
  if (m.why.code == errc::kv_cache_full) shut_to_all_ = true;
  if (m.why.code == errc::shed_low_priority && by_memory) shut_to_low_ = true;
}

void simulation::check_flapping(bool admitted, std::uint32_t priority) {
  const auto& o = policy_;
  require(!(admitted && shut_to_all_), "the door opens before the use of the KV cache has fallen");
  require(
      !(admitted && shut_to_low_ && priority >= o.low_priority),
      "low priority comes in before the use of the KV cache has fallen");
  const auto fallen = [&](double watermark) {
    return scheduler_.kv_use() < std::max(watermark - o.hysteresis, watermark / 2);
  };
  shut_to_all_ = shut_to_all_ && !fallen(o.kv_high_watermark);
  shut_to_low_ = shut_to_low_ && !fallen(o.kv_low_watermark);
}

/// In a step of prompts alone, which no time limits, the eldest has a quarter of the rows, or all it wants,
/// and more only when the shorter ones have all they want; the others come in order of length.
void simulation::check_prompt_shares(const views& now_seen) {
  const bool undisturbed = generation_ == first_generation && scenario_.faults.step_fails == 0 &&
                           scenario_.faults.allocation_fails == 0 && row_faults_.poison_seeds.empty() &&
                           row_faults_.not_finite.empty();
  if (!undisturbed || shortage_ || !prompts_only_ || !scenario_.memory_orders.empty()) return;
  struct prompt {
    std::pair<std::int64_t, actors::request_id> rank;
    std::uint64_t left;
    std::uint32_t rows;
    int length_class() const { return static_cast<int>(std::bit_width(left | 63U) / 2); }
  };
  std::vector<prompt> prompts;
  const auto seated = std::ranges::count_if(now_seen, [](const auto& v) { return v.seated && !v.closing; });
  for (const auto& v : now_seen) {
    const auto& script = *of(v.id).script;
    const std::uint64_t left = script.prompt.size() + v.generated - v.computed;
    const bool loads = v.parking == actors::scheduler_core::parking::loading;
    if (v.held == 0 || !v.seated || v.paused || v.closing || loads || left == 0) continue;
    if (of(v.id).paused_at_plan) continue; // resumed while blocks were reserved
    if (script.echo || left == 1) return;  // scores have a limit of their own; a decode row was passed over
    const auto at = std::find(running_requests_.begin(), running_requests_.end(), v.id);
    const auto rows = at == running_requests_.end() ? 0 : running_rows_[at - running_requests_.begin()];
    prompts.push_back({{v.rank, v.id}, left, rows});
  }
  const auto& o = policy_;
  if (prompts.size() < 2 || seated > o.max_batch || o.max_step_tokens < 4) return;
  std::sort(prompts.begin(), prompts.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  const prompt& eldest = prompts.front();
  const std::uint32_t quarter = std::max(1U, o.max_step_tokens / 4);
  const auto id = eldest.rank.second.number;
  require(
      eldest.rows >= std::min<std::uint64_t>(eldest.left, quarter), "the eldest prompt has too few rows", id);
  for (std::size_t i = 1; i < prompts.size(); ++i) {
    const prompt& one = prompts[i];
    if (one.rows == one.left) continue;
    for (std::size_t k = 0; k < prompts.size(); ++k)
      require(
          one.length_class() >= prompts[k].length_class() || prompts[k].rows <= (k == 0 ? quarter : 0),
          "a longer prompt has rows that a shorter one wants", one.rank.second.number);
  }
}

} // namespace troupe::sim
