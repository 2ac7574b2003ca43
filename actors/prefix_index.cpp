// SPDX-License-Identifier: Apache-2.0
#include "actors/prefix_index.hpp"

#include <algorithm>
#include <compare>
#include <iterator>
#include <utility>
#include <xxhash.h>

namespace troupe::actors {
namespace {

using tokens_view = std::span<const std::int32_t>;

std::uint64_t hash_of(prefix_node parent, tokens_view tokens) noexcept {
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), parent);
}

/// By parent, then as words in a dictionary.
std::strong_ordering
compare(prefix_node parent_a, tokens_view a, prefix_node parent_b, tokens_view b) noexcept {
  if (parent_a != parent_b) return parent_a <=> parent_b;
  return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
}

} // namespace

prefix_index::prefix_index(std::uint32_t blocks, std::uint32_t block_tokens, std::uint32_t groups) :
    all_(std::make_unique<contents>()), groups_(groups), in_order_(by_content{all_.get()}),
    beside_(groups > 1 ? std::size_t{blocks} * groups : 0, none), stands_(groups > 1 ? blocks : 0, none) {
  all_->block_tokens = block_tokens;
  all_->places.resize(blocks);
  all_->tokens.resize(std::size_t{blocks} * block_tokens);
}

bool prefix_index::by_content::operator()(std::uint32_t a, std::uint32_t b) const noexcept {
  const auto order = compare(all->places[a].parent, all->of(a), all->places[b].parent, all->of(b));
  return order != 0 ? order < 0 : a < b;
}

bool prefix_index::by_content::operator()(std::uint32_t a, const wanted& b) const noexcept {
  return compare(all->places[a].parent, all->of(a), b.parent, b.tokens) < 0;
}

bool prefix_index::by_content::operator()(const wanted& a, std::uint32_t b) const noexcept {
  return compare(a.parent, a.tokens, all->places[b].parent, all->of(b)) < 0;
}

std::uint32_t prefix_index::find(prefix_node parent, tokens_view tokens) const noexcept {
  const auto [first, last] = by_hash_.equal_range(hash_of(parent, tokens));
  for (auto at = first; at != last; ++at)
    if (all_->places[at->second].parent == parent && std::ranges::equal(all_->of(at->second), tokens))
      return at->second;
  return none;
}

/// Of words in order, none begins more like a given one than its two neighbours.
prefix_part prefix_index::longest(prefix_node parent, tokens_view tokens) const noexcept {
  prefix_part best;
  const auto look_at = [&](std::uint32_t block) {
    if (all_->places[block].parent != parent) return;
    const auto known = all_->of(block);
    const auto common = static_cast<std::uint32_t>(std::ranges::mismatch(known, tokens).in1 - known.begin());
    if (common > best.tokens) best = {block, common};
  };
  const auto next = in_order_.lower_bound(wanted{parent, tokens});
  if (next != in_order_.end()) look_at(*next);
  if (next != in_order_.begin()) look_at(*std::prev(next));
  return best;
}

bool prefix_index::add(std::uint32_t block, prefix_node parent, tokens_view tokens) {
  const bool full = tokens.size() == all_->block_tokens;
  if (full ? find(parent, tokens) != none : longest(parent, tokens).tokens == tokens.size()) return false;
  place& at = all_->places[block];
  const auto write = [&] {
    std::ranges::copy(
        tokens, all_->tokens.begin() + static_cast<std::ptrdiff_t>(std::size_t{block} * all_->block_tokens));
    at.tokens = static_cast<std::uint32_t>(tokens.size());
  };
  const std::uint64_t hash = full ? hash_of(parent, tokens) : 0;
  const auto hashed = full ? by_hash_.emplace(hash, block) : by_hash_.end();
  if (at.self != 0) { // it goes on where it began
    auto node = in_order_.extract(block);
    write();
    at.hash = hash;
    in_order_.insert(std::move(node));
    return true;
  }
  at = {last_ + 1, parent, hash, 0};
  write();
  try {
    in_order_.insert(block);
  } catch (...) {
    at = {};
    if (full) by_hash_.erase(hashed);
    throw;
  }
  ++last_;
  return true;
}

void prefix_index::add_beside(std::uint32_t block, std::uint32_t group, std::uint32_t other) noexcept {
  std::uint32_t& there = beside_[std::size_t{block} * groups_ + group];
  if (there != none || stands_[other] != none) return;
  there = other;
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
  place& gone = all_->places[block];
  if (gone.self == 0) return;
  in_order_.erase(block);
  if (gone.tokens == all_->block_tokens) {
    const auto [first, last] = by_hash_.equal_range(gone.hash);
    for (auto at = first; at != last; ++at)
      if (at->second == block) {
        by_hash_.erase(at);
        break;
      }
  }
  gone = {};
}

} // namespace troupe::actors
