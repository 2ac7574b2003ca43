// SPDX-License-Identifier: Apache-2.0
// The multiplier and the soft cap of a row.
#pragma once

#include <cstdint>

namespace troupe::kernels {

/// x[i] *= scale; with cap > 0 then x[i] = cap * tanh(x[i] / cap), where what is not finite becomes NaN, so
/// that the cap hides no overflow.
/// Shapes: x [count] f32, any alignment. Every element has the same operations wherever it stands. Without a
/// cap exactly equal on every instruction set, with one 8 ulp.
/// Source: Gemma Team 2024 (Gemma 2), section 2, logit soft-capping.
using scale_cap_fn = void(float scale, float cap, std::uint32_t count, float* x);

scale_cap_fn scale_cap_ref, scale_cap_avx2, scale_cap_avx512;

} // namespace troupe::kernels
