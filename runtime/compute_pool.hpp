// SPDX-License-Identifier: Apache-2.0
// The threads that run a step's phases: a gang that workers join when they can, and that never waits for one
// that has not.
#pragma once

#include "runtime/base/unique_function.hpp"

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace boost::asio {
class any_io_executor;
}

namespace troupe::runtime {

/// One phase of a step: `tiles` independent pieces of work, all done before the next phase begins.
struct phase {
  std::uint32_t tiles = 0; // at most 2^24 - 1; 0 = nothing to do
  std::uint32_t claim = 1; // tiles taken at a time: 1 for large tiles, 2-4 where a tile is shorter than ~5 us
  /// Runs one tile. `context` is the region's, `op` the phase's; `slot` < threads() names the running
  /// thread's scratch. Thread: compute. Must not throw, block or change the floating-point control state.
  void (*run)(void* context, const void* op, std::uint32_t tile, std::uint32_t slot) noexcept = nullptr;
  const void* op = nullptr;
  const char* name = ""; // literal: the profile adds up phases by this pointer
};

struct compute_pool_options {
  unsigned threads = 0;  // the dispatcher and its workers; 0 = every CPU this process may use
  bool pin = false;      // thread i to the i-th CPU this process may use
  int niceness = 0;      // 0-19: lets I/O threads preempt a computing thread sooner
  unsigned spin_us = 30; // how long a thread looks for the next phase before it yields, and later sleeps
  /// Called first on each thread with its slot, for tile configuration and the like; several threads at once.
  unique_function<void(std::uint32_t slot)> on_thread_start;
};

/// Wall time of all phases of one name.
struct phase_profile {
  std::string name;
  std::uint64_t calls = 0;
  std::uint64_t tiles = 0;
  std::uint64_t wall_ns = 0;
};

/// What to say when threads cannot be started: why not, and the way out.
std::string describe_thread_failure(const std::exception& why);

/// One dispatcher thread and `threads - 1` workers. A step is a function run on the dispatcher, which may run
/// any number of regions; a region is an array of phases. Every thread starts in its own share of a phase's
/// tiles (share i of `threads` equal ones belongs to slot i, so that the same thread touches the same rows,
/// heads and panels each step) and then takes what others have left. A worker that comes late, or is
/// preempted between tiles, costs its share only: the others finish the rest. A thread preempted inside a
/// tile is waited for, yielding the CPU. Idle threads sleep. Source: the join-any-time gang; measured by
/// bench/bench_pool.
class compute_pool {
 public:
  using step = unique_function<void(compute_pool&)>;

  /// Throws std::system_error or bad_alloc when not all threads can be started; none is left then.
  explicit compute_pool(compute_pool_options options = {});
  /// Runs the steps already accepted, then joins the threads.
  ~compute_pool();
  compute_pool(const compute_pool&) = delete;
  compute_pool& operator=(const compute_pool&) = delete;

  /// Threads of the gang, the dispatcher included: slots are [0, threads()).
  unsigned threads() const noexcept;

  /// Runs `phases` in order; returns when the last tile is done. Both spans and what they point to must live
  /// until then. Thread: dispatcher only, that is: inside a step. Never throws, never allocates.
  void run(std::span<const phase> phases, void* context) noexcept;

  /// Queues a step for the dispatcher, in order; `done` is called there when it has ended, and typically
  /// tells an actor. Thread: any. A step must not throw. Throws bad_alloc when it cannot be queued; neither
  /// is called then.
  void async(step work, unique_function<void()> done);
  /// The same, but `done` is posted to `executor`.
  void async(step work, const boost::asio::any_io_executor& executor, unique_function<void()> done);
  /// Runs a step and waits for it. Thread: any but the pool's own and I/O threads; for tools and tests.
  void sync(step work);

  /// True on the dispatcher thread.
  bool on_dispatcher() const noexcept;

  /// Phases by name, since the start or the last reset, in order of first use. Thread: any.
  std::vector<phase_profile> profile() const;
  void reset_profile() noexcept; // between steps
  /// Times a tile left the floating-point control state (MXCSR, x87) changed; it is restored at once. Thread:
  /// any.
  std::uint64_t fp_state_faults() const noexcept;
  /// Name of the phase that did so last, or null.
  const char* last_fp_fault() const noexcept;

 private:
  struct gang;
  std::unique_ptr<gang> gang_;
};

} // namespace troupe::runtime
