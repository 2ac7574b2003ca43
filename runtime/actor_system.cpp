// SPDX-License-Identifier: Apache-2.0
#include "runtime/actor_system.hpp"

#include <algorithm>

namespace troupe::runtime {

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
