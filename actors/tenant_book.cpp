// SPDX-License-Identifier: Apache-2.0
#include "actors/tenant_book.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::actors {

double token_bucket::level(time_point now) const noexcept {
  const double passed = std::max(0.0, std::chrono::duration<double>(now - at_).count());
  return std::min(most_, level_ + rate_ * passed);
}

duration token_bucket::wait_for(double amount, time_point now) const noexcept {
  if (!limited()) return {};
  const double missing = std::min(amount, most_) - level(now);
  if (missing <= 0) return {};
  return std::chrono::ceil<duration>(std::chrono::duration<double>(missing / rate_));
}

void token_bucket::take(double amount, time_point now) noexcept {
  if (!limited()) return;
  level_ = std::min(most_, level(now) - amount);
  at_ = std::max(at_, now);
}

void token_bucket::retune(double rate, double most, time_point now) noexcept {
  level_ = limited() ? std::min(level(now), most) : most;
  at_ = std::max(at_, now);
  rate_ = rate;
  most_ = most;
}

void tenant_book::retune(const tenant_limits& limits, time_point now) noexcept {
  limits_ = limits;
  for (auto& [name, account] : accounts_) {
    account.requests.retune(limits.requests_per_second, std::max(1.0, limits.request_burst), now);
    account.tokens.retune(limits.tokens_per_second, std::max(1.0, limits.token_burst), now);
  }
}

tenant_account& tenant_book::open(std::string_view name) {
  std::string key(name);
  if (const auto at = accounts_.find(key); at != accounts_.end()) return at->second;
  tenant_account fresh{
      key,
      0,
      token_bucket(limits_.requests_per_second, std::max(1.0, limits_.request_burst)),
      token_bucket(limits_.tokens_per_second, std::max(1.0, limits_.token_burst)),
      {},
      0};
  return accounts_.emplace(std::move(key), std::move(fresh)).first->second;
}

std::optional<error> tenant_book::refuse(const tenant_account& a, double tokens, time_point now) const {
  const auto milliseconds = [](duration d) {
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(d).count();
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(ms, 1, 3'600'000));
  };
  const auto rate = [](double x) {
    const auto whole = std::llround(x);
    return std::abs(x - static_cast<double>(whole)) < 1e-9 ? std::to_string(whole) : std::to_string(x);
  };
  if (limits_.max_live > 0 && a.live >= limits_.max_live)
    return error{
        errc::tenant_busy,
        "this tenant has " + std::to_string(a.live) + " requests in hand; at most " +
            std::to_string(limits_.max_live) + " may be",
        {},
        0};
  if (const duration wait = a.requests.wait_for(1, now); wait > duration::zero())
    return error{
        errc::rate_limited,
        "this tenant may begin " + rate(limits_.requests_per_second) + " requests a second",
        {},
        milliseconds(wait)};
  if (const duration wait = a.tokens.wait_for(tokens, now); wait > duration::zero())
    return error{
        errc::rate_limited,
        "this tenant may use " + rate(limits_.tokens_per_second) + " tokens a second, and this request " +
            "needs about " + std::to_string(std::llround(tokens)),
        {},
        milliseconds(wait)};
  return std::nullopt;
}

void tenant_book::admit(tenant_account& a, double tokens, time_point now) noexcept {
  ++a.live;
  a.requests.take(1, now);
  a.tokens.take(tokens, now);
}

void tenant_book::settle(tenant_account& a, double foreseen, double used, time_point now) noexcept {
  --a.live;
  a.tokens.take(used - foreseen, now);
  close_if_idle(a.name, now);
}

bool tenant_book::idle(const tenant_account& a, time_point now) noexcept {
  return a.live == 0 && (!a.requests.limited() || a.requests.full(now)) &&
         (!a.tokens.limited() || a.tokens.full(now));
}

void tenant_book::close_if_idle(const std::string& name, time_point now) noexcept {
  const auto at = accounts_.find(name);
  if (at != accounts_.end() && idle(at->second, now)) accounts_.erase(at);
  if (accounts_.size() > close_above_) close_idle(now);
}

/// Those whose limits have recovered since they were last heard of. What is left sets when to look again, so
/// that the cost is shared among as many ends.
void tenant_book::close_idle(time_point now) noexcept {
  std::erase_if(accounts_, [&](const auto& one) { return idle(one.second, now); });
  close_above_ = std::max<std::size_t>(64, 2 * accounts_.size());
}

} // namespace troupe::actors
