// SPDX-License-Identifier: Apache-2.0
// Rotary embedding: the angles, and the plain rotation.
#include "kernels/rope.hpp"

#include "kernels/step_program.hpp"

#include <cmath>

namespace troupe::kernels {

void rope_angles(
    const rope& rotary, std::uint32_t position, float* cosine, float* sine, std::uint32_t reach) {
  const bool beyond = !rotary.long_inverse_frequency.empty() && reach > rotary.original_context;
  const auto& frequencies = beyond ? rotary.long_inverse_frequency : rotary.inverse_frequency;
  const bool halves = rotary.pairs == rope_pairs::halves;
  const std::uint32_t pairs = rotary.dims / 2;
  for (std::uint32_t pair = 0; pair < pairs; ++pair) {
    const float angle = static_cast<float>(position) * frequencies[pair];
    const float c = std::cos(angle) * rotary.attention_factor, s = std::sin(angle) * rotary.attention_factor;
    const std::uint32_t first = halves ? pair : 2 * pair, second = halves ? pair + pairs : 2 * pair + 1;
    cosine[first] = cosine[second] = c;
    sine[first] = -s;
    sine[second] = s;
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

void rope_halves_ref(
    float* x, const float* cosine, const float* sine, std::uint32_t heads, std::uint32_t head_dim,
    std::uint32_t dims) {
  const std::uint32_t half = dims / 2;
  for (std::uint32_t head = 0; head < heads; ++head, x += head_dim) {
    for (std::uint32_t i = 0; i < half; ++i) {
      const float low = x[i], high = x[half + i];
      x[i] = low * cosine[i] + high * sine[i];
      x[half + i] = high * cosine[half + i] + low * sine[half + i];
    }
  }
}

} // namespace troupe::kernels
