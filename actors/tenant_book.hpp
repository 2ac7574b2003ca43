// SPDX-License-Identifier: Apache-2.0
// Tenants: what each of them may, and what each has had.
#pragma once

#include "actors/messages.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

namespace troupe::actors {

/// Fills with `rate` a second up to `most`. May be overdrawn: what was promised by a forecast is settled when
/// the truth is known, and a debt is waited off.
class token_bucket {
 public:
  /// A rate of 0 means no limit.
  token_bucket(double rate, double most) noexcept : rate_(rate), most_(most), level_(most) {}
  bool limited() const noexcept { return rate_ > 0; }
  double level(time_point now) const noexcept;
  /// How long until `amount` may be taken, or as much as the bucket holds at most; 0: now.
  duration wait_for(double amount, time_point now) const noexcept;
  void take(double amount, time_point now) noexcept; ///< negative: gives back
  /// Goes on with another rate and bound. A debt stays; a bucket that had no limit begins full.
  void retune(double rate, double most, time_point now) noexcept;
  bool full(time_point now) const noexcept { return level(now) >= most_; }

 private:
  double rate_, most_, level_;
  time_point at_{};
};

/// The order in which requests wait: by rank, the smaller first; of equal ranks the first to come.
struct queue_key {
  std::int64_t order = 0;
  request_id id;
  std::uint32_t priority = 0; ///< no part of the order
  bool operator==(const queue_key& o) const noexcept { return order == o.order && id == o.id; }
  auto operator<=>(const queue_key& o) const noexcept {
    const auto by_order = order <=> o.order;
    return by_order != 0 ? by_order : id <=> o.id;
  }
};

struct tenant_account {
  std::string name;
  std::uint32_t live = 0;
  token_bucket requests, tokens;
  std::set<queue_key> waiting; ///< of this tenant, by rank
  std::int64_t deficit = 0;    ///< tokens it may be seated for before its turn is over; see waiting_line
};

/// The accounts of all tenants that have requests, or a limit still to wait off. Addresses are stable while
/// an account has live requests.
class tenant_book {
 public:
  explicit tenant_book(const tenant_limits& limits) : limits_(limits) {}
  /// Other limits from now on, for every tenant.
  void retune(const tenant_limits& limits, time_point now) noexcept;
  /// Opens an account. May throw std::bad_alloc, and nothing is changed.
  tenant_account& open(std::string_view name);
  /// Why a request of `tokens` may not come in now; nothing is taken.
  std::optional<error> refuse(const tenant_account& a, double tokens, time_point now) const;
  void admit(tenant_account& a, double tokens, time_point now) noexcept;
  /// The end of a request that was admitted for `foreseen` and used `used` tokens. `a` may be gone
  /// afterwards.
  void settle(tenant_account& a, double foreseen, double used, time_point now) noexcept;
  /// Closes the account, if there is one, unless it has requests or a limit to wait off.
  void close_if_idle(const std::string& name, time_point now) noexcept;
  std::size_t size() const noexcept { return accounts_.size(); }

 private:
  static bool idle(const tenant_account& a, time_point now) noexcept;
  void close_idle(time_point now) noexcept;
  tenant_limits limits_;
  std::unordered_map<std::string, tenant_account> accounts_;
  std::size_t close_above_ = 64; ///< accounts; then those that are idle are looked for
};

} // namespace troupe::actors
