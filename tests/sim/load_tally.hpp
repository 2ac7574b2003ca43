// SPDX-License-Identifier: Apache-2.0
// What one row of a curve measures.
#pragma once

#include "sim/load_workload.hpp"
#include "troupe/error.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::sim {

/// Of one crowd, in the measured time.
struct crowd_tally {
  std::string name;
  std::uint64_t offered = 0; ///< first tries
  std::uint64_t served = 0;  ///< whole answers that ended
  std::uint64_t tokens = 0;  ///< that reached clients
  std::uint64_t cancelled = 0;
  std::array<std::uint64_t, static_cast<std::size_t>(errc::internal) + 1> failed{}; ///< tries, by errc
  std::vector<float> ttft, tpot; ///< seconds: of a try from its submission on; means of whole answers
  void add(const crowd_tally& other);
};

struct load_result {
  double load = 0, rate = 0; ///< rate: requests a second that `load` stands for; 0 on the axis of clients
  double seconds = 0;        ///< measured
  std::vector<crowd_tally> crowds;
  std::uint64_t steps = 0, preemptions = 0, seats_yielded = 0, displaced = 0, prefix_found = 0;
  double batch_fill = 0;                            ///< sequences of a step by max_batch, mean over steps
  double kv_use = 0;                                ///< leased blocks by all, mean over time
  double busy = 0;                                  ///< share of the time that a step ran
  std::uint64_t requests = 0, events = 0, hash = 0; ///< of the whole run
  double wall_s = 0;
  std::vector<std::string> notes; ///< what the bounds were held to, with --check
  std::vector<std::string> wrong; ///< and where they were not kept

  crowd_tally all() const;
};

/// The p-th part of the samples is not above it; 0 without samples. Reorders them.
double quantile(std::vector<float>& samples, double p);

/// A line for each row, and one for each crowd when there are several.
std::string load_table(const workload& w, std::vector<load_result> rows);
std::string load_csv(const workload& w, std::vector<load_result> rows);

} // namespace troupe::sim
