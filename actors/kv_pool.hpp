// SPDX-License-Identifier: Apache-2.0
// The ledger of one KV pool: which block is free, leased, in limbo or cached, and who holds it.
#pragma once

#include "actors/messages.hpp"

#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

namespace troupe::actors {

/// What a pool is for: every (model, layer group, layout) has blocks of its own size.
struct pool_key {
  std::uint32_t model = 0;
  std::uint32_t layer_group = 0;
  std::uint32_t layout = 0;
  auto operator<=>(const pool_key&) const = default;
};

/// Owns: all block counts. Every block is in exactly one of four states; a block that several owners share
/// counts once. Nothing but `lease` and `release` allocates; both leave the ledger whole when they throw.
class kv_pool {
 public:
  kv_pool(pool_key key, std::uint32_t blocks, std::uint32_t block_tokens);

  /// Blocks that `id` must hold for `positions`.
  std::uint32_t blocks_for(std::uint32_t positions) const noexcept {
    return positions / block_tokens_ + (positions % block_tokens_ != 0 ? 1 : 0);
  }
  std::uint32_t held(request_id id) const noexcept;
  std::span<const block_id> table(request_id id) const noexcept;

  /// Leases `count` more blocks to `id` and appends their ids to `out`; false, with nothing changed, when
  /// fewer are free. Throws bad_alloc, with nothing changed.
  bool lease(request_id id, std::uint32_t count, std::vector<block_id>& out);
  /// Lets `to` hold the first `count` blocks of `from`'s table too; `to` must hold none yet.
  /// False, with nothing changed, when `from` holds fewer. Throws bad_alloc, with nothing changed.
  bool share(request_id from, request_id to, std::uint32_t count);
  /// `id` holds nothing from now on. Blocks that nobody else holds are free at once, or in limbo until
  /// `settle(after_step)` when `after_step` is not 0. Returns how many `id` held.
  std::uint32_t release(request_id id, std::uint64_t after_step);
  /// Steps up to `step_seq` write no more: their limbo is free.
  void settle(std::uint64_t step_seq) noexcept;

  bool is_free(block_id b) const noexcept { return blocks_[b].leases == 0 && blocks_[b].limbo == 0; }
  kv_level level() const noexcept { return level_; }
  bool balanced() const noexcept {
    return std::uint64_t{level_.free} + level_.leased + level_.limbo + level_.cached == level_.total;
  }
  /// Recounts everything from the blocks themselves; linear in the pool. For the simulation and tests.
  bool audit() const;
  const pool_key& key() const noexcept { return key_; }
  std::uint32_t block_tokens() const noexcept { return block_tokens_; }
  std::size_t owners() const noexcept { return leases_.size(); }

 private:
  struct block {
    std::uint16_t leases = 0;
    std::uint16_t limbo = 0;
  };
  struct limbo_batch {
    std::uint64_t after_step;
    std::vector<block_id> blocks;
  };

  pool_key key_;
  std::uint32_t block_tokens_;
  kv_level level_;
  std::vector<block> blocks_;                                    ///< [total]
  std::vector<block_id> free_;                                   ///< stack, capacity for all
  std::unordered_map<request_id, std::vector<block_id>> leases_; ///< looked up, never walked for a decision
  std::deque<limbo_batch> limbo_;
};

} // namespace troupe::actors
