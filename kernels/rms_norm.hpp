// SPDX-License-Identifier: Apache-2.0
// Root-mean-square normalisation of one row.
#pragma once

#include <cstdint>

namespace troupe::kernels {

/// out[i] = in[i] * (1 / sqrt(mean(in^2) + epsilon)) * weight[i].
/// A row whose squares overflow becomes NaN, so that it is found out and not silently zero.
/// Shapes: in, weight, out [width] f32, any alignment, any width >= 1; `out` may be `in`.
/// The order of the sum is fixed per instruction set. Against the reference: width * epsilon_f32 / 2 relative
/// at most. Source: Zhang & Sennrich 2019, eq. 4.
using rms_norm_fn =
    void(const float* in, const float* weight, float epsilon, std::uint32_t width, float* out);

rms_norm_fn rms_norm_ref, rms_norm_avx2, rms_norm_avx512;

} // namespace troupe::kernels
