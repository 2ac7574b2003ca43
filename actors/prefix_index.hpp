// SPDX-License-Identifier: Apache-2.0
// Which KV blocks hold which tokens: a trie of full blocks, by content.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <unordered_map>
#include <vector>

namespace troupe::actors {

/// Names a place in the trie. A number is never given twice, so that what is left of a forgotten parent can
/// match nothing.
using prefix_node = std::uint64_t;

/// Full KV blocks by the tokens in them and all before them, in one tenant's tree. A hash finds candidates
/// and the tokens themselves decide: no collision, accidental or made, gives anybody another prompt's keys.
/// Of a model with layer groups one group's blocks make the trie; those of the others stand beside them, each
/// beside the one with the same tokens, and are known as long as that one is.
/// Pure. `add` alone allocates; it leaves everything as it was when it throws.
class prefix_index {
 public:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  prefix_index(std::uint32_t blocks, std::uint32_t block_tokens, std::uint32_t groups = 1);

  /// The tree of a salt: what two prompts of different salts share is never found.
  static prefix_node root(std::uint64_t salt) noexcept { return salt | root_bit; }

  /// The block with these tokens right after `parent`, or `none`. `tokens`: one block's.
  std::uint32_t find(prefix_node parent, std::span<const std::int32_t> tokens) const noexcept;
  /// Enters `block`, which is not in yet. False when another block has that place already.
  bool add(std::uint32_t block, prefix_node parent, std::span<const std::int32_t> tokens);
  /// The block of `group` beside `block`, which is in the trie, or `none`.
  std::uint32_t beside(std::uint32_t block, std::uint32_t group) const noexcept {
    return beside_[std::size_t{block} * groups_ + group];
  }
  /// Enters `other`, which is not in yet, unless there is one of its group beside `block` already.
  void add_beside(std::uint32_t block, std::uint32_t group, std::uint32_t other) noexcept;
  /// Forgets `block`, if it is in. What follows it can be found no more. One of the trie goes after those
  /// beside it.
  void remove(std::uint32_t block) noexcept;

  bool holds(std::uint32_t block) const noexcept {
    return nodes_[block].self != 0 || (groups_ > 1 && stands_[block] != none);
  }
  /// Of a block that is in.
  prefix_node node(std::uint32_t block) const noexcept { return nodes_[block].self; }
  std::size_t size() const noexcept { return by_hash_.size(); }

 private:
  static constexpr prefix_node root_bit = prefix_node{1} << 63;
  struct place {
    prefix_node self = 0; ///< 0: not in
    prefix_node parent = 0;
    std::uint64_t hash = 0;
  };
  std::span<const std::int32_t> tokens_of(std::uint32_t block) const noexcept {
    return {tokens_.data() + std::size_t{block} * block_tokens_, block_tokens_};
  }

  std::uint32_t block_tokens_, groups_;
  prefix_node last_ = 0;
  std::vector<place> nodes_;         ///< [block]
  std::vector<std::int32_t> tokens_; ///< [block, block_tokens]
  std::unordered_multimap<std::uint64_t, std::uint32_t> by_hash_;
  std::vector<std::uint32_t> beside_; ///< [block, group], with several groups; none where there is none
  std::vector<std::uint32_t> stands_; ///< [block] beside which of the trie it stands, or none
};

} // namespace troupe::actors
