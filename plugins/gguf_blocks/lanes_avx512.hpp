// SPDX-License-Identifier: Apache-2.0
// The vector operations that lane_decoders.hpp is written in, for AVX-512 (F, BW, DQ, VL).
#pragma once

#include "plugins/gguf_blocks/codebooks.hpp"
#include "plugins/gguf_blocks/dense_avx512.hpp"

#include <immintrin.h>

// In a namespace of its own, so that no function compiled for AVX-512 is one that other files link.
namespace troupe::gguf_blocks::avx512 {

/// Sixteen channels side by side.
struct lanes {
  using vec = __m512;
  using ivec = __m512i; // 32-bit numbers
  static constexpr std::uint32_t width = 16;
  static constexpr std::uint32_t max_fused_rows = 4, dense_tile_rows = 12;
  /// Vectors of channels that `rows` rows of sums leave registers for.
  static constexpr int fused_vectors(int) { return 2; }

  static vec zero() { return _mm512_setzero_ps(); }
  static vec all(float x) { return _mm512_set1_ps(x); }
  static vec mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
  static vec add(vec a, vec b) { return _mm512_add_ps(a, b); }
  static vec fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
  static vec fms(vec a, vec b, vec c) { return _mm512_fmsub_ps(a, b, c); }
  static void store(float* to, vec x) { _mm512_store_ps(to, x); }
  static void store_first(float* to, vec x, std::uint32_t count) {
    _mm512_mask_storeu_ps(to, count >= 16 ? __mmask16{0xffff} : static_cast<__mmask16>((1u << count) - 1), x);
  }
  static void prefetch(const void* at) { _mm_prefetch(static_cast<const char*>(at), _MM_HINT_T0); }

  static ivec bytes(const std::uint8_t* from) {
    return _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static ivec signed_bytes(const std::uint8_t* from) {
    return _mm512_cvtepi8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static ivec all_bits(std::uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
  static ivec left(ivec x, std::uint32_t count) { return _mm512_slli_epi32(x, count); }
  static ivec right(ivec x, std::uint32_t count) { return _mm512_srli_epi32(x, count); }
  static ivec both(ivec a, ivec b) { return _mm512_and_si512(a, b); }
  static ivec either(ivec a, ivec b) { return _mm512_or_si512(a, b); }
  static ivec differ(ivec a, ivec b) { return _mm512_xor_si512(a, b); }
  static ivec sum(ivec a, ivec b) { return _mm512_add_epi32(a, b); }
  /// Both below 2^16, and the product too.
  static ivec product(ivec a, ivec b) { return _mm512_mullo_epi16(a, b); }
  /// Lane by lane `below` where x < limit, else `otherwise`.
  static ivec where_below(ivec x, int limit, ivec below, ivec otherwise) {
    return _mm512_mask_mov_epi32(otherwise, _mm512_cmplt_epi32_mask(x, _mm512_set1_epi32(limit)), below);
  }

  static vec number(ivec x) { return _mm512_cvtepi32_ps(x); }
  static vec as_float(ivec x) { return _mm512_castsi512_ps(x); }
  static ivec as_bits(vec x) { return _mm512_castps_si512(x); }
  /// Halves in the low 16 bits of each lane.
  static vec half(ivec x) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x)); }
  static ivec look_up(const std::uint32_t* table, ivec index) {
    return _mm512_i32gather_epi32(index, table, 4);
  }
  static vec look_up(const float* table, ivec index) { return _mm512_i32gather_ps(index, table, 4); }

  /// Sixteen small whole numbers, found by a lane's value below 16.
  struct sixteen {
    __m512 values;
    explicit sixteen(const codebook<std::int8_t, 16>& from) :
        values(_mm512_cvtepi32_ps(
            _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from.at))))) {}
    vec operator[](ivec code) const { return _mm512_permutexvar_ps(code, values); }
  };

  static void multiply_dense(
      const mm_tile& tile, std::uint32_t rows, const float* weights, std::uint32_t inputs, bool accumulate) {
    avx512::multiply_dense(tile, rows, weights, inputs, accumulate);
  }
};

} // namespace troupe::gguf_blocks::avx512
