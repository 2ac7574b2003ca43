// SPDX-License-Identifier: Apache-2.0
// The gate of a GEGLU layer.
#pragma once

#include <cstdint>

namespace troupe::kernels {

/// out[i] = gelu(gate[i]) * up[i], gelu(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), computed
/// as x / (1 + exp(-2 sqrt(2 / pi) (x + 0.044715 x^3))), which is the same without the cancellation.
/// Shapes: gate, up, out [count] f32, any alignment; `out` may be either input.
/// Every element has the same operations wherever it stands. The relative error is that of the exponential's
/// argument t: (8 + 4 |t|) ulp.
/// Source: Hendrycks & Gimpel 2016, section 2; Shazeer 2020, section 2, GEGLU.
using gelu_mul_fn = void(const float* gate, const float* up, std::uint32_t count, float* out);

gelu_mul_fn gelu_mul_ref, gelu_mul_avx2, gelu_mul_avx512;

/// -2 sqrt(2 / pi) and that times 0.044715.
constexpr float gelu_linear = -1.5957691216057308F, gelu_cubic = -0.07135481627159725F;

} // namespace troupe::kernels
