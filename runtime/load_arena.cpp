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

namespace troupe::runtime {

namespace tbb = oneapi::tbb;

struct load_arena::arena {
  explicit arena(unsigned threads) :
      tasks(static_cast<int>(threads), 1, tbb::task_arena::priority::low), count(threads) {}
  tbb::task_arena tasks; // one slot is kept for the calling thread
  unsigned count;
};

load_arena::load_arena(unsigned threads) :
    arena_(std::make_unique<arena>(
        threads != 0 ? threads : static_cast<unsigned>(std::max(tbb::info::default_concurrency(), 1)))) {}

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
  tbb::task_group_context group(tbb::task_group_context::isolated);
  arena_->tasks.execute([&] {
    tbb::parallel_for(
        tbb::blocked_range<std::size_t>(0, total, std::max<std::size_t>(grain, 1)),
        [&](const tbb::blocked_range<std::size_t>& piece) {
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
  return !stopped.load(std::memory_order_relaxed);
}

} // namespace troupe::runtime
