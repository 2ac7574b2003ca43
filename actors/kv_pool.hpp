// SPDX-License-Identifier: Apache-2.0
// The ledger of one KV pool: which block is free, leased, in limbo or cached, and who holds it.
#pragma once

#include "actors/messages.hpp"
#include "actors/prefix_index.hpp"

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

/// Owns: all block counts. Every block is in exactly one of four states: free; leased, by one or several
/// owners or for a copy of it; in limbo, because a running step still writes it; cached, held by nobody and
/// known by its content. A block that several owners share counts once.
///
/// Known positions are never written again. A full known block is shared as it is. Of one that is filled in
/// part, or goes on otherwise than a prompt does, the positions that fit are copied into a block of the
/// prompt's own: its owner, if it has one, writes behind them. Not so with windows, whose tables have holes.
///
/// An owner's table has the entries of kv_groups. What it says it needs no more is a hole in it from then on;
/// known blocks that nobody else holds are then cached as after a release.
///
/// Cached blocks are given away like free ones, once those are used up: the longest unused first, and of one
/// prefix its end before its beginning. A block that was found again lives one round longer for each time, at
/// most `most_lives`, and more the longer the prefix was.
///
/// Each function that allocates leaves the ledger whole when it throws.
class kv_pool {
 public:
  kv_pool(pool_key key, std::uint32_t blocks, const kv_groups& groups);
  kv_pool(pool_key key, std::uint32_t blocks, std::uint32_t block_tokens) :
      kv_pool(key, blocks, kv_groups(block_tokens)) {}

  /// Block indices that hold `positions`.
  std::uint32_t blocks_for(std::uint32_t positions) const noexcept { return groups_.indices(positions); }
  /// Blocks that `id` holds: the entries of its table that are no holes.
  std::uint32_t held(request_id id) const noexcept;
  /// Block indices in its table.
  std::uint32_t indices(request_id id) const noexcept {
    return static_cast<std::uint32_t>(table(id).size()) / groups_.size();
  }
  std::span<const block_id> table(request_id id) const noexcept;
  /// Blocks that can be leased: free and cached ones.
  std::uint32_t available() const noexcept { return level_.free + level_.cached; }

  /// Blocks that `count` more indices of `id`'s table take. Of one that holds nothing yet: when it goes on at
  /// `first`.
  std::uint32_t blocks_of(request_id id, std::uint32_t count, std::uint32_t first = 0) const noexcept;
  /// Leases them to `id` and appends its new entries to `out`; false, with nothing changed, when fewer are
  /// available. Throws bad_alloc, with nothing changed.
  bool lease(request_id id, std::uint32_t count, std::vector<block_id>& out, std::uint32_t first = 0);
  /// `id` goes on at `position`: what it needs no more is not its own from now on.
  void pass(request_id id, std::uint32_t position) noexcept;
  /// The table of the longest known prefix of `tokens` in the tree of `salt`, appended to `out`: a prefix of
  /// which everything is known that the row behind it needs, with holes for the rest. One token at least is
  /// left over: its row draws the next one.
  void match(std::uint64_t salt, std::span<const std::int32_t> tokens, std::vector<block_id>& out) const;
  /// The block that goes on most like `tokens` do behind `found`, which `match` gave for them. One token at
  /// least is left over.
  prefix_part
  match_part(std::uint64_t salt, std::span<const std::int32_t> tokens, std::span<const block_id> found) const;
  /// How many of `blocks` nobody holds: what is left of `available` when they are adopted.
  std::uint32_t unheld(std::span<const block_id> blocks) const noexcept;
  /// Lets `id`, which must hold none, hold what `match` found. Throws bad_alloc, with nothing changed.
  void adopt(request_id id, std::span<const block_id> blocks);
  /// `from`, which is known, is copied for `id` in the step `step_seq`: it counts as leased until
  /// `settle(step_seq)`, or until `id` gives everything back before that step. Throws bad_alloc, with nothing
  /// changed.
  void pin(std::uint64_t step_seq, request_id id, block_id from);
  /// Makes the blocks of `id`'s table from its `first` on known, with `tokens` in them, the last one perhaps
  /// in part; nothing when there is a gap before them. What is known under another block already stays `id`'s
  /// alone. Throws bad_alloc: the blocks that were entered before stay so.
  void publish(request_id id, std::uint32_t first, std::uint64_t salt, std::span<const std::int32_t> tokens);
  /// `id` holds nothing from now on. Blocks that nobody else holds are free or cached at once, or in limbo
  /// until `settle(after_step)` when `after_step` is not 0. Returns how many `id` held.
  std::uint32_t release(request_id id, std::uint64_t after_step);
  /// Steps up to `step_seq` write and copy no more: their limbo is over, and what they copied is let go of.
  void settle(std::uint64_t step_seq) noexcept;

