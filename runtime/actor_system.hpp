// SPDX-License-Identifier: Apache-2.0
// The troupe: every live actor, the clock and timers they share, their dead letters and traces.
#pragma once

#include "runtime/actor_cell.hpp"

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace troupe::runtime {

struct system_options {
  /// A handler that takes longer is logged with its message and request; zero switches the check off.
  duration stall_limit = std::chrono::milliseconds(10);
  /// Trace records kept of actors that are gone, 32 bytes each.
  std::uint32_t retired_trace_records = 16384;
};

/// Shared by the system and its cells; internal.
struct system_core : std::enable_shared_from_this<system_core> {
  system_core(runtime::clock& c, runtime::timers& t, const system_options& o) :
      clock(c), timers(t), options(o) {}

  void enter(actor_cell& cell);
  void leave(actor_cell& cell) noexcept; // keeps its trace, tells the waiters when it was the last

  /// Takes over a turn that could not be posted for want of memory. Nobody else would post it: its cell is
  /// scheduled, so that a send leaves it alone.
  void owe(actor_cell& cell) noexcept;
  /// Tries again: after every send, every turn, and from a timer where there is memory for one.
  void post_owed() noexcept {
    if (owes.load(std::memory_order_relaxed)) post_all_owed();
  }
  void forget_owed(actor_cell& cell) noexcept;

  runtime::clock& clock;
  runtime::timers& timers;
  system_options options;
  dead_letters dead;

  std::mutex mutex;
  actor_cell* newest = nullptr; // live cells, newest first
  std::size_t live = 0;
  std::uint32_t next_id = 1;       // 0 is "outside"
  std::deque<actor_trace> retired; // oldest first
  std::size_t retired_records = 0;
  std::vector<unique_function<void()>> when_empty;

  std::mutex owed_mutex;            // never held while a turn is posted
  actor_cell* owed = nullptr;       // each pinned; last owed first
  std::atomic<bool> owes{false};    // `owed` is not empty
  std::atomic<bool> retries{false}; // a timer is on its way

 private:
  void post_all_owed() noexcept;
};

/// Owns nothing that runs: no thread, no executor. Actors run on the executors they were spawned on; the
/// clock and the timers must outlive them. Thread: any.
class actor_system {
 public:
  actor_system(runtime::clock& clock, runtime::timers& timers, system_options options = {});
  /// Actors still alive are ended where they stand: stop them first, or make sure that their executors run no
  /// more.
  ~actor_system();
  actor_system(const actor_system&) = delete;
  actor_system& operator=(const actor_system&) = delete;

  runtime::clock& clock() const noexcept { return core_->clock; }
  runtime::timers& timers() const noexcept { return core_->timers; }
  const dead_letters& dead() const noexcept { return core_->dead; }

  std::size_t live_actors() const;
  /// Every live actor in spawn order, with its mailbox depth and the message in hand.
  std::vector<actor_status> status() const;
  /// Asks every live actor to stop, newest first.
  void stop_all() noexcept;
  /// Ends every live actor where it stands; their queued mail becomes dead letters. Thread: the executor of
  /// all actors, from no actor's turn; or any, when their executors run no more.
  void end_all() noexcept;
  /// Calls `done` once no actor lives: at once, or on the thread that ends the last one.
  void when_empty(unique_function<void()> done);

  /// Trace rings of live actors and what is kept of those gone.
  std::vector<actor_trace> traces() const;
  /// One request over all actors as a text sequence diagram.
  std::string diagram(std::uint64_t request) const;

  const std::shared_ptr<system_core>& core() const noexcept { return core_; }

 private:
  std::shared_ptr<system_core> core_;
};

} // namespace troupe::runtime
