// SPDX-License-Identifier: Apache-2.0
// The passes over logits, plain.
#include "kernels/logit_scan.hpp"

#include <cmath>
#include <limits>

namespace troupe::kernels {

logit_peak find_peak_ref(const float* x, std::uint32_t count) {
  logit_peak peak{-std::numeric_limits<float>::infinity(), 0, true};
  for (std::uint32_t i = 0; i < count; ++i) {
    peak.finite = peak.finite && std::isfinite(x[i]);
    if (x[i] > peak.value) {
      peak.value = x[i];
      peak.index = i;
    }
  }
  return peak;
}

double exp_sum_ref(const float* x, std::uint32_t count, float peak, float scale, float* out) {
  double sum = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const float e = std::exp((x[i] - peak) * scale);
    if (out != nullptr) out[i] = e;
    sum += e;
  }
  return sum;
}

} // namespace troupe::kernels
