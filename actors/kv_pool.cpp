// SPDX-License-Identifier: Apache-2.0
// Block counts: free list, leases with reference counts, limbo by step.
#include "actors/kv_pool.hpp"

#include <algorithm>
#include <utility>

namespace troupe::actors {

kv_pool::kv_pool(pool_key key, std::uint32_t blocks, std::uint32_t block_tokens) :
    key_(key), block_tokens_(std::max<std::uint32_t>(1, block_tokens)), blocks_(blocks) {
  level_.total = level_.free = blocks;
  free_.resize(blocks);
  for (std::uint32_t i = 0; i < blocks; ++i) free_[i] = blocks - 1 - i; // the lowest id leaves first
}

std::uint32_t kv_pool::held(request_id id) const noexcept {
  return static_cast<std::uint32_t>(table(id).size());
}

std::span<const block_id> kv_pool::table(request_id id) const noexcept {
  const auto at = leases_.find(id);
  return at == leases_.end() ? std::span<const block_id>{} : std::span<const block_id>(at->second);
}

bool kv_pool::lease(request_id id, std::uint32_t count, std::vector<block_id>& out) {
  if (count == 0) return true;
  if (count > free_.size()) return false;
  out.reserve(out.size() + count);
  const auto [at, fresh] = leases_.try_emplace(id);
  try {
    auto& table = at->second;
    if (table.capacity() < table.size() + count)
      table.reserve(std::max(2 * table.capacity(), table.size() + count));
  } catch (...) {
    if (fresh) leases_.erase(at);
    throw;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    const block_id b = free_.back();
    free_.pop_back();
    blocks_[b].leases = 1;
    at->second.push_back(b);
    out.push_back(b);
  }
  level_.free -= count;
  level_.leased += count;
  return true;
}

bool kv_pool::share(request_id from, request_id to, std::uint32_t count) {
  const auto source = table(from);
  if (count > source.size() || held(to) != 0) return false;
  if (count == 0) return true;
  std::vector<block_id> copy(source.begin(), source.begin() + count);
  leases_.emplace(to, copy);
  for (const block_id b : copy) ++blocks_[b].leases;
  return true;
}

std::uint32_t kv_pool::release(request_id id, std::uint64_t after_step) {
  const auto at = leases_.find(id);
  if (at == leases_.end()) return 0;
  if (after_step != 0) limbo_.push_back({after_step, {}});
  auto table = std::move(at->second);
  leases_.erase(at);
  const auto count = static_cast<std::uint32_t>(table.size());
  for (const block_id b : table) {
    if (after_step != 0) ++blocks_[b].limbo;
    if (--blocks_[b].leases == 0) {
      --level_.leased;
      if (blocks_[b].limbo != 0) {
        ++level_.limbo;
      } else {
        ++level_.free;
        free_.push_back(b);
      }
    }
  }
  if (after_step != 0) limbo_.back().blocks = std::move(table);
  return count;
}

void kv_pool::settle(std::uint64_t step_seq) noexcept {
  // Batches arrive in step order, because a step's releases come before the next step is planned.
  while (!limbo_.empty() && limbo_.front().after_step <= step_seq) {
    for (const block_id b : limbo_.front().blocks) {
      if (--blocks_[b].limbo != 0 || blocks_[b].leases != 0) continue;
      --level_.limbo;
      ++level_.free;
      free_.push_back(b);
    }
    limbo_.pop_front();
  }
}

bool kv_pool::audit() const {
  kv_level seen{};
  seen.total = static_cast<std::uint32_t>(blocks_.size());
  std::vector<block> counted(blocks_.size());
  for (const auto& [owner, table] : leases_) // counts only: the order does not matter
    for (const block_id b : table) ++counted[b].leases;
  for (const auto& batch : limbo_)
    for (const block_id b : batch.blocks) ++counted[b].limbo;
  std::vector<bool> is_free(blocks_.size());
  for (const block_id b : free_) {
    if (is_free[b]) return false;
    is_free[b] = true;
  }
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (counted[i].leases != blocks_[i].leases || counted[i].limbo != blocks_[i].limbo) return false;
    const bool used = counted[i].leases != 0 || counted[i].limbo != 0;
    if (used == is_free[i]) return false;
    if (counted[i].leases != 0)
      ++seen.leased;
    else if (counted[i].limbo != 0)
      ++seen.limbo;
    else
      ++seen.free;
  }
  return balanced() && seen.free == level_.free && seen.leased == level_.leased &&
         seen.limbo == level_.limbo && seen.total == level_.total;
}

} // namespace troupe::actors
