// SPDX-License-Identifier: Apache-2.0
#include "kernels/dense_schemes.hpp"
#include "kernels/half.hpp"
#include "kernels/packed_weight.hpp"
#include "tests/kernels/random_numbers.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cstring>
#include <limits>
#include <string>

using namespace troupe;
using namespace troupe::kernels;
using namespace troupe::kernels::test;

namespace {

/// The file's bytes of `numbers` in the scheme's type, and what they read back as.
struct source_matrix {
  std::vector<std::byte> bytes;
  std::vector<float> rounded;

  source_matrix(const troupe_quant_scheme& scheme, const std::vector<float>& numbers) {
    const std::string_view id = scheme.id;
    bytes.resize(numbers.size() * scheme.source_block_bytes);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (id == "dense.f32") {
        std::memcpy(bytes.data() + i * 4, &numbers[i], 4);
        rounded.push_back(numbers[i]);
        continue;
      }
      const std::uint16_t bits = id == "dense.f16" ? float_to_half(numbers[i]) : float_to_bfloat(numbers[i]);
      std::memcpy(bytes.data() + i * 2, &bits, 2);
      rounded.push_back(id == "dense.f16" ? half_to_float(bits) : bfloat_to_float(bits));
    }
  }
};

packed_weight
pack(const troupe_quant_scheme& scheme, const source_matrix& source, std::uint32_t n, std::uint32_t k) {
  packed_weight weight;
  weight.scheme = &scheme;
  weight.shape = {sizeof(troupe_weight_shape), n, k};
  troupe_packed_size size{sizeof size, 0, 0};
  BOOST_REQUIRE_EQUAL(scheme.packed_size(&weight.shape, &size), TROUPE_OK);
  weight.data = *aligned_buffer::allocate(size.bytes);
  std::array<char, 200> why{};
  for (std::uint32_t first = 0; first < n; first += 64)
    BOOST_REQUIRE_EQUAL(
        scheme.pack(
            &weight.shape, source.bytes.data(), first, std::min(n, first + 64), weight.data.data(),
            {why.data(), 200}),
        TROUPE_OK);
  return weight;
}

std::vector<float> multiply(
    const packed_weight& weight, isa level, const float* a, std::uint32_t m, std::uint32_t begin,
    std::uint32_t end) {
  const auto* kernel = find_mm_kernel(*weight.scheme, m, static_cast<std::uint32_t>(level));
  BOOST_REQUIRE(kernel != nullptr);
  BOOST_REQUIRE_EQUAL(kernel->isa, static_cast<std::uint32_t>(level));
  // One more element per row than is written, to see that it is not.
  const std::size_t columns = end - begin, stride = columns + 1;
  std::vector<float> c(m * stride, 99.0F);
  const troupe_mm_call call{sizeof call,         m,        begin,  end,    weight.data.data(), a,
                            weight.shape.k + 3U, c.data(), stride, nullptr};
  BOOST_REQUIRE_EQUAL(kernel->run(&weight.shape, &call), TROUPE_OK);
  std::vector<float> out;
  for (std::uint32_t row = 0; row < m; ++row) {
    out.insert(out.end(), c.begin() + row * stride, c.begin() + row * stride + columns);
    BOOST_REQUIRE_EQUAL(c[row * stride + columns], 99.0F);
  }
  return out;
}

std::vector<float> activations(std::uint32_t m, std::uint32_t k) {
  return random_floats(std::size_t{m} * (k + 3), 77);
}

} // namespace

BOOST_AUTO_TEST_SUITE(dense_schemes_suite)

