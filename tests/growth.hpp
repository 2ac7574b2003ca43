// SPDX-License-Identifier: Apache-2.0
// How work grows with its size, by ratios of CPU time: no machine is too slow and no neighbour too loud for
// them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <limits>

namespace troupe::test {

/// CPU seconds that this thread spends in `work`.
template<class Work>
double cpu_seconds(Work&& work) {
  const auto now = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double begin = now();
  work();
  return now() - begin;
}

inline constexpr double near_linear = 28; ///< allows for caches that the whole does not fit

/// How many times longer `work(size)` takes than `work(size / 8)`: about 8 where it is linear, 64 where it is
/// quadratic. The least of some tries: a virtual machine's CPU time holds what its host does meanwhile.
template<class Work>
double growth(std::size_t size, Work&& work) {
  constexpr double least = 50e-6; // below, the clock and the caches decide
  double part = std::numeric_limits<double>::max(), whole = part;
  const auto measure_part = [&] { part = std::min(part, cpu_seconds([&] { work(size / 8); })); };
  for (int i = 0; i < 3; ++i) measure_part();
  for (int i = 0; i < 8 && whole > near_linear * std::max(part, least); ++i) {
    whole = std::min(whole, cpu_seconds([&] { work(size); }));
    measure_part();
  }
  return whole / std::max(part, least);
}

} // namespace troupe::test
