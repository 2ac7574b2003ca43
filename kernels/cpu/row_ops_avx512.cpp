// SPDX-License-Identifier: Apache-2.0
// The operations over one row for AVX-512.
#include "kernels/add.hpp"
#include "kernels/cpu/row_ops.hpp"
#include "kernels/cpu/vector_avx512.hpp"
#include "kernels/gelu_mul.hpp"
#include "kernels/logit_scan.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rope.hpp"
#include "kernels/scale_cap.hpp"
#include "kernels/silu_mul.hpp"

namespace troupe::kernels {

using ops = row_ops<avx512::machine>;

void rms_norm_avx512(const float* in, const float* weight, float epsilon, std::uint32_t width, float* out) {
  ops::rms_norm(in, weight, epsilon, width, out);
}

void rope_avx512(
    float* x, const float* cosine, const float* sine, std::uint32_t heads, std::uint32_t head_dim,
    std::uint32_t dims) {
  ops::rotate(x, cosine, sine, heads, head_dim, dims);
}

void rope_halves_avx512(
    float* x, const float* cosine, const float* sine, std::uint32_t heads, std::uint32_t head_dim,
    std::uint32_t dims) {
  ops::rotate_halves(x, cosine, sine, heads, head_dim, dims);
}

void silu_mul_avx512(const float* gate, const float* up, std::uint32_t count, float* out) {
  ops::silu_mul(gate, up, count, out);
}

void gelu_mul_avx512(const float* gate, const float* up, std::uint32_t count, float* out) {
  ops::gelu_mul(gate, up, count, out);
}

void scale_cap_avx512(float scale, float cap, std::uint32_t count, float* x) {
  ops::scale_cap(scale, cap, count, x);
}

void add_scaled_avx512(const float* from, float scale, std::uint32_t count, float* to) {
  ops::add_scaled(from, scale, count, to);
}

void add_avx512(const float* from, std::uint32_t count, float* to) {
  ops::add(from, count, to);
}

logit_peak find_peak_avx512(const float* x, std::uint32_t count) {
  return ops::find_peak(x, count);
}

double exp_sum_avx512(const float* x, std::uint32_t count, float peak, float scale, float* out) {
  return ops::exp_sum(x, count, peak, scale, out);
}

} // namespace troupe::kernels
