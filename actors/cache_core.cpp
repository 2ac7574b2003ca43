// SPDX-License-Identifier: Apache-2.0
// Reservations, releases and limbo, message by message.
#include "actors/cache_core.hpp"

#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

namespace troupe::actors {

void cache_core::on(reserve_blocks&& m, time_point, cache_effects& out) {
  blocks_reserved answer;
  answer.step_seq = m.step_seq;
  try {
    answer.grants.reserve(m.demands.size());
    answer.shortages.reserve(m.demands.size());
    std::uint64_t others = 0; // blocks that the demands still to come may want
    for (const auto& demand : m.demands) others += most_wanted(demand);
    for (const auto& demand : m.demands) {
      others -= most_wanted(demand);
      serve(demand, others, answer);
    }
  } catch (const std::bad_alloc&) { // those not named in the answer were not served
  }
  answer.level = pool_.level();
  out.emplace_back(std::move(answer));
  publish(out);
}

/// Blocks that a demand takes away from what is available, at most.
std::uint32_t cache_core::most_wanted(const block_demand& demand) const noexcept {
  const std::uint32_t there = pool_.indices(demand.id);
  const std::uint32_t wanted = pool_.blocks_for(
      demand.prefix && there == 0 ? static_cast<std::uint32_t>(demand.prefix->size()) : demand.positions);
  return (wanted - std::min(wanted, there)) * pool_.groups().size();
}

/// Strong guarantee: a grant is in the answer exactly if its blocks are leased. A copy saves rows, and must
/// not cost anybody blocks: one from a block that nobody holds is left out when `others` might go short of
/// it.
void cache_core::serve(const block_demand& demand, std::uint64_t others, blocks_reserved& answer) {
  const kv_groups& groups = pool_.groups();
  const std::uint32_t there = pool_.indices(demand.id);
  const bool begins = demand.prefix && there == 0;
  prefix_part part;
  found_.clear();
  pool_.pass(demand.id, demand.first);
  if (begins) {
    pool_.match(demand.salt, *demand.prefix, found_);
    if (!demand.whole) part = pool_.match_part(demand.salt, *demand.prefix, found_);
  }
  const auto known = static_cast<std::uint32_t>(found_.size()) / groups.size();
  const std::uint32_t available = pool_.available() - pool_.unheld(found_), from = std::max(there, known);
  std::uint32_t cached = 0, first = 0, wanted = 0, missing = 0;
  const auto reckon = [&] {
    cached = known * pool_.block_tokens() + part.tokens;
    first = begins ? cached : demand.first;
    wanted = pool_.blocks_for(
        begins ? static_cast<std::uint32_t>(
                     std::min<std::uint64_t>(demand.prefix->size(), std::uint64_t{cached} + demand.positions))
               : demand.positions);
    missing = groups.blocks(from, std::max(from, wanted), first);
  };
  reckon();
  if (part.tokens > 0 && pool_.unheld({&part.block, 1}) != 0 && missing + 1 + others > available) {
    part = {};
    reckon();
  }
  if (wanted <= there) return;
  if (missing > available) {
    answer.shortages.push_back({demand.id, missing - available});
    return;
  }
  answer.grants.push_back({demand.id, {}, cached});
  try {
    auto& grant = answer.grants.back();
    grant.blocks.reserve(std::size_t{wanted - there} * groups.size());
    grant.blocks.assign(found_.begin(), found_.end());
    pool_.adopt(demand.id, found_);
    if (part.tokens > 0) pool_.pin(answer.step_seq, demand.id, part.block);
    pool_.lease(demand.id, wanted - from, grant.blocks, first);
    if (part.tokens > 0) grant.copy = {part.block, grant.blocks[known], part.tokens};
  } catch (...) {
    if (there == 0) pool_.release(demand.id, 0);
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
    waiting_.push_back({after, {m.id, held, {}}});
  else
    out.emplace_back(blocks_released{m.id, held, pool_.level()});
  publish(out);
}

void cache_core::on(step_finished&& m, time_point, cache_effects& out) {
  if (m.step_seq <= last_finished_) return;
  last_finished_ = m.step_seq;
  pool_.settle(m.step_seq);
  std::size_t kept = 0;
  for (auto& w : waiting_) {
    if (w.after_step <= m.step_seq) {
      w.answer.level = pool_.level();
      out.emplace_back(w.answer);
    } else
      waiting_[kept++] = w;
  }
  waiting_.resize(kept);
  publish(out);
}

void cache_core::on(publish_blocks&& m, time_point, cache_effects&) {
  try {
    for (const filled_blocks& f : m.all) pool_.publish(f.id, f.first_block, f.salt, f.tokens);
  } catch (const std::bad_alloc&) { // what was not noted is not found
  }
}

void cache_core::on(spare_memory&& m, time_point, cache_effects& out) {
  discard_blocks spare;
  spare.forgotten = pool_.keep_known(!m.forget);
  try {
    pool_.take_used(most_discarded, spare.blocks);
  } catch (const std::bad_alloc&) { // the next message finds them
  }
  if (!spare.blocks.empty() || spare.forgotten > 0) out.emplace_back(std::move(spare));
  publish(out);
}

void cache_core::publish(cache_effects& out) {
  assert(pool_.balanced());
  const auto level = pool_.level();
  if (level == published_) return;
  published_ = level;
  out.emplace_back(level);
}

} // namespace troupe::actors
