// SPDX-License-Identifier: Apache-2.0
// The gate of a SwiGLU layer.
#pragma once

#include <cstdint>

namespace troupe::kernels {

/// out[i] = gate[i] / (1 + exp(-gate[i])) * up[i].
/// Shapes: gate, up, out [count] f32, any alignment; `out` may be either input.
/// Every element has the same operations wherever it stands. Against the reference: 8 ulp.
/// Source: Shazeer 2020, section 2, SwiGLU with beta = 1.
using silu_mul_fn = void(const float* gate, const float* up, std::uint32_t count, float* out);

silu_mul_fn silu_mul_ref, silu_mul_avx2, silu_mul_avx512;

} // namespace troupe::kernels
