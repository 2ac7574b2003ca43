// SPDX-License-Identifier: Apache-2.0
// Memory while serving: what is read of it, and what is given up, in which order, when it runs short.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace troupe::detail {

/// What the process holds and may still take, bytes.
struct memory_sample {
  std::uint64_t resident = 0; ///< 0: it could not be read
  std::uint64_t left = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t mapped = 0; ///< writable and private, touched or not: what RLIMIT_DATA counts

  std::uint64_t limit() const noexcept {
    return left > std::numeric_limits<std::uint64_t>::max() - resident ? left : resident + left;
  }
  /// Share of the limit that is held.
  double use() const noexcept {
    return resident == 0 ? 0 : static_cast<double>(resident) / static_cast<double>(limit());
  }
};

/// ROOT/proc/self and what runtime::memory_facts reads; `root` is empty but in tests. Opens some ten files,
/// which takes about 0.1 ms.
memory_sample read_memory_sample(const std::string& root = {});

enum class memory_level : std::uint8_t {
  normal, ///< nothing is given up
  batch,  ///< fewer sequences run at once
  cache,  ///< and no prefix is kept
};
std::string_view name_of(memory_level level) noexcept;

struct memory_watch_options {
  std::uint32_t max_batch = 64; ///< sequences at once while there is memory
  double high = 0.97;           ///< from this share of the limit on something is given up
  double low = 0.90;            ///< below it things come back
};

/// Pure: no clock, no files, no threads. Each sample at or above `high` gives up one thing more: half of the
/// batch, three quarters of it, then the prefix cache, then all of the batch but one sequence. `calm_samples`
/// samples in a row below `low` bring the latest back. In between nothing changes.
class memory_watch {
 public:
  static constexpr std::uint32_t steps = 4;
  static constexpr std::uint32_t calm_samples = 5;

  explicit memory_watch(const memory_watch_options& options) : options_(options) {}

  /// True when the order changed. A sample that could not be read changes nothing.
  bool observe(const memory_sample& sample) noexcept;
  /// Other watermarks from now on.
  void retune(double high, double low) noexcept {
    options_.high = high;
    options_.low = low;
  }

  /// Nothing is given up any more; not counted as a recovery. For when nobody will look again.
  void let_be() noexcept { step_ = calm_ = 0; }

  std::uint32_t step() const noexcept { return step_; }
  memory_level level() const noexcept {
    return step_ == 0 ? memory_level::normal : step_ < 3 ? memory_level::batch : memory_level::cache;
  }
  /// Sequences that may run at once, at least 1.
  std::uint32_t batch() const noexcept;
  /// How often a smaller batch was ordered, the cache given back, and one of them undone.
  std::uint64_t batch_shrinks() const noexcept { return batch_shrinks_; }
  std::uint64_t cache_shrinks() const noexcept { return cache_shrinks_; }
  std::uint64_t recoveries() const noexcept { return recoveries_; }

 private:
  memory_watch_options options_;
  std::uint32_t step_ = 0, calm_ = 0;
  std::uint64_t batch_shrinks_ = 0, cache_shrinks_ = 0, recoveries_ = 0;
};

} // namespace troupe::detail
