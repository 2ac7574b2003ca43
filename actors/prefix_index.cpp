// SPDX-License-Identifier: Apache-2.0
#include "actors/prefix_index.hpp"

#include <algorithm>
#include <utility>
#include <xxhash.h>

namespace troupe::actors {
namespace {

std::uint64_t hash_of(prefix_node parent, std::span<const std::int32_t> tokens) noexcept {
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), parent);
}

} // namespace

prefix_index::prefix_index(std::uint32_t blocks, std::uint32_t block_tokens, std::uint32_t groups) :
    block_tokens_(block_tokens), groups_(groups), nodes_(blocks), tokens_(std::size_t{blocks} * block_tokens),
    beside_(groups > 1 ? std::size_t{blocks} * groups : 0, none), stands_(groups > 1 ? blocks : 0, none) {}

std::uint32_t prefix_index::find(prefix_node parent, std::span<const std::int32_t> tokens) const noexcept {
  const auto [first, last] = by_hash_.equal_range(hash_of(parent, tokens));
  for (auto at = first; at != last; ++at)
    if (nodes_[at->second].parent == parent && std::ranges::equal(tokens_of(at->second), tokens))
      return at->second;
  return none;
}

bool prefix_index::add(std::uint32_t block, prefix_node parent, std::span<const std::int32_t> tokens) {
  if (find(parent, tokens) != none) return false;
  const std::uint64_t hash = hash_of(parent, tokens);
  by_hash_.emplace(hash, block);
  std::ranges::copy(
      tokens, tokens_.begin() + static_cast<std::ptrdiff_t>(std::size_t{block} * block_tokens_));
  nodes_[block] = {++last_, parent, hash};
  return true;
}

void prefix_index::add_beside(std::uint32_t block, std::uint32_t group, std::uint32_t other) noexcept {
  std::uint32_t& place = beside_[std::size_t{block} * groups_ + group];
  if (place != none || stands_[other] != none) return;
  place = other;
  stands_[other] = block;
}

void prefix_index::remove(std::uint32_t block) noexcept {
  if (groups_ > 1 && stands_[block] != none) {
    const std::size_t first = std::size_t{std::exchange(stands_[block], none)} * groups_;
    std::replace(
        beside_.begin() + static_cast<std::ptrdiff_t>(first),
        beside_.begin() + static_cast<std::ptrdiff_t>(first + groups_), block, none);
    return;
  }
  place& gone = nodes_[block];
  if (gone.self == 0) return;
  const auto [first, last] = by_hash_.equal_range(gone.hash);
  for (auto at = first; at != last; ++at)
    if (at->second == block) {
      by_hash_.erase(at);
      break;
    }
  gone = {};
}

} // namespace troupe::actors
