// SPDX-License-Identifier: Apache-2.0
// Reproducible numbers for kernel tests, and the instruction sets to test.
#pragma once

#include "kernels/cpu_features.hpp"
#include "runtime/rng.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

namespace troupe::kernels::test {

/// Normal-like numbers: the sum of four uniform ones, mean 0, standard deviation `scale`.
inline std::vector<float> random_floats(std::size_t count, std::uint64_t seed, float scale = 1.0F) {
  runtime::random_stream stream(seed);
  std::vector<float> numbers(count);
  for (float& x : numbers) {
    const double sum = stream.unit() + stream.unit() + stream.unit() + stream.unit() - 2.0;
    x = static_cast<float>(sum * std::sqrt(3.0)) * scale;
  }
  return numbers;
}

/// Vector instruction sets that this machine runs.
inline std::vector<isa> vector_isas() {
  std::vector<isa> levels;
  for (const isa level : {isa::avx2, isa::avx512})
    if (level <= best_isa()) levels.push_back(level);
  return levels;
}

/// All of them, the reference first.
inline std::vector<isa> all_isas() {
  std::vector<isa> levels{isa::ref};
  for (const isa level : vector_isas()) levels.push_back(level);
  return levels;
}

/// Units in the last place between a float and a number.
inline double ulps(float got, double expected) {
  const float rounded = static_cast<float>(expected);
  const float next = std::nextafter(std::abs(rounded), INFINITY);
  return std::abs(static_cast<double>(got) - expected) / static_cast<double>(next - std::abs(rounded));
}

/// Unit roundoff of float.
inline constexpr double epsilon = 0x1p-24;

} // namespace troupe::kernels::test
