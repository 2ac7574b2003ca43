// SPDX-License-Identifier: Apache-2.0
// RMS normalisation, plain.
#include "kernels/rms_norm.hpp"

#include <cmath>

namespace troupe::kernels {

void rms_norm_ref(const float* in, const float* weight, float epsilon, std::uint32_t width, float* out) {
  float squares = 0;
  for (std::uint32_t i = 0; i < width; ++i) squares += in[i] * in[i];
  const float mean = squares / static_cast<float>(width);
  const float factor = std::isfinite(mean) ? 1.0F / std::sqrt(mean + epsilon) : std::nanf("");
  for (std::uint32_t i = 0; i < width; ++i) out[i] = in[i] * factor * weight[i];
}

} // namespace troupe::kernels
