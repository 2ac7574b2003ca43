// SPDX-License-Identifier: Apache-2.0
// Unquantised weights behind the same table as every quantised format: dense.f32, dense.f16, dense.bf16.
#pragma once

#include "troupe/ext/quant_scheme.h"

#include <span>
#include <string_view>

namespace troupe::kernels {

/// The three schemes, static. 16-bit weights are widened on the way into FP32 multiply-adds.
/// Each output is one chain over k from 0 up, fused in the vector kernels, so that AVX2 and AVX-512 agree bit
/// for bit. Packing refuses NaN and Inf. Thread: any.
std::span<const troupe_quant_scheme* const> dense_schemes() noexcept;

/// One of them by id, or null.
const troupe_quant_scheme* find_dense_scheme(std::string_view id) noexcept;

/// Packed form: panels of 32 channels, each [k][32] elements of the file's type; channels beyond n are zero.
using dense_mm_fn = int32_t(const troupe_weight_shape* shape, const troupe_mm_call* call);

/// One multiplication per element type.
struct dense_mm_table {
  dense_mm_fn* f32;
  dense_mm_fn* f16;
  dense_mm_fn* bf16;
};

extern const dense_mm_table dense_mm_ref, dense_mm_avx2, dense_mm_avx512;

} // namespace troupe::kernels
