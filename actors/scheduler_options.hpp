// SPDX-License-Identifier: Apache-2.0
// What the scheduler is told at its start, and anew while it serves.
#pragma once

#include "runtime/clock.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace troupe::actors {

using runtime::duration;
using runtime::time_point;

inline constexpr std::uint32_t default_scored_rows = 64;
inline constexpr std::size_t priorities = 10; ///< 0 is served first

/// Of every tenant; 0 = no limit.
struct tenant_limits {
  double requests_per_second = 0, request_burst = 1;
  double tokens_per_second = 0, token_burst = 1; ///< of prompts and answers
  std::uint32_t max_live = 0;                    ///< requests waiting or running
};

/// Which preempted sequences are parked, where there is a park pool.
enum class park_choice : std::uint8_t {
  by_cost, ///< those that are computed again more slowly than they are copied away and back
  always,  ///< all, for tests
};

/// Policy. The model's own bounds come with `model_ready`. A `retune` changes what scheduler_policy.cpp
/// names; the rest stays as it was at the start.
struct scheduler_options {
  std::uint32_t max_batch = 64;        ///< sequences in one step, and seats; at least 1
  std::uint32_t max_step_tokens = 256; ///< rows of one step; at least 1
  /// Rows of one step that answer with the score of a prompt's token: each needs a row of logits. At least 1.
  std::uint32_t max_scored_rows = default_scored_rows;
  duration max_wait{};                               ///< how long an idle scheduler waits for company
  std::uint32_t max_queue = 256;                     ///< admitted requests without a seat
  std::uint64_t max_queue_bytes = 64U << 20;         ///< of their prompts' ids and names
  duration queue_timeout = std::chrono::seconds(60); ///< from admission to the first row
  double kv_high_watermark = 0.95;                   ///< at this KV use all new work is refused
  double kv_low_watermark = 0.90;                    ///< from this KV use on low priority is refused
  double compute_low_watermark = 0.90; ///< and from this use of the rows that the TPOT goal leaves room for
  double hysteresis = 0.05;            ///< a watermark reopens this much below, see reopening_level
  std::uint32_t low_priority = 7;      ///< priorities from here on are low
  /// A request that waited this long counts as one priority better. So of its tenant's requests one of
  /// priority p is overtaken only by those that arrive within p quanta after it: its wait is bounded under
  /// any load.
  duration ageing_quantum = std::chrono::seconds(5);
  /// Time per output token, by priority; 0: none. Prompts' rows are cut so that steps meet the strictest goal
  /// of those that decode, and no more sequences run at once than that leaves room for. Without a goal a step
  /// with rows of prompts may take twice as long as its decode rows alone.
  std::array<duration, priorities> tpot_goals{};
  std::uint32_t least_prefill_rows = 8; ///< of a step, while a prompt is there, whatever the goal
  /// A request that waited this long for a seat takes one from a running one of lower class. One that is not
  /// of low priority takes those of low priority at once.
  duration ttft_goal = std::chrono::seconds(2);
  /// How long more sequences than limit_batch allows may go on before seats are taken.
  duration batch_patience = std::chrono::seconds(2);
  tenant_limits tenants;           ///< of each
  bool prefix_cache = true;        ///< sequences of one tenant share the blocks of what they begin with
  std::uint32_t preempt_every = 0; ///< for tests: preempt a running sequence every N steps; 0 = never
  park_choice park = park_choice::by_cost;
};

} // namespace troupe::actors
