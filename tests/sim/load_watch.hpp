// SPDX-License-Identifier: Apache-2.0
// Holds every request of a load to what docs/operations.md promises it ("Who goes first").
#pragma once

#include "actors/scheduler_core.hpp"
#include "sim/load_workload.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace troupe::sim {

using runtime::duration;
using runtime::time_point;

/// Of one replica. Looks at the scheduler whenever a step is launched, so that its cost is that of a step.
///
/// Held to account, for every request:
/// - nobody takes a seat past it whose rank is worse, but small ones while it waits for memory, and other
///   tenants in their turn, when one of their priority stands before it or it is of that priority itself;
/// - it begins, or is refused, within the queue's timeout;
/// - if it is not low: no step is launched while it is the first in line, every seat is taken, and one of
///   low priority sits that may yield; it is never refused for a full queue in which low ones wait;
/// - if it lost its seat: no more than three times, and it has one again before those that came (p + 1)
///   quanta after it could pass it, as many times over as there are tenants;
/// and for the replica: no time passes without a step while someone seated could run.
class load_watch {
 public:
  /// `one_tenant`: it is known whose turn it is.
  load_watch(const load_settings& settings, bool one_tenant, std::uint32_t replica);

  void asked(const actors::admission_request& m, time_point now);
  void refused(const actors::scheduler_core& s, const actors::refused& m, time_point now);
  void started(std::uint64_t request, time_point now);
  void drew(std::uint64_t request);
  void finished(const actors::sequence_finished& m, time_point now);
  void launched(const actors::scheduler_core& s, const actors::run_step& step, time_point now);
  void settled(const actors::scheduler_core& s, bool in_step, time_point now);
  /// When no request is left.
  void ended(const actors::scheduler_core& s);

  /// By class: the longest waits that there were, and the number of requests held to account.
  struct waits {
    std::uint64_t requests = 0, steps = 0; ///< steps: launched between its arrival and its first row, at most
    duration to_begin{}, for_seat_again{};
    std::uint64_t began = 0, turned_away = 0;
    void join(const waits& other);
    std::string text(std::uint32_t priority) const;
  };
  const std::map<std::uint32_t, waits>& by_priority() const noexcept { return waits_; }
  const std::vector<std::string>& wrong() const noexcept { return wrong_; }
  std::uint64_t checks() const noexcept { return checks_; }

 private:
  struct known {
    std::uint32_t priority = 0, drawn = 0, seats_lost = 0; ///< drawn since it was last opened
    time_point asked{}, lost_seat = time_point::max();
    std::uint64_t asked_at_step = 0;
    std::string tenant;
    bool began = false;
  };
  void require(bool holds, const char* what, std::uint64_t request, time_point now);
  void check_order(const std::vector<actors::scheduler_core::view>& now_seen, time_point now);
  void check_yielding(
      const actors::scheduler_core& s, const std::vector<actors::scheduler_core::view>& now_seen,
      time_point now);
  void check_seats_again(const std::vector<actors::scheduler_core::view>& now_seen, time_point now);
  bool low(std::uint32_t priority) const noexcept { return priority >= options_.low_priority; }
  const actors::scheduler_core::view* before(actors::request_id id) const;

  const actors::scheduler_options& options_;
  std::uint32_t kv_blocks_, replica_;
  bool yields_at_once_; ///< only seats and memory can be what the first in line lacks
  std::unordered_map<std::uint64_t, known> requests_; ///< by number; looked up, never walked
  std::set<std::string> tenants_;                     ///< that were seen
  std::vector<actors::scheduler_core::view> seen_;    ///< when the last step was launched
  time_point looked_{};                               ///< then
  std::uint64_t steps_ = 0, checks_ = 0;
  std::optional<time_point> idle_since_; ///< with work in hand
  std::map<std::uint32_t, waits> waits_;
  std::vector<std::string> wrong_;
};

} // namespace troupe::sim
