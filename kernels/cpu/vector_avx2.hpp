// SPDX-License-Identifier: Apache-2.0
// The vector operations that the kernel templates are written in, for AVX2 with FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstdint>

// Everything here is in a namespace of its own, so that no function compiled for AVX2 is one that other files
// link.
namespace troupe::kernels::avx2 {

struct machine {
  using vec = __m256;
  static constexpr std::uint32_t width = 8;

  static vec zero() { return _mm256_setzero_ps(); }
  static vec all(float x) { return _mm256_set1_ps(x); }
  static vec load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, vec x) { _mm256_storeu_ps(p, x); }

  /// The first `count` lanes, 0..8; the others read as zero and are not touched in memory.
  static __m256i first(std::uint32_t count) {
    return _mm256_cmpgt_epi32(
        _mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static vec load_part(const float* p, std::uint32_t count) { return _mm256_maskload_ps(p, first(count)); }
  static void store_part(float* p, vec x, std::uint32_t count) { _mm256_maskstore_ps(p, first(count), x); }
  /// Lanes below `count` of x, `other` in the rest.
  static vec keep(vec x, std::uint32_t count, vec other) {
    return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(first(count)));
  }

  static vec add(vec a, vec b) { return _mm256_add_ps(a, b); }
  static vec sub(vec a, vec b) { return _mm256_sub_ps(a, b); }
  static vec mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
  static vec div(vec a, vec b) { return _mm256_div_ps(a, b); }
  static vec fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
  static vec max(vec a, vec b) { return _mm256_max_ps(a, b); }
  static float sum(vec x) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  static float largest(vec x) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
  }
  /// Neighbours 2i and 2i + 1 exchanged.
  static vec swap_pairs(vec x) { return _mm256_permute_ps(x, 0xb1); }
  /// Index of the first lane that equals `value`, or 8.
  static std::uint32_t find(vec x, float value) {
    const int mask = _mm256_movemask_ps(_mm256_cmp_ps(x, _mm256_set1_ps(value), _CMP_EQ_OQ));
    return static_cast<std::uint32_t>(__builtin_ctz(static_cast<unsigned>(mask) | 0x100u));
  }

  /// x * 2^n for a whole n in [-252, 252], in two steps, so that 2^n itself need not be a float.
  static vec scale(vec x, vec n) {
    const __m256i whole = _mm256_cvtps_epi32(n);
    const __m256i half = _mm256_srai_epi32(whole, 1);
    return _mm256_mul_ps(_mm256_mul_ps(x, power_of_two(half)), power_of_two(_mm256_sub_epi32(whole, half)));
  }
  static vec round(vec x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

  static vec load_f16(const std::uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static vec load_f16_part(const std::uint16_t* p, std::uint32_t count) {
    return _mm256_cvtph_ps(load_part_16(p, count));
  }
  static vec load_bf16(const std::uint16_t* p) {
    return widen_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static vec load_bf16_part(const std::uint16_t* p, std::uint32_t count) {
    return widen_bf16(load_part_16(p, count));
  }

  /// The stores of the cache: what is or becomes Inf is stored as NaN.
  static void store_f32_part(float* p, vec x, std::uint32_t count) {
    const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0F), x);
    const __m256 bad = _mm256_cmp_ps(magnitude, _mm256_set1_ps(__builtin_inff()), _CMP_NLT_UQ);
    store_part(p, _mm256_blendv_ps(x, _mm256_set1_ps(__builtin_nanf("")), bad), count);
  }
  static void store_f16_part(std::uint16_t* p, vec x, std::uint32_t count) {
    const __m128i half = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m128i bad = _mm_cmpeq_epi16(_mm_and_si128(half, _mm_set1_epi16(0x7fff)), _mm_set1_epi16(0x7c00));
    store_part_16(p, _mm_blendv_epi8(half, _mm_set1_epi16(0x7e00), bad), count);
  }
  static void store_bf16_part(std::uint16_t* p, vec x, std::uint32_t count) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    const __m256i bad = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f7f7fff));
    const __m256i top = _mm256_blendv_epi8(_mm256_srli_epi32(rounded, 16), _mm256_set1_epi32(0x7fc0), bad);
    const __m256i packed = _mm256_packus_epi32(top, top);
    store_part_16(p, _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x88)), count);
  }

 private:
  static vec power_of_two(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
  static vec widen_bf16(__m128i x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
  }
  static __m128i load_part_16(const std::uint16_t* p, std::uint32_t count) {
    alignas(16) std::uint16_t lanes[8] = {};
    for (std::uint32_t i = 0; i < count; ++i) lanes[i] = p[i];
    return _mm_load_si128(reinterpret_cast<const __m128i*>(lanes));
  }
  static void store_part_16(std::uint16_t* p, __m128i x, std::uint32_t count) {
    if (count == 8) return _mm_storeu_si128(reinterpret_cast<__m128i*>(p), x);
    alignas(16) std::uint16_t lanes[8];
    _mm_store_si128(reinterpret_cast<__m128i*>(lanes), x);
    for (std::uint32_t i = 0; i < count; ++i) p[i] = lanes[i];
  }
};

} // namespace troupe::kernels::avx2
