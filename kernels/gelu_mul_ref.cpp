// SPDX-License-Identifier: Apache-2.0
// The GEGLU gate, plain.
#include "kernels/gelu_mul.hpp"

#include <cmath>

namespace troupe::kernels {

void gelu_mul_ref(const float* gate, const float* up, std::uint32_t count, float* out) {
  for (std::uint32_t i = 0; i < count; ++i) {
    const float x = gate[i];
    out[i] = x / (1.0F + std::exp(x * (gelu_linear + gelu_cubic * (x * x)))) * up[i];
  }
}

} // namespace troupe::kernels
