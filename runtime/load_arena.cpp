// SPDX-License-Identifier: Apache-2.0
#include "runtime/load_arena.hpp"

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#if defined(__SANITIZE_THREAD__)
// oneTBB is not instrumented: the checker cannot see how it hands tasks from thread to thread. What our own
// code shares through a loop is still checked; for_each orders it with atomics and a mutex of its own.
extern "C" __attribute__((visibility("default"), used)) const char* __tsan_default_suppressions() {
  return "race:tbb::detail\ncalled_from_lib:libtbb.so\n";
}
#endif

namespace troupe::runtime {

namespace tbb = oneapi::tbb;

struct load_arena::arena {
  explicit arena(unsigned threads) :
      tasks(static_cast<int>(threads), 1, tbb::task_arena::priority::low), count(threads) {}
  tbb::task_arena tasks; // one slot is kept for the calling thread
  unsigned count;
};

namespace {
unsigned usable_threads(unsigned wanted) {
  const auto machine = static_cast<unsigned>(std::max(tbb::info::default_concurrency(), 1));
  return wanted == 0 ? machine : std::min(wanted, machine);
}
} // namespace

load_arena::load_arena(unsigned threads) : arena_(std::make_unique<arena>(usable_threads(threads))) {}

load_arena::~load_arena() = default;

unsigned load_arena::threads() const noexcept {
  return arena_->count;
}

bool load_arena::for_each(
    std::size_t total, std::size_t grain, const body& work, const progress& report, std::stop_token stop) {
  if (total == 0) return true;
  std::mutex reporting;
  std::size_t finished = 0; // guarded by `reporting`: reports must not overtake each other
  std::atomic<bool> stopped{false};
  std::atomic<bool> begun{false}; // orders what the caller wrote before the pieces
  begun.store(true, std::memory_order_release);
  tbb::task_group_context group(tbb::task_group_context::isolated);
  arena_->tasks.execute([&] {
    tbb::parallel_for(
        tbb::blocked_range<std::size_t>(0, total, std::max<std::size_t>(grain, 1)),
        [&](const tbb::blocked_range<std::size_t>& piece) {
          (void)begun.load(std::memory_order_acquire);
          if (stop.stop_requested()) {
            stopped.store(true, std::memory_order_relaxed);
            group.cancel_group_execution();
            return;
          }
          work(piece.begin(), piece.end());
          const std::lock_guard lock(reporting);
          finished += piece.size();
          if (report) report(finished, total);
        },
        tbb::simple_partitioner(), group);
  });
  const std::lock_guard lock(reporting); // orders the pieces before the caller
  return !stopped.load(std::memory_order_relaxed);
}

} // namespace troupe::runtime
