// SPDX-License-Identifier: Apache-2.0
#include "actors/blame_core.hpp"

#include <algorithm>

namespace troupe::actors {
namespace {

constexpr std::uint32_t poison = 2; // crashes

} // namespace

std::vector<std::uint64_t> in_hand_at_crash(
    std::uint64_t of_message, std::span<const std::uint64_t> in_step, std::span<const std::uint64_t> named) {
  if (of_message != 0) return {of_message};
  std::vector<std::uint64_t> all(in_step.begin(), in_step.end());
  all.insert(all.end(), named.begin(), named.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::optional<std::uint64_t> blame_core::crashed(std::span<const request_in_hand> in_hand) {
  if (in_hand.size() == 1) {
    const request_in_hand& alone = in_hand.front();
    std::uint32_t& crashes = crashes_of(alone.digest);
    crashes = suspects_.contains(alone.number) ? poison : std::min(crashes + 1, poison);
    if (crashes == poison) {
      suspects_.erase(alone.number);
      return alone.number;
    }
  }
  for (const request_in_hand& r : in_hand) suspects_.insert(r.number);
  return std::nullopt;
}

bool blame_core::poisoned(std::uint64_t digest) const noexcept {
  const auto at = crashes_.find(digest);
  return at != crashes_.end() && at->second >= poison;
}

void blame_core::drew_token(const request_in_hand& r) noexcept {
  if (suspects_.erase(r.number) != 0) forget(r.digest);
}

void blame_core::answered(const request_in_hand& r) noexcept {
  suspects_.erase(r.number);
  forget(r.digest);
}

std::uint32_t& blame_core::crashes_of(std::uint64_t digest) {
  const auto [at, fresh] = crashes_.try_emplace(digest, 0);
  if (fresh) {
    order_.push_back(digest);
    if (order_.size() > capacity) {
      crashes_.erase(order_.front());
      order_.pop_front();
    }
  }
  return at->second;
}

void blame_core::forget(std::uint64_t digest) noexcept {
  if (crashes_.erase(digest) != 0) order_.erase(std::find(order_.begin(), order_.end(), digest));
}

} // namespace troupe::actors
