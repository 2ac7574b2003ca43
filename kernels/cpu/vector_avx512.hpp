// SPDX-License-Identifier: Apache-2.0
// The vector operations that the kernel templates are written in, for AVX-512 (F, BW, DQ, VL) with FMA and
// F16C.
#pragma once

#include <immintrin.h>

#include <cstdint>

// Everything here is in a namespace of its own, so that no function compiled for AVX-512 is one that other
// files link.
namespace troupe::kernels::avx512 {

struct machine {
  using vec = __m512;
  static constexpr std::uint32_t width = 16;

  static vec zero() { return _mm512_setzero_ps(); }
  static vec all(float x) { return _mm512_set1_ps(x); }
  static vec load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, vec x) { _mm512_storeu_ps(p, x); }

  /// The first `count` lanes, 0..16; the others read as zero and are not touched in memory.
  static __mmask16 first(std::uint32_t count) { return static_cast<__mmask16>((1u << count) - 1); }
  static vec load_part(const float* p, std::uint32_t count) { return _mm512_maskz_loadu_ps(first(count), p); }
  static void store_part(float* p, vec x, std::uint32_t count) { _mm512_mask_storeu_ps(p, first(count), x); }
  /// Lanes below `count` of x, `other` in the rest.
  static vec keep(vec x, std::uint32_t count, vec other) {
    return _mm512_mask_blend_ps(first(count), other, x);
  }

  static vec add(vec a, vec b) { return _mm512_add_ps(a, b); }
  static vec sub(vec a, vec b) { return _mm512_sub_ps(a, b); }
  static vec mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
  static vec div(vec a, vec b) { return _mm512_div_ps(a, b); }
  static vec fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
  static vec max(vec a, vec b) { return _mm512_max_ps(a, b); }
  static float sum(vec x) { return _mm512_reduce_add_ps(x); }
  static float largest(vec x) { return _mm512_reduce_max_ps(x); }
  /// Neighbours 2i and 2i + 1 exchanged.
  static vec swap_pairs(vec x) { return _mm512_permute_ps(x, 0xb1); }
  /// Index of the first lane that equals `value`, or 16.
  static std::uint32_t find(vec x, float value) {
    return static_cast<std::uint32_t>(
        __builtin_ctz(_mm512_cmp_ps_mask(x, _mm512_set1_ps(value), _CMP_EQ_OQ) | 0x10000u));
  }

  /// x * 2^n for a whole n; rounds once where the result is subnormal.
  static vec scale(vec x, vec n) { return _mm512_scalef_ps(x, n); }
  static vec round(vec x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

  static vec load_f16(const std::uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static vec load_f16_part(const std::uint16_t* p, std::uint32_t count) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(count), p));
  }
  static vec load_bf16(const std::uint16_t* p) {
    return widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static vec load_bf16_part(const std::uint16_t* p, std::uint32_t count) {
    return widen_bf16(_mm256_maskz_loadu_epi16(first(count), p));
  }

  /// The stores of the cache: what is or becomes Inf is stored as NaN.
  static void store_f32_part(float* p, vec x, std::uint32_t count) {
    const __m512 magnitude = _mm512_abs_ps(x);
    const __mmask16 bad = _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(__builtin_inff()), _CMP_NLT_UQ);
    _mm512_mask_storeu_ps(p, first(count), _mm512_mask_blend_ps(bad, x, _mm512_set1_ps(__builtin_nanf(""))));
  }
  static void store_f16_part(std::uint16_t* p, vec x, std::uint32_t count) {
    const __m256i half = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __mmask16 bad =
        _mm256_cmpeq_epi16_mask(_mm256_and_si256(half, _mm256_set1_epi16(0x7fff)), _mm256_set1_epi16(0x7c00));
    _mm256_mask_storeu_epi16(p, first(count), _mm256_mask_mov_epi16(half, bad, _mm256_set1_epi16(0x7e00)));
  }
  static void store_bf16_part(std::uint16_t* p, vec x, std::uint32_t count) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
    const __mmask16 bad = _mm512_cmpge_epi32_mask(magnitude, _mm512_set1_epi32(0x7f7f8000));
    const __m512i top = _mm512_mask_mov_epi32(_mm512_srli_epi32(rounded, 16), bad, _mm512_set1_epi32(0x7fc0));
    _mm256_mask_storeu_epi16(p, first(count), _mm512_cvtepi32_epi16(top));
  }

 private:
  static vec widen_bf16(__m256i x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
  }
};

} // namespace troupe::kernels::avx512
