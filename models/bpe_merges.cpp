// SPDX-License-Identifier: Apache-2.0
// Byte-pair merging over token ids.
#include "models/bpe_merges.hpp"

#include "models/salted_hash.hpp"

#include <algorithm>
#include <bit>
#include <functional>

namespace troupe::models {
namespace {

constexpr std::uint64_t pair_key(token_id left, token_id right) noexcept {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

// Below this length scanning all pairs for the best one beats the heap.
constexpr std::size_t short_word = 32;

} // namespace

merge_table::merge_table(std::size_t count) : multiplier_(hash_salt() | 1) {
  const std::size_t slots = std::bit_ceil(std::max<std::size_t>(2 * count, 16));
  slots_.resize(slots);
  shift_ = 64u - static_cast<unsigned>(std::countr_zero(slots));
}

std::size_t merge_table::start(std::uint64_t key) const noexcept {
  // Multiplicative hashing after folding, so that both ids reach the high bits.
  return static_cast<std::size_t>((key ^ key >> 29) * multiplier_ >> shift_);
}

bool merge_table::insert(token_id left, token_id right, merge m) {
  const std::uint64_t key = pair_key(left, right);
  std::size_t at = start(key);
  while (slots_[at].key != empty_key) {
    if (slots_[at].key == key) return false;
    at = (at + 1) & (slots_.size() - 1);
  }
  slots_[at] = {key, m};
  return true;
}

merge_table::merge merge_table::find(token_id left, token_id right) const noexcept {
  const std::uint64_t key = pair_key(left, right);
  std::size_t at = start(key);
  while (slots_[at].key != empty_key) {
    if (slots_[at].key == key) return slots_[at].value;
    at = (at + 1) & (slots_.size() - 1);
  }
  return {};
}

void bpe_merger::run(const merge_table& table, std::vector<token_id>& ids, std::size_t begin) {
  if (ids.size() - begin <= short_word) {
    run_short(table, ids, begin);
  } else {
    run_long(table, ids, begin);
  }
}

void bpe_merger::run_short(const merge_table& table, std::vector<token_id>& ids, std::size_t begin) {
  pairs_.clear();
  for (std::size_t i = begin; i + 1 < ids.size(); ++i) pairs_.push_back(table.find(ids[i], ids[i + 1]));
  while (!pairs_.empty()) {
    const auto best = std::min_element(
        pairs_.begin(), pairs_.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
    if (best->merged < 0) break;
    const auto at = static_cast<std::size_t>(best - pairs_.begin());
    ids[begin + at] = best->merged;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(begin + at + 1));
    pairs_.erase(best);
    if (at > 0) pairs_[at - 1] = table.find(ids[begin + at - 1], ids[begin + at]);
    if (at < pairs_.size()) pairs_[at] = table.find(ids[begin + at], ids[begin + at + 1]);
  }
}

void bpe_merger::offer(const merge_table& table, std::int32_t left) {
  if (left < 0) return;
  const symbol& a = symbols_[static_cast<std::size_t>(left)];
  if (a.next < 0) return;
  const token_id right_id = symbols_[static_cast<std::size_t>(a.next)].id;
  const merge_table::merge m = table.find(a.id, right_id);
  if (m.merged < 0) return;
  heap_.push_back({m.rank, left, a.id, right_id, m.merged});
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void bpe_merger::run_long(const merge_table& table, std::vector<token_id>& ids, std::size_t begin) {
  const auto n = static_cast<std::int32_t>(ids.size() - begin);
  symbols_.clear();
  heap_.clear();
  for (std::int32_t i = 0; i < n; ++i) {
    symbols_.push_back({ids[begin + static_cast<std::size_t>(i)], i - 1, i + 1 < n ? i + 1 : -1});
  }
  for (std::int32_t i = 0; i + 1 < n; ++i) offer(table, i);
  constexpr token_id gone = -2;
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const candidate c = heap_.back();
    heap_.pop_back();
    symbol& left = symbols_[static_cast<std::size_t>(c.left)];
    // Stale when either side has merged with something else since.
    if (left.id != c.left_id || left.next < 0) continue;
    symbol& right = symbols_[static_cast<std::size_t>(left.next)];
    if (right.id != c.right_id) continue;
    left.id = c.merged;
    right.id = gone;
    left.next = right.next;
    if (left.next >= 0) symbols_[static_cast<std::size_t>(left.next)].previous = c.left;
    offer(table, left.previous);
    offer(table, c.left);
  }
  std::size_t out = begin;
  for (std::int32_t i = 0; i >= 0; i = symbols_[static_cast<std::size_t>(i)].next) {
    ids[out++] = symbols_[static_cast<std::size_t>(i)].id;
  }
  ids.resize(out);
}

} // namespace troupe::models
