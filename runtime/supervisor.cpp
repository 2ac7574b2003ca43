// SPDX-License-Identifier: Apache-2.0
#include "runtime/supervisor.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::runtime {

namespace {
constexpr std::uint32_t slots_per_child = 4;     // adopted, crashed, restarted, gone
constexpr std::uint64_t report_bytes = 64 << 10; // of one crash report; larger ones are counted as overrun
} // namespace

restart_core::decision restart_core::crashed(std::size_t child, std::size_t children, time_point now) {
  while (!crashes_.empty() && now - crashes_.front() > limits_.period) crashes_.pop_front();
  crashes_.push_back(now);
  decision d;
  if (crashes_.size() > limits_.intensity) {
    d.escalate = true;
    return d;
  }
  const double doubled = static_cast<double>(limits_.backoff_first.count()) *
                         std::exp2(static_cast<double>(crashes_.size() - 1));
  const double capped = std::min(doubled, static_cast<double>(limits_.backoff_max.count()));
  const double spread = 1.0 + limits_.jitter * (2.0 * jitter_.unit() - 1.0);
  d.delay = duration(static_cast<duration::rep>(capped * spread));
  d.first = child;
  d.last = strategy_ == restart_strategy::rest_for_one ? children : child + 1;
  return d;
}

std::vector<std::uint64_t> poison_ledger::crashed(std::span<const std::uint64_t> requests) {
  std::vector<std::uint64_t> poison;
  for (const auto id : requests) {
    const auto [at, fresh] = crashes_.try_emplace(id, 0);
    if (++at->second >= 2) poison.push_back(id);
    if (!fresh) continue;
    order_.push_back(id);
    if (order_.size() <= capacity_) continue;
    crashes_.erase(order_.front());
    order_.pop_front();
  }
  return poison;
}

bool poison_ledger::poisoned(std::uint64_t request) const {
  const auto at = crashes_.find(request);
  return at != crashes_.end() && at->second >= 2;
}

void poison_ledger::forget(std::uint64_t request) {
  if (crashes_.erase(request) == 0) return;
  order_.erase(std::find(order_.begin(), order_.end(), request));
}

supervisor::supervisor(supervisor_options options) :
    options_(std::move(options)), core_(options_.strategy, options_.limits, options_.seed) {}

supervisor::~supervisor() {
  for (auto i = children_.size(); i-- > 0;) command(i, actor_cell::stop);
}

std::size_t supervisor::index_of(const actor_address& child) const noexcept {
  return static_cast<std::size_t>(std::find(children_.begin(), children_.end(), child) - children_.begin());
}

void supervisor::command(std::size_t child, actor_cell::command bit) noexcept {
  if (const pinned_cell cell(children_[child]); cell) cell->tell_command(bit);
}

void supervisor::on(child_adopted m) {
  children_.push_back(m.child);
}

void supervisor::on(child_crashed&& m) {
  const auto index = index_of(m.child);
  if (index == children_.size()) return;
  if (const pinned_cell cell(m.child); cell) cell->link()->refill_crash(renew());
  last_requests_ = m.report.requests;
  const auto poison = poison_.crashed(m.report.requests);
  if (options_.on_crash) options_.on_crash(m.report, poison);
  const auto decision = core_.crashed(index, children_.size(), now());
  if (decision.escalate) {
    ++round_;
    pending_.clear();
    for (std::size_t i = 0; i < children_.size(); ++i) command(i, actor_cell::suspend);
    throw failure(
        errc::executor_failed, "restart intensity spent: " + m.report.actor + " crashed last, handling " +
                                   m.report.message + ": " + m.report.what);
  }
  for (auto i = decision.first; i < decision.last; ++i) {
    command(i, actor_cell::suspend);
    pending_.insert(i);
  }
  if (after(decision.delay, restart_due{++round_}) == 0) restart_next(); // no slot for a timer: at once
}

void supervisor::on(restart_due m) {
  if (m.round == round_) restart_next();
}

void supervisor::restart_next() {
  if (!pending_.empty()) command(*pending_.begin(), actor_cell::restart);
}

void supervisor::on(child_restarted m) {
  if (const pinned_cell cell(m.child); cell) cell->link()->refill_restarted(renew());
  // A crash since then has started a new round, which restarts this child again if need be.
  if (pending_.erase(index_of(m.child)) != 0) restart_next();
}

void supervisor::on(child_gone m) {
  const auto index = index_of(m.child);
  if (index == children_.size()) return;
  children_[index] = {}; // keeps the positions of the others
  if (pending_.erase(index) != 0) restart_next();
}

bool supervisor::restart_in_place() {
  core_.reset();
  ++round_;
  for (std::size_t i = 0; i < children_.size(); ++i)
    if (children_[i].slot != nullptr) pending_.insert(i);
  restart_next();
  return true;
}

void supervisor::requests_in_hand(std::vector<std::uint64_t>& ids) const {
  ids.insert(ids.end(), last_requests_.begin(), last_requests_.end());
}

bool supervisor_link::crashed(const actor_cell& child, const crash_report& report) noexcept {
  try {
    return crash_ && crash_.tell(child_crashed{child.address(), report}) == enqueue_result::ok;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void supervisor_link::restarted(const actor_cell& child) noexcept {
  if (restarted_) (void)restarted_.tell(child_restarted{child.address()});
}

void supervisor_link::gone(const actor_cell& child) noexcept {
  if (gone_) (void)gone_.tell(child_gone{child.address()});
}

result<void> detail::adopt(actor_cell& child, const ref<supervisor_protocol>& parent) {
  auto slots = parent.reserve(slots_per_child, sizeof(child_crashed));
  if (!slots)
    return error{
        errc::queue_full,
        "supervisor of " + child.name() + " is gone or has no room for another child",
        {},
        0};
  if (slots.tell(child_adopted{child.address()}) != enqueue_result::ok)
    return error{errc::shutdown, "supervisor of " + child.name() + " has stopped", {}, 0};
  child.attach(std::make_unique<supervisor_link>(std::move(slots)));
  return {};
}

result<ref<supervisor_protocol>> spawn_supervisor(
    actor_system& system, const boost::asio::any_io_executor& executor, std::string name,
    supervisor_options options, unique_function<void(const exit_report&)> on_exit,
    const ref<supervisor_protocol>* parent) {
  spawn_options how;
  how.name = std::move(name);
  const std::uint32_t slots = options.max_children * slots_per_child + 16; // and timers
  how.mailbox.control = {slots, std::uint64_t{slots} * report_bytes};
  how.on_exit = std::move(on_exit);
  if (parent == nullptr) return spawn<supervisor>(system, executor, std::move(how), std::move(options));
  // Restarted in place, so this factory runs once.
  auto once = [options = std::move(options)]() mutable {
    return std::make_unique<supervisor>(std::move(options));
  };
  return spawn_supervised<supervisor>(system, executor, std::move(how), *parent, std::move(once));
}

} // namespace troupe::runtime
