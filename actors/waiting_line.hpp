// SPDX-License-Identifier: Apache-2.0
// Who waits for a seat, and whose turn it is.
#pragma once

#include "actors/tenant_book.hpp"

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

namespace troupe::actors {

/// Requests in order of rank (arrival + priority * quantum), tenants in turns. Of the tenants' heads the one
/// of the best rank says which priority is served; all tenants whose heads have that priority take turns by
/// deficit round robin on tokens (Shreedhar and Varghese, "Efficient fair queuing using deficit round robin",
/// 1995): at each of its turns a tenant is given `tokens_per_turn`, and its requests are seated while they
/// cost no more than it has. So age decides between priorities and within a tenant, never between requests of
/// one priority that different tenants sent: whoever sends more waits for its own requests. With one tenant
/// the order is that of ranks.
///
/// A request is passed by those of worse rank only in turns with one of better rank, or with itself. While
/// two tenants wait with one priority, what they are seated for differs by no more than their largest request
/// and one turn's tokens; so a request waits for what it would wait for in order of rank, as many times over
/// as tenants take turns. Cost: O(log n) to join and leave, O(tenants that wait) to choose.
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
  choice next(CostOf&& cost_of) const;
  /// Its turn comes: whoever's turns go by until then is given their tokens. It is the next until somebody
  /// joins or leaves or is given something back.
  void turn_to(const choice& chosen) noexcept;
  /// The chosen one takes its turn and leaves the line. Nothing may have joined or left since `next`.
  void take(const choice& chosen, std::int64_t cost) noexcept;
  /// A seated request of `tenant` turned out to cost that much less than it was seated for; negative: more.
  void give_back(tenant_account& tenant, std::int64_t tokens) noexcept;

  bool empty() const noexcept { return all_.empty(); }
  std::size_t size() const noexcept { return all_.size(); }
  const std::set<queue_key>& by_rank() const noexcept { return all_; }
  /// Of a rank: in how many quanta from now it would be due, rounded down.
  std::int64_t class_of(std::int64_t rank, time_point now) const noexcept;

 private:
  /// The priority that is served: of the best rank there is.
  std::uint32_t served() const noexcept { return all_.begin()->priority; }
  static bool takes_part(const tenant_account& a, std::uint32_t priority) noexcept {
    return a.waiting.begin()->priority == priority;
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
waiting_line::choice waiting_line::next(CostOf&& cost_of) const {
  choice chosen;
  for (std::size_t distance = 0; distance < ring_.size(); ++distance) {
    tenant_account& a = *ring_[(turn_ + distance) % ring_.size()];
    if (!takes_part(a, served())) continue;
    const queue_key head = *a.waiting.begin();
    const std::int64_t visits = visits_until(a, distance, cost_of(head.id));
    if (chosen.tenant == nullptr || visits < chosen.visits) chosen = {&a, head, visits};
  }
  return chosen;
}

} // namespace troupe::actors
