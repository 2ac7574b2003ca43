// SPDX-License-Identifier: Apache-2.0
// The SwiGLU gate, plain.
#include "kernels/silu_mul.hpp"

#include <cmath>

namespace troupe::kernels {

void silu_mul_ref(const float* gate, const float* up, std::uint32_t count, float* out) {
  for (std::uint32_t i = 0; i < count; ++i) out[i] = gate[i] / (1.0F + std::exp(-gate[i])) * up[i];
}

} // namespace troupe::kernels
