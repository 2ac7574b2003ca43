// SPDX-License-Identifier: Apache-2.0
// Reservations, releases and limbo, message by message.
#include "actors/cache_core.hpp"

#include <cassert>
#include <new>
#include <utility>

namespace troupe::actors {

cache_core::cache_core(pool_key key, std::uint32_t blocks, std::uint32_t block_tokens) :
    pool_(key, blocks, block_tokens) {}

void cache_core::on(reserve_blocks&& m, time_point, cache_effects& out) {
  blocks_reserved answer;
  answer.step_seq = m.step_seq;
  try {
    answer.grants.reserve(m.demands.size());
    answer.shortages.reserve(m.demands.size());
    for (const auto& demand : m.demands) serve(demand, answer);
  } catch (const std::bad_alloc&) { // those not named in the answer were not served
  }
  out.emplace_back(std::move(answer));
  publish(out);
}

/// Strong guarantee: a grant is in the answer exactly if its blocks are leased.
void cache_core::serve(const block_demand& demand, blocks_reserved& answer) {
  const std::uint32_t wanted = pool_.blocks_for(demand.positions);
  const std::uint32_t held = pool_.held(demand.id);
  if (wanted <= held) return;
  const std::uint32_t missing = wanted - held;
  const std::uint32_t free = pool_.level().free;
  if (missing > free) {
    answer.shortages.push_back({demand.id, missing - free});
    return;
  }
  answer.grants.push_back({demand.id, {}});
  try {
    pool_.lease(demand.id, missing, answer.grants.back().blocks);
  } catch (...) {
    answer.grants.pop_back();
    throw;
  }
}

void cache_core::on(release_blocks&& m, time_point, cache_effects& out) {
  // A step that is over already cannot hold anything back.
  const std::uint64_t after = m.after_step > last_finished_ ? m.after_step : 0;
  if (waiting_.size() == waiting_.capacity())
    waiting_.reserve(2 * waiting_.size() + 8); // before anything changes
  const std::uint32_t held = pool_.release(m.id, after);
  if (after != 0 && held != 0)
    waiting_.push_back({after, {m.id, held}});
  else
    out.emplace_back(blocks_released{m.id, held});
  publish(out);
}

void cache_core::on(step_finished&& m, time_point, cache_effects& out) {
  if (m.step_seq <= last_finished_) return;
  last_finished_ = m.step_seq;
  pool_.settle(m.step_seq);
  std::size_t kept = 0;
  for (auto& w : waiting_) {
    if (w.after_step <= m.step_seq)
      out.emplace_back(w.answer);
    else
      waiting_[kept++] = w;
  }
  waiting_.resize(kept);
  publish(out);
}

void cache_core::publish(cache_effects& out) {
  assert(pool_.balanced());
  const auto level = pool_.level();
  if (level.free == published_.free && level.leased == published_.leased && level.limbo == published_.limbo &&
      level.total == published_.total)
    return;
  published_ = level;
  out.emplace_back(level);
}

} // namespace troupe::actors