  /// With false all cached blocks become free, and so does each that falls idle. Returns how many were
  /// cached.
  std::uint32_t keep_known(bool keep) noexcept;
  /// Free blocks, at most `most`, whose memory is taken: those that were leased since they were named here,
  /// or were not named yet. Appended to `out` in ascending order. Throws bad_alloc, with nothing changed.
  void take_used(std::uint32_t most, std::vector<block_id>& out);

  /// Owners of a block.
  std::uint32_t holders(block_id b) const noexcept { return blocks_[b].leases - pins(b); }
  bool is_free(block_id b) const noexcept { return blocks_[b].leases == 0 && blocks_[b].limbo == 0; }
  kv_level level() const noexcept;
  bool balanced() const noexcept {
    return std::uint64_t{level_.free} + level_.leased + level_.limbo + level_.cached == level_.total;
  }
  /// Recounts everything from the blocks themselves; linear in the pool. For the simulation and tests.
  bool audit() const;
  const pool_key& key() const noexcept { return key_; }
  std::uint32_t block_tokens() const noexcept { return groups_.block_tokens(); }
  const kv_groups& groups() const noexcept { return groups_; }
  std::size_t owners() const noexcept { return leases_.size(); }

 private:
  static constexpr block_id nobody = no_block;
  static constexpr std::uint8_t most_lives = 8;
  static constexpr int most_turns = 64; ///< of the list for one block: a bound on the time it takes

  struct block {
    std::uint16_t leases = 0; ///< and pins
    std::uint16_t limbo = 0;
    std::uint8_t lives = 0;                   ///< rounds it is spared
    bool used = true;                         ///< its memory is taken; see take_used
    block_id before = nobody, after = nobody; ///< in the list of cached ones
  };
  struct owner {
    std::vector<block_id> table;
    std::uint32_t passed = 0; ///< position that it goes on at, as it last said
    std::uint32_t placed = 0; ///< first indices whose place in the trie is known
    prefix_node last = 0;     ///< of the last of those
  };
  struct limbo_batch {
    std::uint64_t after_step;
    std::vector<block_id> blocks;
  };
  struct pinned {
    std::uint64_t step_seq = 0;
    request_id id;
    block_id from = 0;
  };
  std::uint32_t pins(block_id b) const noexcept;
  void hold(block_id b, std::uint8_t most) noexcept;
  void let_go(block_id b) noexcept;
  template<class Over>
  void unpin(Over over) noexcept;
  block_id take_one() noexcept;
  void idle(block_id b) noexcept;
  void forget(block_id b) noexcept;
  void drop(block_id b, bool limbo) noexcept;
  void enlist(block_id b) noexcept;
  void unlink(block_id b) noexcept;

  pool_key key_;
  kv_groups groups_;
  kv_level level_;
  std::vector<block> blocks_;                  ///< [total]
  std::vector<block_id> free_;                 ///< stack, capacity for all
  block_id oldest_ = nobody, newest_ = nobody; ///< of the cached ones, by when they fell idle
  prefix_index known_;
  bool keep_known_ = true;
  std::unordered_map<request_id, owner> leases_; ///< looked up, never walked for a decision
  std::deque<limbo_batch> limbo_;
  std::vector<pinned> pins_; ///< few: of sequences that begin in the next step, or began in the running one
};

} // namespace troupe::actors
