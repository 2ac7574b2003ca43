// SPDX-License-Identifier: Apache-2.0
// Byte-pair merging over token ids: a rank table and the merge loop.
#pragma once

#include "models/vocabulary.hpp"

#include <cstdint>
#include <queue>
#include <vector>

namespace troupe::models {

/// (left id, right id) -> (rank, merged id): open addressing, at most half full. Thread: any after the last
/// `insert`.
class merge_table {
 public:
  struct merge {
    std::uint32_t rank = UINT32_MAX; ///< position in the file's list, lower merges first
    token_id merged = -1;
  };

  /// Room for `count` merges.
  explicit merge_table(std::size_t count);

  /// Returns false, and changes nothing, when the pair is already there.
  bool insert(token_id left, token_id right, merge m);

  /// The merge of a pair, or one with `merged` -1.
  merge find(token_id left, token_id right) const noexcept;

 private:
  struct slot {
    std::uint64_t key = empty_key;
    merge value;
  };
  static constexpr std::uint64_t empty_key = UINT64_MAX;
  std::size_t start(std::uint64_t key) const noexcept;

  std::vector<slot> slots_;
  std::uint64_t multiplier_; ///< random and odd: no file can prepare colliding pairs
  unsigned shift_ = 0;       ///< 64 - log2(slots)
};

/// Applies merges to a word, lowest rank first, leftmost among equals. Holds scratch memory that words share.
/// Thread: one at a time per object. Time: O(n log n) in the word's length.
class bpe_merger {
 public:
  /// Replaces `ids` (one id per symbol) from `begin` on by the merged ids.
  void run(const merge_table& table, std::vector<token_id>& ids, std::size_t begin);

 private:
  struct candidate {
    std::uint32_t rank;
    std::int32_t left; ///< symbol index
    token_id left_id, right_id, merged;
    bool operator>(const candidate& o) const noexcept {
      return rank != o.rank ? rank > o.rank : left > o.left;
    }
  };
  struct symbol {
    token_id id;
    std::int32_t previous, next; ///< indices, -1 at the ends
  };

  void run_short(const merge_table& table, std::vector<token_id>& ids, std::size_t begin);
  void run_long(const merge_table& table, std::vector<token_id>& ids, std::size_t begin);
  void offer(const merge_table& table, std::int32_t left);

  std::vector<merge_table::merge> pairs_;
  std::vector<symbol> symbols_;
  std::vector<candidate> heap_;
};

} // namespace troupe::models
