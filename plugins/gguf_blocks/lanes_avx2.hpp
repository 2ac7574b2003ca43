// SPDX-License-Identifier: Apache-2.0
// The vector operations that lane_decoders.hpp is written in, for AVX2 with FMA and F16C.
#pragma once

#include "plugins/gguf_blocks/codebooks.hpp"
#include "plugins/gguf_blocks/dense_avx2.hpp"

#include <immintrin.h>

// In a namespace of its own, so that no function compiled for AVX2 is one that other files link.
namespace troupe::gguf_blocks::avx2 {

/// Eight channels side by side.
struct lanes {
  using vec = __m256;
  using ivec = __m256i; // 32-bit numbers
  static constexpr std::uint32_t width = 8;
  static constexpr std::uint32_t max_fused_rows = 4, dense_tile_rows = 6;
  /// Vectors of channels that `rows` rows of sums leave registers for.
  static constexpr int fused_vectors(int rows) { return rows <= 2 ? 4 : 2; }

  static vec zero() { return _mm256_setzero_ps(); }
  static vec all(float x) { return _mm256_set1_ps(x); }
  static vec mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
  static vec add(vec a, vec b) { return _mm256_add_ps(a, b); }
  static vec fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
  static vec fms(vec a, vec b, vec c) { return _mm256_fmsub_ps(a, b, c); }
  static void store(float* to, vec x) { _mm256_store_ps(to, x); }
  static void store_first(float* to, vec x, std::uint32_t count) {
    _mm256_maskstore_ps(to, column_mask(count), x);
  }
  static void prefetch(const void* at) { _mm_prefetch(static_cast<const char*>(at), _MM_HINT_T0); }

  static ivec bytes(const std::uint8_t* from) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }
  static ivec signed_bytes(const std::uint8_t* from) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }
  static ivec all_bits(std::uint32_t x) { return _mm256_set1_epi32(static_cast<int>(x)); }
  static ivec left(ivec x, std::uint32_t count) { return _mm256_slli_epi32(x, static_cast<int>(count)); }
  static ivec right(ivec x, std::uint32_t count) { return _mm256_srli_epi32(x, static_cast<int>(count)); }
  static ivec both(ivec a, ivec b) { return _mm256_and_si256(a, b); }
  static ivec either(ivec a, ivec b) { return _mm256_or_si256(a, b); }
  static ivec differ(ivec a, ivec b) { return _mm256_xor_si256(a, b); }
  static ivec sum(ivec a, ivec b) { return _mm256_add_epi32(a, b); }
  /// Both below 2^16, and the product too.
  static ivec product(ivec a, ivec b) { return _mm256_mullo_epi16(a, b); }
  /// Lane by lane `below` where x < limit, else `otherwise`.
  static ivec where_below(ivec x, int limit, ivec below, ivec otherwise) {
    return _mm256_blendv_epi8(otherwise, below, _mm256_cmpgt_epi32(_mm256_set1_epi32(limit), x));
  }

  static vec number(ivec x) { return _mm256_cvtepi32_ps(x); }
  static vec as_float(ivec x) { return _mm256_castsi256_ps(x); }
  static ivec as_bits(vec x) { return _mm256_castps_si256(x); }
  /// Halves in the low 16 bits of each lane, the others zero.
  static vec half(ivec x) {
    const __m256i pairs = _mm256_permute4x64_epi64(_mm256_packus_epi32(x, x), 0x88);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(pairs));
  }
  static ivec look_up(const std::uint32_t* table, ivec index) {
    return _mm256_i32gather_epi32(reinterpret_cast<const int*>(table), index, 4);
  }
  static vec look_up(const float* table, ivec index) { return _mm256_i32gather_ps(table, index, 4); }

  /// Sixteen small whole numbers, found by a lane's value below 16.
  struct sixteen {
    __m256i values;
    explicit sixteen(const codebook<std::int8_t, 16>& from) :
        values(_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from.at)))) {}
    vec operator[](ivec code) const {
      const __m256i found = _mm256_shuffle_epi8(values, code); // in the low byte of each lane
      return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(found, 24), 24));
    }
  };

  static void multiply_dense(
      const mm_tile& tile, std::uint32_t rows, const float* weights, std::uint32_t inputs, bool accumulate) {
    avx2::multiply_dense(tile, rows, weights, inputs, accumulate);
  }
};

} // namespace troupe::gguf_blocks::avx2
