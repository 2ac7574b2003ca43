// SPDX-License-Identifier: Apache-2.0
#include "engine/memory_watch.hpp"

#include "runtime/memory_facts.hpp"

#include <array>
#include <fstream>
#include <unistd.h>

namespace troupe::detail {

memory_sample read_memory_sample(const std::string& root) {
  memory_sample sample;
  std::ifstream pages(root + "/proc/self/statm"); // size resident shared text library data
  std::array<std::uint64_t, 6> counts{};
  for (std::uint64_t& count : counts)
    if (!(pages >> count)) return {};
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  sample.resident = counts[1] * page;
  sample.mapped = counts[5] * page;
  sample.left = runtime::read_memory_facts(root).available();
  return sample;
}

std::string_view name_of(memory_level level) noexcept {
  constexpr std::string_view names[] = {"normal", "batch", "cache"};
  return names[static_cast<std::size_t>(level)];
}

bool memory_watch::observe(const memory_sample& sample) noexcept {
  if (sample.resident == 0) return false;
  const double use = sample.use();
  if (use >= options_.high) {
    calm_ = 0;
    if (step_ == steps) return false;
    ++step_;
    ++(step_ == 3 ? cache_shrinks_ : batch_shrinks_);
    return true;
  }
  if (use >= options_.low || step_ == 0) {
    calm_ = 0;
    return false;
  }
  if (++calm_ < calm_samples) return false;
  calm_ = 0;
  --step_;
  ++recoveries_;
  return true;
}

std::uint32_t memory_watch::batch() const noexcept {
  constexpr std::array<std::uint32_t, steps + 1> parts{1, 2, 4, 4, 0};
  const std::uint32_t part = parts[step_];
  return part == 0 ? 1 : std::max<std::uint32_t>(1, options_.max_batch / part);
}

} // namespace troupe::detail