BOOST_AUTO_TEST_CASE(what_is_packed_reads_back) {
  for (const troupe_quant_scheme* scheme : dense_schemes()) {
    for (const auto& [n, k] : {std::pair{1U, 1U}, {31U, 5U}, {32U, 8U}, {33U, 7U}, {100U, 40U}}) {
      const source_matrix source(*scheme, random_floats(std::size_t{n} * k, n));
      const packed_weight weight = pack(*scheme, source, n, k);
      std::vector<float> back(std::size_t{n} * k);
      BOOST_REQUIRE_EQUAL(
          scheme->dequantise(&weight.shape, weight.data.data(), 0, n, back.data(), k), TROUPE_OK);
      BOOST_TEST(std::memcmp(back.data(), source.rounded.data(), back.size() * 4) == 0);
      std::vector<float> row(k);
      BOOST_REQUIRE_EQUAL(
          scheme->dequantise(&weight.shape, weight.data.data(), n - 1, n, row.data(), k), TROUPE_OK);
      BOOST_TEST(std::memcmp(row.data(), source.rounded.data() + std::size_t{n - 1} * k, k * 4) == 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(every_kernel_multiplies_within_the_rounding_of_its_sums) {
  for (const troupe_quant_scheme* scheme : dense_schemes()) {
    for (const auto& [n, k] : {std::pair{1U, 1U}, {33U, 7U}, {100U, 576U}, {192U, 1537U}}) {
      const source_matrix source(*scheme, random_floats(std::size_t{n} * k, n));
      const packed_weight weight = pack(*scheme, source, n, k);
      const std::uint32_t m = 29;
      const auto a = activations(m, k);
      for (const isa level : all_isas()) {
        const auto c = multiply(weight, level, a.data(), m, 0, n);
        for (std::uint32_t row = 0; row < m; ++row) {
          for (std::uint32_t channel = 0; channel < n; ++channel) {
            double expected = 0, size = 0;
            for (std::uint32_t i = 0; i < k; ++i) {
              const double product =
                  static_cast<double>(a[row * (k + 3U) + i]) * source.rounded[std::size_t{channel} * k + i];
              expected += product;
              size += std::abs(product);
            }
            // Each of the k additions, and in the reference each product, rounds once.
            BOOST_REQUIRE_SMALL(c[row * n + channel] - expected, (k + 2) * epsilon * size + 1e-30);
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_row_has_the_same_bits_alone_in_any_batch_and_in_any_slice) {
  for (const troupe_quant_scheme* scheme : dense_schemes()) {
    const std::uint32_t n = 200, k = 65;
    const source_matrix source(*scheme, random_floats(n * k, 4));
    const packed_weight weight = pack(*scheme, source, n, k);
    const auto a = activations(40, k);
    for (const isa level : all_isas()) {
      std::vector<float> alone;
      for (std::uint32_t row = 0; row < 40; ++row) {
        const auto c = multiply(weight, level, a.data() + row * (k + 3), 1, 0, n);
        alone.insert(alone.end(), c.begin(), c.end());
      }
      for (std::uint32_t m = 1; m <= 40; ++m) {
        const auto c = multiply(weight, level, a.data(), m, 0, n);
        BOOST_REQUIRE(std::memcmp(c.data(), alone.data(), c.size() * 4) == 0);
      }
      for (const auto& [begin, end] : {std::pair{0U, 32U}, {64U, 200U}, {192U, 200U}, {32U, 160U}}) {
        for (const std::uint32_t m : {1U, 2U, 13U}) {
          const auto c = multiply(weight, level, a.data(), m, begin, end);
          for (std::uint32_t row = 0; row < m; ++row)
            BOOST_REQUIRE(
                std::memcmp(
                    c.data() + row * (end - begin), alone.data() + row * n + begin, (end - begin) * 4) == 0);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_vector_kernels_agree_bit_for_bit) {
  if (best_isa() < isa::avx512) return;
  for (const troupe_quant_scheme* scheme : dense_schemes()) {
    const source_matrix source(*scheme, random_floats(96 * 300, 4));
    const packed_weight weight = pack(*scheme, source, 96, 300);
    const auto a = activations(17, 300);
    const auto x = multiply(weight, isa::avx2, a.data(), 17, 0, 96),
               y = multiply(weight, isa::avx512, a.data(), 17, 0, 96);
    BOOST_TEST(std::memcmp(x.data(), y.data(), x.size() * 4) == 0);
  }
}

BOOST_AUTO_TEST_CASE(a_row_that_is_not_finite_stays_alone) {
  const auto* scheme = find_dense_scheme("dense.f16");
  const source_matrix source(*scheme, random_floats(64 * 48, 4));
  const packed_weight weight = pack(*scheme, source, 64, 48);
  auto a = activations(15, 48);
  for (const isa level : all_isas()) {
    const auto clean = multiply(weight, level, a.data(), 15, 0, 64);
    auto bad = a;
    bad[7 * 51 + 20] = std::numeric_limits<float>::quiet_NaN();
    const auto c = multiply(weight, level, bad.data(), 15, 0, 64);
    for (std::uint32_t row = 0; row < 15; ++row) {
      if (row == 7)
        BOOST_TEST(std::isnan(c[row * 64]));
      else
        BOOST_TEST(std::memcmp(c.data() + row * 64, clean.data() + row * 64, 256) == 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(weights_that_are_not_finite_are_refused_by_name) {
  for (const troupe_quant_scheme* scheme : dense_schemes()) {
    auto numbers = random_floats(40 * 10, 4);
    numbers[35 * 10 + 6] = std::numeric_limits<float>::infinity();
    const source_matrix source(*scheme, numbers);
    const troupe_weight_shape shape{sizeof shape, 40, 10};
    auto memory = *aligned_buffer::allocate(64 * 10 * 4);
    std::array<char, 200> why{};
    BOOST_TEST(
        scheme->pack(&shape, source.bytes.data(), 0, 40, memory.data(), {why.data(), 200}) ==
        TROUPE_BAD_DATA);
    BOOST_TEST(std::string(why.data()).find("channel 35, input 6") != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(calls_that_break_the_contract_are_answered_not_followed) {
  for (const troupe_quant_scheme* scheme : dense_schemes()) {
    const troupe_weight_shape good{sizeof good, 40, 10}, empty{sizeof empty, 0, 10}, old{4, 40, 10};
    const troupe_weight_shape huge{sizeof huge, UINT32_MAX, UINT32_MAX};
    std::array<char, 100> why{};
    float out[10];
    troupe_packed_size size{sizeof size, 0, 0};
    BOOST_TEST(scheme->check(&empty, {why.data(), 100}) == TROUPE_UNSUPPORTED);
    BOOST_TEST(scheme->check(&old, {nullptr, 0}) == TROUPE_BAD_ARG);
    BOOST_TEST(scheme->packed_size(&huge, &size) == TROUPE_UNSUPPORTED);
    BOOST_TEST(scheme->pack(&good, out, 3, 40, out, {nullptr, 0}) == TROUPE_BAD_ARG);
    BOOST_TEST(scheme->pack(&good, out, 0, 41, out, {nullptr, 0}) == TROUPE_BAD_ARG);
    BOOST_TEST(scheme->pack(&good, nullptr, 0, 40, out, {nullptr, 0}) == TROUPE_BAD_ARG);
    BOOST_TEST(scheme->dequantise(&good, out, 39, 41, out, 10) == TROUPE_BAD_ARG);
  }
}

BOOST_AUTO_TEST_SUITE_END()
