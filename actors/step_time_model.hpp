// SPDX-License-Identifier: Apache-2.0
// How long a step will take, learnt from those that were taken.
#pragma once

#include "runtime/clock.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace troupe::actors {

/// What the time of a step depends on.
struct step_shape {
  std::uint32_t decode_rows = 0, prefill_rows = 0;
  std::uint64_t positions = 0; ///< whose keys and values are read, summed over all rows

  /// Adds the rows of positions [first, first + count) of one sequence.
  void add(std::uint32_t first, std::uint32_t count, bool decode) noexcept {
    (decode ? decode_rows : prefill_rows) += count;
    positions += std::uint64_t{count} * first + std::uint64_t{count} * (std::uint64_t{count} + 1) / 2;
  }
};

/// time = a + b * decode rows + c * prefill rows + d * positions, with no coefficient below 0: least squares
/// of the relative error over steps that fade with age. Steps with decode rows only, with prefill rows only
/// and with both fade apart, so that what prompts cost is not forgotten while none comes. Any one step counts
/// for little: one that took more than three times what was foreseen, or less than a third, counts as that.
class step_time_model {
 public:
  /// Steps to learn from before anything is foretold.
  static constexpr std::uint32_t least_steps = 16;

  void observe(const step_shape& shape, runtime::duration took) noexcept;
  bool knows() const noexcept { return seen_ >= least_steps; }
  /// 0 before it knows.
  runtime::duration predict(const step_shape& shape) const noexcept;
  /// Seconds for a step, a decode row, a prefill row, a position.
  std::array<double, 4> coefficients() const noexcept;

 private:
  static constexpr std::size_t terms = 4;
  using vector = std::array<double, terms>;
  static vector features(const step_shape& shape) noexcept;
  double seconds(const vector& x) const noexcept;
  void solve() noexcept;

  /// Of the steps of one kind: sums of x x^T / y^2 and of x / y.
  struct sums {
    std::array<vector, terms> square{};
    vector product{};
  };
  std::array<sums, 3> kinds_{};
  vector weights_{};
  std::uint32_t seen_ = 0;
};

} // namespace troupe::actors
