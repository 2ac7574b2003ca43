// SPDX-License-Identifier: Apache-2.0
// The residual addition, plain.
#include "kernels/add.hpp"

namespace troupe::kernels {

void add_ref(const float* from, std::uint32_t count, float* to) {
  for (std::uint32_t i = 0; i < count; ++i) to[i] += from[i];
}

void add_scaled_ref(const float* from, float scale, std::uint32_t count, float* to) {
  for (std::uint32_t i = 0; i < count; ++i) to[i] += from[i] * scale;
}

} // namespace troupe::kernels
