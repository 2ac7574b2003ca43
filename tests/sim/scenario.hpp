// SPDX-License-Identifier: Apache-2.0
// What one seed means: settings, clients and the faults that are switched on.
#pragma once

#include "actors/scheduler_core.hpp"
#include "runtime/rng.hpp"
#include "sim/stand_in.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe::sim {

using runtime::duration;

/// One client and its single request.
struct client_script {
  duration arrives{};
  std::vector<std::int32_t> prompt;
  std::uint32_t estimate = 0; ///< what the door is told of the prompt
  std::uint32_t priority = 5;
  std::string tenant;
  std::uint32_t max_tokens = 16, min_tokens = 0;
  std::vector<std::int32_t> stop_ids;
  std::vector<std::string> stops;
  bool ignore_eos = false, logprobs = false;
  std::uint32_t top_logprobs = 0;
  bool echo = false;       ///< of the prompt, with scores when there are logprobs
  std::uint64_t group = 0; ///< of the choices that wait for each other; 0 = none
  std::uint64_t seed = 0;
  std::uint32_t credit = 1000;
  duration deadline{}; ///< zero = none
  duration slow_consumer = std::chrono::seconds(30);
  duration tokenising{};
  bool tokenising_fails = false;
  duration reads_after{};                        ///< delay between an event and its being read
  std::optional<std::uint32_t> stops_reading_at; ///< token events read before the client goes silent
  std::optional<std::uint32_t> leaves_at;        ///< events seen before the client cancels
  std::optional<duration> leaves_after;          ///< time after arrival at which it cancels
  bool poison = false;
  bool crasher = false;                          ///< each of its steps brings the executor down
  std::optional<std::uint32_t> not_finite_token; ///< index of the drawn token that comes out as NaN
};

struct fault_settings {
  double step_fails = 0;       ///< probability per step
  double doubled_answer = 0;   ///< probability per step that the backend's answer comes twice
  double late_answer = 0;      ///< probability per step that the answer comes again after later ones
  double allocation_fails = 0; ///< probability per handled message of cache manager and executor
  duration alarm_lateness{};   ///< at most
  double disk_fails = 0;       ///< probability per piece of parked blocks that the disk takes or gives
  double disk_spoils = 0;      ///< and that a piece comes back other than it was
  double crashes = 0;          ///< per message to one of the engine's actors that this actor crashes over it
  std::uint32_t most_crashes = 0; ///< by lot, beside those of crashers
  duration restart_delay{};       ///< from a crash until the actors are made anew, at least
};

/// What the engine orders while memory is short, and when it is back.
struct memory_order {
  duration at{};
  std::uint32_t batch = 1;
  bool forget = false; ///< cached blocks
};

/// What an operator changes while requests run and wait.
struct policy_change {
  duration at{};
  actors::scheduler_options to; ///< what a `retune` cannot change is as at the start
};

struct scenario {
  actors::scheduler_options options;
  imaginary_model model;
  std::uint32_t blocks = 16, block_tokens = 4, context = 64;
  std::vector<client_script> clients;
  fault_settings faults;
  duration step_time = std::chrono::microseconds(500); ///< of a step, plus a part per row
  duration hop = std::chrono::microseconds(20);        ///< longest time a turn takes
  std::uint32_t park_memory = 0, park_disk = 0;        ///< blocks; 0: nothing is parked
  duration copy_time = std::chrono::microseconds(5);   ///< of a parked block, twenty times that on disk
  duration model_loads{};                              ///< when the door opens
  std::uint32_t lazy = ~0U;                            ///< participant whose mail is mostly left for later
  std::optional<duration> drain_at, cut_at;
  std::vector<memory_order> memory_orders;
  std::vector<policy_change> policy_changes;
  bool two_floods = false; ///< two tenants with all their work at once, and nothing else: see check_fairness
  bool all_stays = false;  ///< nothing is disturbed, and no known block given away: see check_grants

  /// Tokens of one sequence at most.
  std::uint32_t limit() const noexcept {
    return model.grouped() ? grouped_limit() : std::min(context, blocks * block_tokens);
  }
  /// Blocks of one layer group that a sequence of `positions` may hold at a time.
  std::uint32_t most_blocks(std::uint32_t window, std::uint32_t positions) const noexcept;
  std::uint32_t grouped_limit() const noexcept;
};

/// Settings that hold anew from drawn moments up to `until`. See scenario_policy.cpp.
std::vector<policy_change> draw_policy_changes(const scenario& s, runtime::random_stream& r, duration until);
/// Scenarios made for one policy each. See scenario_policy.cpp.
scenario make_lost_seats(runtime::random_stream& r);
scenario make_suspects(runtime::random_stream& r);
/// Choices of the same prompts, and prompts that part inside blocks, with room for all of them.
scenario make_choices(runtime::random_stream& r);
/// Gives a quarter of the seeds a model of several layer groups, or one with a window. From numbers of its
/// own: the others stay what they were.
void make_groups(scenario& s, std::uint64_t seed);

/// The same seed gives the same scenario. Each seed switches on a random subset of features and faults.
scenario make_scenario(std::uint64_t seed);

/// Of the parker's copies; the disk takes twenty times as long as memory.
actors::park_costs costs_of(const scenario& s);

} // namespace troupe::sim
