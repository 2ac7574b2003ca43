// SPDX-License-Identifier: Apache-2.0
// Rotary embedding: the angles, and the plain rotation.
#include "kernels/rope.hpp"

#include "kernels/step_program.hpp"

#include <cmath>

namespace troupe::kernels {

void rope_angles(const rope& rotary, std::uint32_t position, float* cosine, float* sine) {
  for (std::uint32_t pair = 0; pair < rotary.dims / 2; ++pair) {
    const float angle = static_cast<float>(position) * rotary.inverse_frequency[pair];
    const float c = std::cos(angle) * rotary.attention_factor, s = std::sin(angle) * rotary.attention_factor;
    cosine[2 * pair] = cosine[2 * pair + 1] = c;
    sine[2 * pair] = -s;
    sine[2 * pair + 1] = s;
  }
}

void rope_ref(
    float* x, const float* cosine, const float* sine, std::uint32_t heads, std::uint32_t head_dim,
    std::uint32_t dims) {
  for (std::uint32_t head = 0; head < heads; ++head, x += head_dim) {
    for (std::uint32_t i = 0; i < dims; i += 2) {
      const float even = x[i], odd = x[i + 1];
      x[i] = even * cosine[i] + odd * sine[i];
      x[i + 1] = odd * cosine[i + 1] + even * sine[i + 1];
    }
  }
}

} // namespace troupe::kernels
