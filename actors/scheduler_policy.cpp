// SPDX-License-Identifier: Apache-2.0
// The scheduler's policy changed while it serves: live settings, and a smaller batch when memory is short.
#include "actors/scheduler_core.hpp"

#include <algorithm>
#include <utility>

namespace troupe::actors {

/// Nobody is turned away who was let in: a smaller queue refuses the next to come, a shorter timeout counts
/// from when each one came.
void scheduler_core::on(retune&& m, time_point now, scheduler_effects& out) {
  turn t{now, out};
  if (!m.options) return;
  const scheduler_options& to = *m.options;
  options_.max_wait = to.max_wait;
  options_.max_queue = to.max_queue;
  options_.max_queue_bytes = to.max_queue_bytes;
  options_.queue_timeout = to.queue_timeout;
  options_.kv_high_watermark = to.kv_high_watermark;
  options_.kv_low_watermark = to.kv_low_watermark;
  options_.compute_low_watermark = to.compute_low_watermark;
  options_.tpot_goals = to.tpot_goals;
  options_.ttft_goal = to.ttft_goal;
  options_.tenants = to.tenants;
  const auto move = [this](watermark& mark, double set) {
    mark.move(set, reopening_level(set, options_.hysteresis));
  };
  move(full_, to.kv_high_watermark);
  move(shed_, to.kv_low_watermark);
  move(busy_, to.compute_low_watermark);
  tenants_.retune(to.tenants, now);
  retry_at_ = time_point::max(); // a wait for company is looked at anew
  expire_queue(t);
  pump(t);
}

void scheduler_core::on(limit_batch&& m, time_point now, scheduler_effects& out) {
  turn t{now, out};
  seat_limit_ = std::max<std::uint32_t>(1, m.sequences);
  pump(t);
}

} // namespace troupe::actors
