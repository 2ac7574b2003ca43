// SPDX-License-Identifier: Apache-2.0
// IEEE half to float for machines without F16C.
#pragma once

#include <bit>
#include <cstdint>

namespace troupe::gguf_blocks {

/// Exact for every finite half; Inf and NaN map to Inf and NaN.
inline float half_to_float(std::uint16_t half) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 31u;
  const std::uint32_t fraction = half & 0x3ffu;
  if (exponent == 0) {
    // Subnormal halves are multiples of 2^-24, all of them normal floats.
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t wide = exponent == 31 ? 255u : exponent + (127u - 15u);
  return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
}

} // namespace troupe::gguf_blocks
