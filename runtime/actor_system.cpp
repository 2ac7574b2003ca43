// SPDX-License-Identifier: Apache-2.0
#include "runtime/actor_system.hpp"

#include <algorithm>

namespace troupe::runtime {
namespace {

constexpr duration owed_retry = std::chrono::milliseconds(1);

} // namespace

void system_core::enter(actor_cell& cell) {
  const std::lock_guard lock(mutex);
  cell.older = newest;
  if (newest != nullptr) newest->newer = &cell;
  newest = &cell;
  ++live;
}

void system_core::leave(actor_cell& cell) noexcept {
  std::vector<unique_function<void()>> waiters;
  {
    const std::lock_guard lock(mutex);
    if (cell.newer != nullptr) cell.newer->older = cell.older;
    if (cell.older != nullptr) cell.older->newer = cell.newer;
    if (newest == &cell) newest = cell.older;
    cell.newer = cell.older = nullptr;
    try {
      retired.push_back({cell.id(), cell.name(), cell.ring().snapshot()});
      retired_records += retired.back().records.size();
      while (retired_records > options.retired_trace_records && !retired.empty()) {
        retired_records -= retired.front().records.size();
        retired.pop_front();
      }
    } catch (const std::bad_alloc&) {
      // Its trace is lost, nothing else.
    }
    if (--live == 0) waiters.swap(when_empty);
  }
  for (auto& done : waiters) done();
}

void system_core::owe(actor_cell& cell) noexcept {
  pinned_cell pin(cell.address());
  if (!pin) return; // it has ended meanwhile
  {
    const std::lock_guard lock(owed_mutex);
    cell.owed_pin.emplace(std::move(pin));
    cell.next_owed = std::exchange(owed, &cell);
    owes.store(true, std::memory_order_relaxed);
  }
  if (retries.exchange(true)) return;
  try {
    timers.start(owed_retry, [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (!self) return;
      self->retries = false;
      self->post_owed();
    });
  } catch (...) { // the next send or turn of any actor remains
    retries = false;
  }
}

void system_core::post_all_owed() noexcept {
  for (;;) {
    std::unique_lock lock(owed_mutex);
    if (owed == nullptr) return;
    actor_cell& cell = *std::exchange(owed, owed->next_owed);
    owes.store(owed != nullptr, std::memory_order_relaxed);
    const pinned_cell pin(std::move(*cell.owed_pin));
    cell.owed_pin.reset();
    lock.unlock();
    if (!cell.try_post()) return owe(cell);
  }
}

void system_core::forget_owed(actor_cell& cell) noexcept {
  const std::lock_guard lock(owed_mutex);
  for (actor_cell** at = &owed; *at != nullptr; at = &(*at)->next_owed) {
    if (*at != &cell) continue;
    *at = cell.next_owed;
    cell.owed_pin.reset();
    break;
  }
  owes.store(owed != nullptr, std::memory_order_relaxed);
}

actor_system::actor_system(runtime::clock& clock, runtime::timers& timers, system_options options) :
    core_(std::make_shared<system_core>(clock, timers, options)) {}

actor_system::~actor_system() {
  end_all();
}

void actor_system::end_all() noexcept {
  for (;;) {
    actor_cell* newest = nullptr;
    {
      const std::lock_guard lock(core_->mutex);
      newest = core_->newest;
    }
    if (newest == nullptr) return;
    newest->abandon();
  }
}

std::size_t actor_system::live_actors() const {
  const std::lock_guard lock(core_->mutex);
  return core_->live;
}

std::vector<actor_status> actor_system::status() const {
  std::vector<actor_status> all;
  const std::lock_guard lock(core_->mutex);
  for (const auto* cell = core_->newest; cell != nullptr; cell = cell->older) all.push_back(cell->status());
  std::reverse(all.begin(), all.end());
  return all;
}

void actor_system::stop_all() noexcept {
  const std::lock_guard lock(core_->mutex);
  for (auto* cell = core_->newest; cell != nullptr; cell = cell->older) cell->tell_command(actor_cell::stop);
}

void actor_system::when_empty(unique_function<void()> done) {
  {
    const std::lock_guard lock(core_->mutex);
    if (core_->live != 0) {
      core_->when_empty.push_back(std::move(done));
      return;
    }
  }
  done();
}

std::vector<actor_trace> actor_system::traces() const {
  const std::lock_guard lock(core_->mutex);
  std::vector<actor_trace> all(core_->retired.begin(), core_->retired.end());
  for (auto* cell = core_->newest; cell != nullptr; cell = cell->older)
    all.push_back({cell->id(), cell->name(), cell->ring().snapshot()});
  return all;
}

std::string actor_system::diagram(std::uint64_t request) const {
  return sequence_diagram(traces(), request);
}

} // namespace troupe::runtime
