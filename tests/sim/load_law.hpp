// SPDX-License-Identifier: Apache-2.0
// The laws that lengths and times of a generated load follow.
#pragma once

#include "runtime/rng.hpp"

#include <cstdint>
#include <limits>
#include <string_view>

namespace troupe::sim {

/// A distribution over numbers above 0, as text:
///   fixed X | uniform LEAST MOST | exponential MEAN | lognormal MEDIAN SIGMA [LEAST MOST] |
///   pareto SCALE ALPHA [LEAST MOST]
/// SIGMA is that of the natural logarithm; a Pareto law begins at SCALE, and its tail is the heavier the
/// smaller ALPHA is. What falls outside of LEAST to MOST counts as the nearer of them.
struct law {
  enum class shape : std::uint8_t { fixed, uniform, exponential, log_normal, pareto };
  shape kind = shape::fixed;
  double a = 0, b = 0; ///< in the order above
  double least = 0, most = std::numeric_limits<double>::infinity();

  double draw(runtime::random_stream& chance) const;
  /// A whole number, 1 at least.
  std::uint32_t draw_count(runtime::random_stream& chance) const;
};

/// Throws std::runtime_error that says what is wrong with the text.
law parse_law(std::string_view text);

} // namespace troupe::sim
