// SPDX-License-Identifier: Apache-2.0
// The multiplier and the soft cap, plain.
#include "kernels/scale_cap.hpp"

#include <cmath>

namespace troupe::kernels {

void scale_cap_ref(float scale, float cap, std::uint32_t count, float* x) {
  for (std::uint32_t i = 0; i < count; ++i) {
    x[i] *= scale;
    if (cap > 0) x[i] = std::isfinite(x[i]) ? cap * std::tanh(x[i] / cap) : std::nanf("");
  }
}

} // namespace troupe::kernels
