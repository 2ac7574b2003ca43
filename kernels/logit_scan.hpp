// SPDX-License-Identifier: Apache-2.0
// The passes over a row of logits that sampling is made of.
#pragma once

#include <cstdint>

namespace troupe::kernels {

/// The largest element of a run of logits and whether all of them are finite.
struct logit_peak {
  float value;         ///< -inf of an empty run; any number when not finite
  std::uint32_t index; ///< the first that has the value
  bool finite;
};

/// Shapes: x [count] f32, any alignment. Exactly equal on every instruction set when finite.
using find_peak_fn = logit_peak(const float* x, std::uint32_t count);

/// out[i] = exp((x[i] - peak) * scale) and the sum of them in double precision; `out` may be x, or null for
/// the sum alone. The caller knows that x is finite, peak its maximum, and scale > 0. The order of the sum is
/// fixed per instruction set. Each exponential: 2 ulp and the rounding of its argument.
using exp_sum_fn = double(const float* x, std::uint32_t count, float peak, float scale, float* out);

find_peak_fn find_peak_ref, find_peak_avx2, find_peak_avx512;
exp_sum_fn exp_sum_ref, exp_sum_avx2, exp_sum_avx512;

} // namespace troupe::kernels
