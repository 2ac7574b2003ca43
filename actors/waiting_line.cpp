// SPDX-License-Identifier: Apache-2.0
#include "actors/waiting_line.hpp"

#include <algorithm>

namespace troupe::actors {

std::int64_t waiting_line::class_of(std::int64_t rank, time_point now) const noexcept {
  const std::int64_t q = quantum_.count(), x = rank - now.time_since_epoch().count();
  return x >= 0 ? x / q : -((-x + q - 1) / q);
}

void waiting_line::join(tenant_account& tenant, const queue_key& key) {
  const auto [at, fresh] = all_.insert(key);
  if (!fresh) return;
  try {
    const bool first = tenant.waiting.empty();
    if (first && ring_.size() == ring_.capacity()) ring_.reserve(2 * ring_.size() + 8);
    tenant.waiting.insert(key);
    if (first) ring_.push_back(&tenant);
  } catch (...) {
    all_.erase(at);
    throw;
  }
}

void waiting_line::leave(tenant_account& tenant, const queue_key& key) noexcept {
  if (all_.erase(key) == 0) return;
  tenant.waiting.erase(key);
  if (!tenant.waiting.empty()) return;
  // Whoever wants nothing saves nothing up; a debt stays.
  tenant.deficit = std::min<std::int64_t>(tenant.deficit, 0);
  const auto at = static_cast<std::size_t>(std::find(ring_.begin(), ring_.end(), &tenant) - ring_.begin());
  ring_.erase(ring_.begin() + static_cast<std::ptrdiff_t>(at));
  if (at < turn_) --turn_;
  if (turn_ >= ring_.size()) turn_ = 0;
}

std::int64_t
waiting_line::visits_until(const tenant_account& a, std::size_t distance, std::int64_t cost) const noexcept {
  const auto round = static_cast<std::int64_t>(ring_.size());
  const std::int64_t missing = std::max<std::int64_t>(0, cost - a.deficit);
  const std::int64_t turns = (missing + tokens_per_turn - 1) / tokens_per_turn;
  // Whose turn it is was given its tokens when the turn began; the others are when theirs comes, needed or
  // not.
  if (distance == 0) return turns * round;
  return (std::max<std::int64_t>(turns, 1) - 1) * round + static_cast<std::int64_t>(distance);
}

void waiting_line::turn_to(const choice& chosen) noexcept {
  const auto round = static_cast<std::int64_t>(ring_.size());
  std::size_t turn = turn_;
  for (std::size_t distance = 0; distance < ring_.size(); ++distance) {
    const std::size_t at = (turn_ + distance) % ring_.size();
    tenant_account& a = *ring_[at];
    if (&a == chosen.tenant) turn = at;
    const auto d = static_cast<std::int64_t>(distance);
    if (!takes_part(a, served()) || chosen.visits < d) continue;
    const std::int64_t visits = (chosen.visits - d) / round + (distance == 0 ? 0 : 1);
    a.deficit += visits * tokens_per_turn;
  }
  turn_ = turn;
}

void waiting_line::take(const choice& chosen, std::int64_t cost) noexcept {
  turn_to(chosen);
  chosen.tenant->deficit -= cost;
  leave(*chosen.tenant, chosen.key);
}

void waiting_line::give_back(tenant_account& tenant, std::int64_t tokens) noexcept {
  tenant.deficit += tokens;
  if (tenant.waiting.empty()) tenant.deficit = std::min<std::int64_t>(tenant.deficit, 0);
}

} // namespace troupe::actors
