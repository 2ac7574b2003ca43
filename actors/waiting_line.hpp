// SPDX-License-Identifier: Apache-2.0
// Who waits for a seat, and whose turn it is.
#pragma once

#include "actors/tenant_book.hpp"

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

namespace troupe::actors {

/// Requests in order of rank (arrival + priority * quantum); among those whose ranks fall into the same
/// quantum from now, tenants take turns by deficit round robin on tokens (Shreedhar and Varghese, "Efficient
/// fair queuing using deficit round robin", 1995): at each of its turns a tenant is given `tokens_per_turn`,
/// and its requests are seated while they cost no more than it has. With one tenant the order is that of
/// ranks. So no request is passed by one whose rank is a quantum or more behind its own, and while two
/// tenants wait, what they are seated for differs by no more than their largest request and one turn's
/// tokens. Cost: O(log n) to join and leave, O(tenants that wait) to choose.
class waiting_line {
 public:
  static constexpr std::int64_t tokens_per_turn = 64;

  explicit waiting_line(duration quantum) noexcept : quantum_(quantum) {}

  /// May throw std::bad_alloc; nothing is changed then.
  void join(tenant_account& tenant, const queue_key& key);
  /// Without a turn: it leaves the line, or never was in it.
  void leave(tenant_account& tenant, const queue_key& key) noexcept;

  struct choice {
    tenant_account* tenant = nullptr;
    queue_key key;
    std::int64_t visits = 0; ///< of tenants until its turn comes
  };
  /// Whose turn it is; the line must not be empty. `cost_of(request_id)`: tokens, at least 1.
  template<class CostOf>
  choice next(time_point now, CostOf&& cost_of) const;
  /// The chosen one takes its turn and leaves the line. Nothing may have joined or left since `next`.
  void take(const choice& chosen, std::int64_t cost, time_point now) noexcept;
  /// A seated request of `tenant` turned out to cost that much less than it was seated for; negative: more.
  void give_back(tenant_account& tenant, std::int64_t tokens) noexcept;

  bool empty() const noexcept { return all_.empty(); }
  std::size_t size() const noexcept { return all_.size(); }
  const std::set<queue_key>& by_rank() const noexcept { return all_; }
  std::int64_t class_of(std::int64_t rank, time_point now) const noexcept;

 private:
  bool takes_part(const tenant_account& a, std::int64_t best, time_point now) const noexcept {
    return class_of(a.waiting.begin()->order, now) == best;
  }
  /// How many visits of the round until a tenant at `distance` from the one whose turn it is may seat a
  /// request of `cost`.
  std::int64_t visits_until(const tenant_account& a, std::size_t distance, std::int64_t cost) const noexcept;

  duration quantum_;
  std::set<queue_key> all_;
  std::vector<tenant_account*> ring_; ///< those that wait, in the order of their turns
  std::size_t turn_ = 0;              ///< in `ring_`
};

template<class CostOf>
waiting_line::choice waiting_line::next(time_point now, CostOf&& cost_of) const {
  const std::int64_t best = class_of(all_.begin()->order, now);
  choice chosen;
  for (std::size_t distance = 0; distance < ring_.size(); ++distance) {
    tenant_account& a = *ring_[(turn_ + distance) % ring_.size()];
    if (!takes_part(a, best, now)) continue;
    const queue_key head = *a.waiting.begin();
    const std::int64_t visits = visits_until(a, distance, cost_of(head.id));
    if (chosen.tenant == nullptr || visits < chosen.visits) chosen = {&a, head, visits};
  }
  return chosen;
}

} // namespace troupe::actors
