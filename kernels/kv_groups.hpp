// SPDX-License-Identifier: Apache-2.0
// Layer groups: how the layers of a model share the blocks of one KV pool, and which of them a sequence
// needs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace troupe::kernels {

/// In a block table: nobody's block. No row to come reads the positions that stood there.
inline constexpr std::uint32_t no_block = std::numeric_limits<std::uint32_t>::max();

/// The layers stand in groups of equally many; all of a group read their last `window` positions, or all.
/// A block holds `block_tokens` positions of one group's layers, so that all blocks have one size and one
/// pool. A block table has an entry for each group at each block index: that of (index, group) is
/// index * size() + group. What no row to come reads is a hole there. A model of one kind of layers is one
/// group.
///
/// A sequence that goes on at `position` needs of each group the indices from first_index on: every count
/// below follows from that. Thread: any.
class kv_groups {
 public:
  /// `windows`: of each group; 0 = all positions.
  explicit kv_groups(std::uint32_t block_tokens = 32, std::vector<std::uint32_t> windows = {0}) :
      block_tokens_(std::max<std::uint32_t>(1, block_tokens)), windows_(std::move(windows)) {
    if (windows_.empty()) windows_ = {0};
    // The index before that of the next row is then always there: it tells where the sequence stands.
    for (std::uint32_t& window : windows_)
      if (window != 0) window = std::max<std::uint32_t>(2, window);
    const auto all = std::find(windows_.begin(), windows_.end(), 0U);
    spine_ = all == windows_.end() ? 0 : static_cast<std::uint32_t>(all - windows_.begin());
    whole_ = static_cast<std::uint32_t>(std::count(windows_.begin(), windows_.end(), 0U));
  }

  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(windows_.size()); }
  std::uint32_t block_tokens() const noexcept { return block_tokens_; }
  const std::vector<std::uint32_t>& windows() const noexcept { return windows_; }
  /// Groups that keep everything.
  std::uint32_t whole() const noexcept { return whole_; }
  /// Whether a sequence ever needs a block no more.
  bool forgets() const noexcept { return whole_ != size(); }
  /// A group that keeps everything, or the first when none does.
  std::uint32_t spine() const noexcept { return spine_; }

  /// Block indices that hold the first `positions`.
  std::uint32_t indices(std::uint32_t positions) const noexcept {
    return positions / block_tokens_ + (positions % block_tokens_ != 0 ? 1 : 0);
  }
  /// The first block index of `group` that the row at `position`, or a later one, reads.
  std::uint32_t first_index(std::uint32_t group, std::uint32_t position) const noexcept {
    const std::uint32_t window = windows_[group];
    return window == 0 || position < window ? 0 : (position + 1 - window) / block_tokens_;
  }
  /// Blocks in the indices [from, to) of a table that goes on at `position`.
  std::uint32_t blocks(std::uint32_t from, std::uint32_t to, std::uint32_t position) const noexcept {
    std::uint32_t sum = 0;
    for (std::uint32_t g = 0; g < size(); ++g)
      sum += to - std::min(to, std::max(from, first_index(g, position)));
    return sum;
  }
  /// The most blocks that a sequence holds at a time while its positions [first, end) are computed, `chunk`
  /// of them in one step at most.
  std::uint32_t most(std::uint32_t first, std::uint32_t end, std::uint32_t chunk) const noexcept {
    const std::uint32_t to = indices(std::max(first, end));
    std::uint64_t sum = 0;
    for (std::uint32_t g = 0; g < size(); ++g) {
      const std::uint64_t there = to - std::min(to, first_index(g, first));
      if (windows_[g] == 0) {
        sum += there;
        continue;
      }
      // A step's rows and what the first of them reads: so many positions, wherever the blocks begin.
      const std::uint64_t rows = std::max<std::uint64_t>(1, std::min(chunk, end - std::min(first, end)));
      const std::uint64_t span = rows + windows_[g] - 1;
      sum += std::min(there, (span + block_tokens_ - 2) / block_tokens_ + 1);
    }
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(sum, no_block));
  }
  /// The longest sequence that `blocks` are enough for, `context` at most.
  std::uint32_t longest(std::uint32_t blocks, std::uint32_t chunk, std::uint32_t context) const noexcept {
    std::uint32_t fits = 0, beyond = context;
    if (most(0, context, chunk) <= blocks) return context;
    while (beyond - fits > 1) {
      const std::uint32_t tried = fits + (beyond - fits) / 2;
      (most(0, tried, chunk) <= blocks ? fits : beyond) = tried;
    }
    return fits;
  }
  /// Calls `f` with each entry, of the first `indices` indices, that a table needs no more when the sequence
  /// goes on at `to` instead of `from`.
  template<class F>
  void for_passed(std::uint32_t indices, std::uint32_t from, std::uint32_t to, F f) const {
    for (std::uint32_t g = 0; g < size(); ++g) {
      const std::uint32_t end = std::min(indices, first_index(g, to));
      for (std::uint32_t i = first_index(g, from); i < end; ++i) f(i * size() + g);
    }
  }
  /// Calls `f` with each entry that is there in the indices [from, to) of a table that goes on at `position`,
  /// in order.
  template<class F>
  void for_present(std::uint32_t from, std::uint32_t to, std::uint32_t position, F f) const {
    for (std::uint32_t i = from; i < to; ++i)
      for (std::uint32_t g = 0; g < size(); ++g)
        if (i >= first_index(g, position)) f(i * size() + g);
  }

 private:
  std::uint32_t block_tokens_;
  std::vector<std::uint32_t> windows_; ///< [group], 0 or at least 2
  std::uint32_t spine_ = 0, whole_ = 0;
};

} // namespace troupe::kernels
