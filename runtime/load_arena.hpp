// SPDX-License-Identifier: Apache-2.0
// Parallel loops for loading, repacking, calibration and quantisation: long, uneven work beside the steps, on
// oneTBB.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <stop_token>

namespace troupe::runtime {

/// A low-priority oneTBB arena of its own, so that loading neither floods the embedding program's arena nor
/// is stolen by it. Never use it inside a step: a step belongs to compute_pool.
class load_arena {
 public:
  /// At most `threads` at once, the calling one included; 0, or more than there are = every CPU this process
  /// may use.
  explicit load_arena(unsigned threads = 0);
  ~load_arena();
  load_arena(const load_arena&) = delete;
  load_arena& operator=(const load_arena&) = delete;

  unsigned threads() const noexcept;

  /// Called as [begin, end) of the indices to do. Thread: several at once.
  using body = std::function<void(std::size_t begin, std::size_t end)>;
  /// Called with indices done so far, ascending, the last call with `total`. Thread: any of the arena, one at
  /// a time.
  using progress = std::function<void(std::size_t done, std::size_t total)>;

  /// Runs `work` over [0, total) in pieces of up to `grain`; returns when all is done or, after a stop
  /// request, when the pieces in progress are. True when all of it was done. The first exception of `work`
  /// cancels the rest and is thrown here. Thread: any that may block, never an I/O thread.
  bool for_each(
      std::size_t total, std::size_t grain, const body& work, const progress& report = {},
      std::stop_token stop = {});

 private:
  struct arena;
  std::unique_ptr<arena> arena_;
};

} // namespace troupe::runtime
