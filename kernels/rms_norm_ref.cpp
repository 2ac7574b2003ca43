// SPDX-License-Identifier: Apache-2.0
// RMS normalisation, plain.
#include "kernels/rms_norm.hpp"

#include <cmath>

namespace troupe::kernels {

void rms_norm_ref(const float* in, const float* weight, float epsilon, std::uint32_t width, float* out) {
  float squares = 0;
  for (std::uint32_t i = 0; i < width; ++i) squares += in[i] * in[i];
  const float factor = 1.0F / std::sqrt(squares / static_cast<float>(width) + epsilon);
  for (std::uint32_t i = 0; i < width; ++i) out[i] = in[i] * factor * weight[i];
}

} // namespace troupe::kernels
