// SPDX-License-Identifier: Apache-2.0
// Block counts: free list, leases with reference counts, limbo by step, known blocks that wait to be found.
#include "actors/kv_pool.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

namespace troupe::actors {

kv_pool::kv_pool(pool_key key, std::uint32_t blocks, const kv_groups& groups) :
    key_(key), groups_(groups), blocks_(blocks), known_(blocks, groups.block_tokens(), groups.size()) {
  level_.total = level_.free = blocks;
  free_.resize(blocks);
  for (std::uint32_t i = 0; i < blocks; ++i) free_[i] = blocks - 1 - i; // the lowest id leaves first
}

std::uint32_t kv_pool::held(request_id id) const noexcept {
  const auto at = leases_.find(id);
  if (at == leases_.end()) return 0;
  return groups_.blocks(0, indices(id), at->second.passed);
}

std::span<const block_id> kv_pool::table(request_id id) const noexcept {
  const auto at = leases_.find(id);
  return at == leases_.end() ? std::span<const block_id>{} : std::span<const block_id>(at->second.table);
}

// ---- cached blocks
// ---------------------------------------------------------------------------------------------

void kv_pool::enlist(block_id b) noexcept {
  blocks_[b].before = newest_;
  blocks_[b].after = nobody;
  (newest_ == nobody ? oldest_ : blocks_[newest_].after) = b;
  newest_ = b;
}

void kv_pool::unlink(block_id b) noexcept {
  const block& gone = blocks_[b];
  (gone.before == nobody ? oldest_ : blocks_[gone.before].after) = gone.after;
  (gone.after == nobody ? newest_ : blocks_[gone.after].before) = gone.before;
}

/// Nobody holds or writes it any more: cached when it is known by its content, free otherwise.
void kv_pool::idle(block_id b) noexcept {
  if (keep_known_ && known_.holds(b)) {
    ++level_.cached;
    enlist(b);
  } else {
    forget(b);
    blocks_[b].lives = 0;
    ++level_.free;
    free_.push_back(b);
  }
}

/// Not known from now on, nor what is known by it; cached ones of those are free.
void kv_pool::forget(block_id b) noexcept {
  for (std::uint32_t g = 0; groups_.size() > 1 && g < groups_.size(); ++g) {
    const block_id other = known_.beside(b, g);
    if (other == prefix_index::none) continue;
    known_.remove(other);
    if (blocks_[other].leases != 0 || blocks_[other].limbo != 0) continue;
    unlink(other);
    --level_.cached;
    idle(other);
  }
  known_.remove(b);
}

/// A free block, else the cached one that was unused for longest and has no lives left.
block_id kv_pool::take_one() noexcept {
  if (!free_.empty()) {
    const block_id b = free_.back();
    free_.pop_back();
    --level_.free;
    return b;
  }
  for (int turn = 0; turn < most_turns && blocks_[oldest_].lives > 0; ++turn) {
    const block_id spared = oldest_;
    --blocks_[spared].lives;
    unlink(spared);
    enlist(spared);
  }
  const block_id b = oldest_;
  unlink(b);
  --level_.cached;
  forget(b);
  blocks_[b].lives = 0;
  return b;
}

// ---- leases
// ----------------------------------------------------------------------------------------------------

std::uint32_t kv_pool::blocks_of(request_id id, std::uint32_t count, std::uint32_t first) const noexcept {
  const auto at = leases_.find(id);
  const std::uint32_t from = indices(id);
  return groups_.blocks(from, from + count, at == leases_.end() ? first : at->second.passed);
}

bool kv_pool::lease(request_id id, std::uint32_t count, std::vector<block_id>& out, std::uint32_t first) {
  if (count == 0) return true;
  const std::uint32_t taken = blocks_of(id, count, first);
  if (taken > available()) return false;
  const std::size_t entries = std::size_t{count} * groups_.size();
  out.reserve(out.size() + entries);
  const auto [at, fresh] = leases_.try_emplace(id);
  auto& table = at->second.table;
  try {
    if (table.capacity() < table.size() + entries)
      table.reserve(std::max(2 * table.capacity(), table.size() + entries));
  } catch (...) {
    if (fresh) leases_.erase(at);
    throw;
  }
  if (fresh) at->second.passed = first;
  const auto from = static_cast<std::uint32_t>(table.size()) / groups_.size();
  table.resize(table.size() + entries, no_block);
  groups_.for_present(from, from + count, at->second.passed, [&](std::uint32_t entry) {
    const block_id b = take_one();
    blocks_[b].leases = 1;
    blocks_[b].used = true;
    table[entry] = b;
  });
  out.insert(out.end(), table.end() - static_cast<std::ptrdiff_t>(entries), table.end());
  level_.leased += taken;
  return true;
}

/// One owner less of `b`, which the running step may still write if `limbo`.
void kv_pool::drop(block_id b, bool limbo) noexcept {
  if (limbo) ++blocks_[b].limbo;
  let_go(b);
}

void kv_pool::pass(request_id id, std::uint32_t position) noexcept {
  const auto at = leases_.find(id);
  if (at == leases_.end() || position <= at->second.passed) return;
  owner& o = at->second;
  groups_.for_passed(indices(id), o.passed, position, [&](std::uint32_t entry) {
    drop(std::exchange(o.table[entry], no_block), false);
  });
  o.passed = position;
}

void kv_pool::match(
    std::uint64_t salt, std::span<const std::int32_t> tokens, std::vector<block_id>& out) const {
  const std::size_t begin = out.size(), step = groups_.block_tokens();
  const std::uint32_t groups = groups_.size();
  std::vector<std::uint32_t> known_from(groups); // each group's blocks are known from this index on
  std::uint32_t found = 0;
  prefix_node parent = prefix_index::root(salt);
  for (std::uint32_t i = 0; (i + 1) * step < tokens.size(); ++i) {
    const block_id b = known_.find(parent, tokens.subspan(i * step, step));
    if (b == prefix_index::none) break;
    parent = known_.node(b);
    const auto behind = static_cast<std::uint32_t>((i + 1) * step);
    bool all_there = true;
    for (std::uint32_t g = 0; g < groups; ++g) {
      out.push_back(g == groups_.spine() ? b : known_.beside(b, g));
      if (out.back() == prefix_index::none) known_from[g] = i + 1;
      all_there = all_there && known_from[g] <= groups_.first_index(g, behind);
    }
    if (all_there) found = i + 1;
  }
  out.resize(begin + std::size_t{found} * groups);
  const auto behind = static_cast<std::uint32_t>(found * step);
  groups_.for_passed(found, 0, behind, [&](std::uint32_t entry) { out[begin + entry] = no_block; });
}

std::uint32_t kv_pool::unheld(std::span<const block_id> blocks) const noexcept {
  return static_cast<std::uint32_t>(std::ranges::count_if(
      blocks, [&](block_id b) { return b != no_block && blocks_[b].leases == 0 && blocks_[b].limbo == 0; }));
}

prefix_part kv_pool::match_part(
    std::uint64_t salt, std::span<const std::int32_t> tokens, std::span<const block_id> found) const {
  if (groups_.forgets()) return {};
  const std::size_t step = groups_.block_tokens(), behind = found.size() * step;
  if (behind + 1 >= tokens.size()) return {};
  const prefix_node parent = found.empty() ? prefix_index::root(salt) : known_.node(found.back());
  return known_.longest(parent, tokens.subspan(behind, std::min(step, tokens.size() - behind - 1)));
}

/// One holder more; it lives a round longer, at most `most` of them.
void kv_pool::hold(block_id b, std::uint8_t most) noexcept {
  block& held = blocks_[b];
  if (held.leases++ == 0) {
    ++level_.leased;
    if (held.limbo != 0) {
      --level_.limbo;
    } else {
      --level_.cached;
      unlink(b);
    }
  }
  if (held.lives < std::min(most, most_lives)) ++held.lives;
}

void kv_pool::let_go(block_id b) noexcept {
  if (--blocks_[b].leases != 0) return;
  --level_.leased;
  if (blocks_[b].limbo != 0)
    ++level_.limbo;
  else
    idle(b);
}

void kv_pool::pin(std::uint64_t step_seq, request_id id, block_id from) {
  pins_.push_back({step_seq, id, from});
  hold(from, 1);
}

template<class Over>
void kv_pool::unpin(Over over) noexcept {
  std::size_t kept = 0;
  for (const pinned& p : pins_) {
    if (over(p))
      let_go(p.from);
    else
      pins_[kept++] = p;
  }
  pins_.resize(kept);
}

std::uint32_t kv_pool::pins(block_id b) const noexcept {
  return static_cast<std::uint32_t>(std::ranges::count(pins_, b, &pinned::from));
}

kv_level kv_pool::level() const noexcept {
  kv_level now = level_;
  for (auto p = pins_.begin(); p != pins_.end(); ++p) {
    const bool first = std::none_of(pins_.begin(), p, [&](const pinned& x) { return x.from == p->from; });
    if (first && holders(p->from) == 0) ++now.sources;
  }
  return now;
}

void kv_pool::adopt(request_id id, std::span<const block_id> found) {
  if (found.empty()) return;
  assert(held(id) == 0);
  owner fresh;
  fresh.table.assign(found.begin(), found.end());
  fresh.placed = static_cast<std::uint32_t>(found.size() / groups_.size());
  fresh.passed = fresh.placed * groups_.block_tokens();
  fresh.last = known_.node(found[found.size() - groups_.size() + groups_.spine()]);
  const auto lives = static_cast<std::uint8_t>(std::bit_width(fresh.placed)); // of a long prefix more
  leases_[id] = std::move(fresh);
  for (const block_id b : found)
    if (b != no_block) hold(b, lives);
}

void kv_pool::publish(
    request_id id, std::uint32_t first, std::uint64_t salt, std::span<const std::int32_t> tokens) {
  const auto at = leases_.find(id);
  if (at == leases_.end() || at->second.placed != first) return; // released, or an earlier one was not noted
  owner& o = at->second;
  if (o.placed == 0) o.last = prefix_index::root(salt);
  const std::uint32_t step = groups_.block_tokens(), groups = groups_.size(), all = indices(id);
  for (; !tokens.empty() && o.placed < all; tokens = tokens.subspan(step)) {
    const std::span own = std::span(o.table).subspan(std::size_t{o.placed} * groups, groups);
    const block_id spine = own[groups_.spine()];
    if (tokens.size() < step) {
      if (!groups_.forgets()) known_.add(spine, o.last, tokens); // see match_part
      return;
    }
    const auto content = tokens.first(step);
    block_id there = known_.find(o.last, content);
    if (there == prefix_index::none) {
      if (spine == no_block) return; // restored, and forgotten meanwhile
      there = spine;
      known_.add(there, o.last, content);
    } else if (!groups_.forgets() && spine != there) {
      known_.remove(spine); // known in part until now
    }
    for (std::uint32_t g = 0; g < groups; ++g)
      if (g != groups_.spine() && own[g] != no_block) known_.add_beside(there, g, own[g]);
    o.last = known_.node(there);
    ++o.placed;
  }
}

std::uint32_t kv_pool::release(request_id id, std::uint64_t after_step) {
  if (after_step == 0) unpin([&](const pinned& p) { return p.id == id; });
  const auto at = leases_.find(id);
  if (at == leases_.end()) return 0;
  if (after_step != 0) limbo_.push_back({after_step, {}});
  const std::uint32_t count = held(id);
  auto table = std::move(at->second.table);
  leases_.erase(at);
  // From the end: it is given away before the beginning, without which it is not found.
  for (std::size_t i = table.size(); i-- > 0;)
    if (table[i] != no_block) drop(table[i], after_step != 0);
  if (after_step != 0) limbo_.back().blocks = std::move(table);
  return count;
}

void kv_pool::settle(std::uint64_t step_seq) noexcept {
  // Batches arrive in step order, because a step's releases come before the next step is planned.
  while (!limbo_.empty() && limbo_.front().after_step <= step_seq) {
    const auto& table = limbo_.front().blocks;
    for (std::size_t i = table.size(); i-- > 0;) {
      if (table[i] == no_block) continue;
      block& b = blocks_[table[i]];
      if (--b.limbo != 0 || b.leases != 0) continue;
      --level_.limbo;
      idle(table[i]);
    }
    limbo_.pop_front();
  }
  unpin([&](const pinned& p) { return p.step_seq <= step_seq; });
}

std::uint32_t kv_pool::keep_known(bool keep) noexcept {
  keep_known_ = keep;
  if (keep) return 0;
  const std::uint32_t forgotten = level_.cached;
  while (oldest_ != nobody) {
    const block_id b = oldest_;
    unlink(b);
    --level_.cached;
    idle(b);
  }
  return forgotten;
}

/// From the bottom of the stack: those on its top are leased next.
void kv_pool::take_used(std::uint32_t most, std::vector<block_id>& out) {
  const std::size_t before = out.size();
  out.reserve(before + std::min<std::size_t>(most, free_.size()));
  for (const block_id b : free_) {
    if (out.size() == before + most) break;
    if (!std::exchange(blocks_[b].used, false)) continue;
    out.push_back(b);
  }
  std::sort(out.begin() + static_cast<std::ptrdiff_t>(before), out.end());
}

bool kv_pool::audit() const {
  kv_level seen{};
  seen.total = static_cast<std::uint32_t>(blocks_.size());
  std::vector<block> counted(blocks_.size());
  for (const auto& [id, o] : leases_) { // counts only: the order does not matter
    const std::uint32_t groups = groups_.size();
    for (std::uint32_t i = 0; i < o.table.size(); ++i) {
      const bool hole = o.table[i] == no_block;
      if (hole != (i / groups < groups_.first_index(i % groups, o.passed))) return false;
      if (!hole) ++counted[o.table[i]].leases;
    }
  }
  for (const pinned& p : pins_) ++counted[p.from].leases;
  for (const auto& batch : limbo_)
    for (const block_id b : batch.blocks)
      if (b != no_block) ++counted[b].limbo;
  std::vector<std::uint8_t> idle_in(blocks_.size()); // lists that hold it
  std::vector<bool> cached(blocks_.size());
  for (const block_id b : free_) ++idle_in[b];
  block_id before = nobody;
  for (block_id b = oldest_; b != nobody; before = b, b = blocks_[b].after) {
    if (++idle_in[b] != 1 || blocks_[b].before != before || !known_.holds(b)) return false;
    cached[b] = true;
  }
  if (newest_ != before) return false;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (counted[i].leases != blocks_[i].leases || counted[i].limbo != blocks_[i].limbo) return false;
    const bool used = counted[i].leases != 0 || counted[i].limbo != 0;
    if (idle_in[i] != (used ? 0 : 1)) return false;
    ++(counted[i].leases != 0  ? seen.leased
       : counted[i].limbo != 0 ? seen.limbo
       : cached[i]             ? seen.cached
                               : seen.free);
  }
  return balanced() && seen.free == level_.free && seen.leased == level_.leased &&
         seen.limbo == level_.limbo && seen.cached == level_.cached && seen.total == level_.total;
}

} // namespace troupe::actors
