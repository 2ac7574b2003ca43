// SPDX-License-Identifier: Apache-2.0
// One table per instruction set that this room has kernels for.
#include "kernels/kernel_table.hpp"

namespace troupe::kernels {

namespace {

constexpr kernel_table ref{isa::ref,      rms_norm_ref,  rope_ref,    rope_halves_ref,
                           silu_mul_ref,  gelu_mul_ref,  add_ref,     add_scaled_ref,
                           scale_cap_ref, find_peak_ref, exp_sum_ref, &attention_ref};
#if defined(__x86_64__)
constexpr kernel_table avx2{isa::avx2,      rms_norm_avx2,  rope_avx2,    rope_halves_avx2,
                            silu_mul_avx2,  gelu_mul_avx2,  add_avx2,     add_scaled_avx2,
                            scale_cap_avx2, find_peak_avx2, exp_sum_avx2, &attention_avx2};
constexpr kernel_table avx512{isa::avx512,      rms_norm_avx512,  rope_avx512,    rope_halves_avx512,
                              silu_mul_avx512,  gelu_mul_avx512,  add_avx512,     add_scaled_avx512,
                              scale_cap_avx512, find_peak_avx512, exp_sum_avx512, &attention_avx512};
#endif

} // namespace

const kernel_table& kernels_for(isa level) noexcept {
#if defined(__x86_64__)
  if (level >= isa::avx512) return avx512;
  if (level >= isa::avx2) return avx2;
#else
  (void)level;
#endif
  return ref;
}

} // namespace troupe::kernels
