// SPDX-License-Identifier: Apache-2.0
// A load on one or several troupes of real cores in virtual time: the engine of troupe-sim --workload.
#pragma once

#include "sim/load_costs.hpp"
#include "sim/load_tally.hpp"
#include "sim/load_workload.hpp"

#include <cstdint>

namespace troupe::sim {

struct load_plan {
  workload what;
  load_settings settings; ///< the workload's own have been set
  step_costs costs;
  std::uint64_t seed = 1;
  std::uint32_t replicas = 1;
  bool least_loaded = false; ///< where a request goes: to the replica with the fewest; else to each in turn
  bool check = false;        ///< hold every request to its bounds, and wait for all to end
};

/// The same plan, load and rate give the same result, but for wall_s.
/// `rate`: requests a second of the row; the workload's load itself unless its axis is capacity.
load_result run_load(const load_plan& plan, double load, double rate);

/// Requests a second that one replica serves when there are always more, in the proportions of the open
/// crowds without a load of their own.
double measure_capacity(const load_plan& plan);

} // namespace troupe::sim
