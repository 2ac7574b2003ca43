// SPDX-License-Identifier: Apache-2.0
// Random matrices of any block format, packed, and what each kernel makes of them; all memory ends at guard
// pages.
#pragma once

#include "plugins/gguf_blocks/gguf_blocks.h"
#include "tests/plugins/guarded_memory.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::test {

inline const troupe_quant_scheme& scheme_named(std::string_view id) {
  std::uint32_t count = 0;
  const troupe_quant_scheme* const* schemes = troupe_gguf_blocks_schemes(&count);
  for (std::uint32_t i = 0; i < count; ++i)
    if (id == schemes[i]->id) return *schemes[i];
  throw std::runtime_error("no scheme " + std::string(id));
}

/// Where the blocks of a format have 16-bit scales.
inline std::vector<std::size_t> half_fields(const troupe_quant_scheme& scheme) {
  static const std::vector<std::pair<std::string_view, std::vector<std::size_t>>> fields{
      {"gguf.q4_1", {0, 2}},   {"gguf.q5_1", {0, 2}}, {"gguf.q4_k", {0, 2}}, {"gguf.q5_k", {0, 2}},
      {"gguf.q2_k", {80, 82}}, {"gguf.q3_k", {108}},  {"gguf.q6_k", {208}},  {"gguf.tq1_0", {52}},
      {"gguf.tq2_0", {64}},    {"gguf.iq1_m", {}},    {"gguf.mxfp4", {}},    {"gguf.nvfp4", {}}};
  for (const auto& [id, places] : fields)
    if (id == scheme.id) return places;
  return {0};
}

/// Makes the scales of a block of random bytes ordinary: of either sign, between 0.001 and 0.25.
inline void set_scales(const troupe_quant_scheme& scheme, std::uint8_t* block, std::mt19937& random) {
  const auto high_byte = [&] {
    return static_cast<std::uint8_t>((random() & 0x80u) | (0x14 + random() % 0x20));
  };
  for (const std::size_t field : half_fields(scheme)) block[field + 1] = high_byte();
  const std::string_view id = scheme.id;
  if (id == "gguf.iq1_m") { // the top bits of the last byte of four
    const std::uint8_t high = high_byte();
    block[55] = static_cast<std::uint8_t>((block[55] & 15u) | (high & 0xf0u));
    block[53] = static_cast<std::uint8_t>((block[53] & 15u) | (high & 15u) << 4);
  } else if (id == "gguf.mxfp4") {
    block[0] = static_cast<std::uint8_t>(118 + random() % 8);
  } else if (id == "gguf.nvfp4") {
    for (int i = 0; i < 4; ++i) block[i] &= 0x3fu;
  }
}

inline bool cpu_runs(std::uint32_t isa) {
  switch (isa) {
  case TROUPE_ISA_REF:
    return true;
  case TROUPE_ISA_AVX2:
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  case TROUPE_ISA_AVX512:
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  default:
    return false;
  }
}

/// The kernels that this machine can run.
inline std::vector<const troupe_mm_kernel*> kernels(const troupe_quant_scheme& scheme) {
  std::vector<const troupe_mm_kernel*> found;
  for (std::uint32_t i = 0; i < scheme.mm_count; ++i)
    if (cpu_runs(scheme.mm[i]->isa)) found.push_back(scheme.mm[i]);
  return found;
}

/// A packed random matrix and what `dequantise` says of it.
struct matrix {
  const troupe_quant_scheme& scheme;
  troupe_weight_shape shape;
  std::vector<std::uint8_t> source;
  guarded_array<std::uint8_t> packed;
  std::vector<float> weights; // [n][k]

  matrix(const troupe_quant_scheme& s, std::uint32_t n, std::uint32_t k, std::uint32_t seed = 1) :
      scheme(s), shape{sizeof shape, n, k}, source(random_blocks(s, n, k, seed)), packed(bytes(s, shape)),
      weights(std::size_t{n} * k) {
    std::fill(packed.begin(), packed.end(), std::uint8_t{0xcd});
    std::array<char, 200> why{};
    BOOST_REQUIRE_EQUAL(
        s.pack(&shape, source.data(), 0, n, packed.data(), troupe_text{why.data(), why.size()}), TROUPE_OK);
    BOOST_REQUIRE_EQUAL(s.dequantise(&shape, packed.data(), 0, n, weights.data(), k), TROUPE_OK);
  }

  static std::uint64_t bytes(const troupe_quant_scheme& s, const troupe_weight_shape& shape) {
    troupe_packed_size size{sizeof size, 0, 0};
    BOOST_REQUIRE_EQUAL(s.packed_size(&shape, &size), TROUPE_OK);
    return size.bytes;
  }

  /// Any codes; scales and minima of either sign between 0.001 and 0.25.
  static std::vector<std::uint8_t>
  random_blocks(const troupe_quant_scheme& s, std::uint32_t n, std::uint32_t k, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<std::uint8_t> blocks(std::size_t{n} * k / s.source_block_elements * s.source_block_bytes);
    for (auto& byte : blocks) byte = static_cast<std::uint8_t>(random());
    for (std::size_t at = 0; at < blocks.size(); at += s.source_block_bytes)
      set_scales(s, &blocks[at], random);
    return blocks;
  }
};

/// Activations [m][k] that end at a guard page.
inline void fill_random(guarded_array<float>& a, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (float& x : a) x = normal(random);
}

constexpr float untouched = -12345.0f;

/// C [m][n_end - n_begin] by one kernel, all buffers guarded; elements outside the slice must stay as they
/// were.
inline std::vector<float> multiply(
    matrix& w, const troupe_mm_kernel& kernel, float* a, std::uint32_t m, std::uint32_t n_begin,
    std::uint32_t n_end) {
  const std::uint32_t columns = n_end - n_begin, stride = columns + 5;
  guarded_array<float> c(std::size_t{m} * stride - 5);
  std::fill(c.begin(), c.end(), untouched);
  guarded_array<std::uint8_t> scratch(kernel.scratch_bytes(&w.shape));
  const troupe_mm_call call{sizeof call, m,         n_begin,  n_end,  w.packed.data(),
                            a,           w.shape.k, c.data(), stride, scratch.data()};
  BOOST_REQUIRE_EQUAL(kernel.run(&w.shape, &call), TROUPE_OK);
  std::vector<float> out;
  for (std::uint32_t i = 0; i < m; ++i) {
    out.insert(out.end(), c.data() + std::size_t{i} * stride, c.data() + std::size_t{i} * stride + columns);
    for (std::uint32_t j = columns; j < stride && i + 1 < m; ++j)
      BOOST_REQUIRE_EQUAL(c[std::size_t{i} * stride + j], untouched);
  }
  return out;
}

inline bool same_bits(const std::vector<float>& left, const std::vector<float>& right) {
  return left.size() == right.size() &&
         std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) == 0;
}

} // namespace troupe::test
