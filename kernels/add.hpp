// SPDX-License-Identifier: Apache-2.0
// The residual addition.
#pragma once

#include <cstdint>

namespace troupe::kernels {

/// to[i] += from[i]. Shapes: [count] f32, any alignment, not overlapping. Exactly equal on every instruction
/// set.
using add_fn = void(const float* from, std::uint32_t count, float* to);

add_fn add_ref, add_avx2, add_avx512;

} // namespace troupe::kernels
