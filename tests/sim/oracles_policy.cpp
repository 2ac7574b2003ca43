// SPDX-License-Identifier: Apache-2.0
// Oracles of the door's policies that reckon for themselves what the cores reckon in code of their own.
#include "sim/simulation.hpp"

#include <algorithm>

namespace troupe::sim {

/// A full queue takes the last in line of low priority, never one before it.
void simulation::check_displaced(const actors::sequence_finished& m) {
  const auto& o = scenario_.options;
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
  const auto& goals = scenario_.options.tpot_goals;
  const bool by_memory =
      std::all_of(goals.begin(), goals.end(), [](duration g) { return g == duration::zero(); });
  if (m.why.code == errc::kv_cache_full) shut_to_all_ = true;
  if (m.why.code == errc::shed_low_priority && by_memory) shut_to_low_ = true;
}

void simulation::check_flapping(bool admitted, std::uint32_t priority) {
  const auto& o = scenario_.options;
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

} // namespace troupe::sim
