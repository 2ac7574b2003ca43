// SPDX-License-Identifier: Apache-2.0
// Which KV blocks hold which tokens: a trie of blocks, by content.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

namespace troupe::actors {

/// Names a place in the trie. A number is never given twice, so that what is left of a forgotten parent can
/// match nothing.
using prefix_node = std::uint64_t;

/// First positions of a block.
struct prefix_part {
  std::uint32_t block = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t tokens = 0; ///< 0: of none
};

/// KV blocks by the tokens in them and all before them, in one tenant's tree. A full block has others behind
/// it; one that is filled in part is a leaf. A hash finds candidates among the full ones and the tokens
/// themselves decide: no collision, accidental or made, gives anybody another prompt's keys.
/// All are also kept in order of parent and tokens, where what begins most like some tokens stands beside
/// them: `longest` looks at two blocks, however many a parent has, in O(log(blocks)) comparisons.
/// Of a model with layer groups one group's blocks make the trie; those of the others stand beside them, each
/// beside the one with the same tokens, and are known as long as that one is.
/// Pure. `add` alone allocates; it leaves everything as it was when it throws.
class prefix_index {
 public:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  prefix_index(std::uint32_t blocks, std::uint32_t block_tokens, std::uint32_t groups = 1);

  /// The tree of a salt: what two prompts of different salts share is never found.
  static prefix_node root(std::uint64_t salt) noexcept { return salt | root_bit; }

  /// The full block with these tokens right after `parent`, or `none`. `tokens`: one block's.
  std::uint32_t find(prefix_node parent, std::span<const std::int32_t> tokens) const noexcept;
  /// The block after `parent`, full or not, that begins with the most of `tokens`, and with how many.
  /// `tokens`: one block's at most.
  prefix_part longest(prefix_node parent, std::span<const std::int32_t> tokens) const noexcept;
  /// Enters `block`, which holds these tokens, one block's at most. One that is in with fewer of them keeps
  /// its place. False, with nothing changed, when another block has all of that already.
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
    return all_->places[block].self != 0 || (groups_ > 1 && stands_[block] != none);
  }
  /// Of a block that is in.
  prefix_node node(std::uint32_t block) const noexcept { return all_->places[block].self; }
  std::size_t size() const noexcept { return in_order_.size(); }

 private:
  static constexpr prefix_node root_bit = prefix_node{1} << 63;
  struct place {
    prefix_node self = 0; ///< 0: not in
    prefix_node parent = 0;
    std::uint64_t hash = 0;   ///< of a full one
    std::uint32_t tokens = 0; ///< known
  };
  /// What is known of every block; it stays where it is when the index moves.
  struct contents {
    std::uint32_t block_tokens = 0;
    std::vector<place> places;        ///< [block]
    std::vector<std::int32_t> tokens; ///< [block, block_tokens]
    std::span<const std::int32_t> of(std::uint32_t block) const noexcept {
      return {tokens.data() + std::size_t{block} * block_tokens, places[block].tokens};
    }
  };
  struct wanted {
    prefix_node parent;
    std::span<const std::int32_t> tokens;
  };
  struct by_content {
    using is_transparent = void;
    const contents* all;
    bool operator()(std::uint32_t a, std::uint32_t b) const noexcept;
    bool operator()(std::uint32_t a, const wanted& b) const noexcept;
    bool operator()(const wanted& a, std::uint32_t b) const noexcept;
  };

  std::unique_ptr<contents> all_;
  std::uint32_t groups_;
  prefix_node last_ = 0;
  std::unordered_multimap<std::uint64_t, std::uint32_t> by_hash_; ///< full ones
  std::set<std::uint32_t, by_content> in_order_;                  ///< all of the trie
  std::vector<std::uint32_t> beside_; ///< [block, group], with several groups; none where there is none
  std::vector<std::uint32_t> stands_; ///< [block] beside which of the trie it stands, or none
};

} // namespace troupe::actors
