// SPDX-License-Identifier: Apache-2.0
// Additions to the residual stream.
#pragma once

#include <cstdint>

namespace troupe::kernels {

/// to[i] += from[i]. Shapes: [count] f32, any alignment, not overlapping. Exactly equal on every instruction
/// set.
using add_fn = void(const float* from, std::uint32_t count, float* to);

add_fn add_ref, add_avx2, add_avx512;

/// to[i] += from[i] * scale, two roundings. Otherwise as add_fn.
using add_scaled_fn = void(const float* from, float scale, std::uint32_t count, float* to);

add_scaled_fn add_scaled_ref, add_scaled_avx2, add_scaled_avx512;

} // namespace troupe::kernels
