// SPDX-License-Identifier: Apache-2.0
// The five block formats: what they read back, and that every kernel multiplies by exactly that.
#include "models/gguf_file.hpp"
#include "tests/plugins/packed_matrix.hpp"

#include <boost/test/unit_test.hpp>

#include <xmmintrin.h>

#include <array>
#include <bit>
#include <cmath>
#include <random>

namespace {

using namespace troupe::test;

const std::array ids{"gguf.q4_0", "gguf.q4_1", "gguf.q5_0", "gguf.q5_1", "gguf.q8_0"};

template<class Check>
void for_each_format(Check check) {
  for (const char* id : ids) BOOST_TEST_CONTEXT(id) {
      check(id);
    }
}

bool has_minimum(const troupe_quant_scheme& scheme) {
  return std::string_view(scheme.id).ends_with("_1");
}

} // namespace

BOOST_AUTO_TEST_SUITE(gguf_blocks)

BOOST_AUTO_TEST_CASE(reads_back_bit_for_bit_what_the_gguf_package_reads) {
  for_each_format([](const char* id) {
    const auto file = troupe::models::gguf_file::open(TROUPE_TEST_DATA "/gguf_blocks.gguf").value();
    const std::string name = std::string_view(id).substr(5).data();
    const auto* blocks = file.tensor(name).value();
    const auto* expected = file.tensor(name + ".expected").value();
    const troupe_quant_scheme& scheme = scheme_named(id);
    const troupe_weight_shape shape{
        sizeof shape, static_cast<std::uint32_t>(blocks->ne[1]), static_cast<std::uint32_t>(blocks->ne[0])};
    guarded_array<std::uint8_t> packed(matrix::bytes(scheme, shape));
    // The source may stand at any address.
    std::vector<std::byte> odd(blocks->data.size() + 1);
    std::copy(blocks->data.begin(), blocks->data.end(), odd.begin() + 1);
    BOOST_TEST(scheme.pack(&shape, odd.data() + 1, 0, shape.n, packed.data(), {nullptr, 0}) == TROUPE_OK);
    std::vector<float> weights(std::size_t{shape.n} * shape.k);
    BOOST_TEST(scheme.dequantise(&shape, packed.data(), 0, shape.n, weights.data(), shape.k) == TROUPE_OK);
    BOOST_REQUIRE_EQUAL(expected->data.size(), weights.size() * sizeof(float));
    BOOST_TEST(std::memcmp(weights.data(), expected->data.data(), expected->data.size()) == 0);
  });
}

BOOST_AUTO_TEST_CASE(packing_in_slices_gives_the_same_bytes) {
  for_each_format([](const char* id) {
    matrix whole(scheme_named(id), 113, 96);
    guarded_array<std::uint8_t> packed(whole.packed.size());
    std::fill(packed.begin(), packed.end(), std::uint8_t{0x11});
    for (const auto& [begin, end] : {std::pair{96u, 113u}, std::pair{0u, 32u}, std::pair{32u, 96u}})
      BOOST_TEST(
          whole.scheme.pack(&whole.shape, whole.source.data(), begin, end, packed.data(), {nullptr, 0}) ==
          TROUPE_OK);
    BOOST_TEST(std::memcmp(packed.data(), whole.packed.data(), packed.size()) == 0);
  });
}

BOOST_AUTO_TEST_CASE(any_run_of_channels_can_be_read_back) {
  for_each_format([](const char* id) {
    matrix w(scheme_named(id), 49, 64);
    std::vector<float> some(3 * 70, untouched);
    BOOST_TEST(w.scheme.dequantise(&w.shape, w.packed.data(), 30, 33, some.data(), 70) == TROUPE_OK);
    for (std::size_t j = 0; j < 3; ++j) {
      BOOST_TEST(std::memcmp(&some[j * 70], &w.weights[(30 + j) * 64], 64 * sizeof(float)) == 0);
      BOOST_TEST(some[j * 70 + 64] == untouched);
    }
  });
}

BOOST_AUTO_TEST_CASE(every_kernel_multiplies_by_the_numbers_read_back) {
  for_each_format([](const char* id) {
    for (const auto& [n, k] :
         {std::pair{1u, 32u}, std::pair{33u, 64u}, std::pair{49u, 576u}, std::pair{160u, 800u},
          std::pair{96u, 1568u}}) {
      matrix w(scheme_named(id), n, k);
      for (const std::uint32_t m : {1u, 3u, 13u}) {
        guarded_array<float> a(std::size_t{m} * k);
        fill_random(a, 5);
        for (const troupe_mm_kernel* kernel : kernels(w.scheme)) {
          const auto c = multiply(w, *kernel, a.data(), m, 0, n);
          for (std::uint32_t i = 0; i < m; ++i)
            for (std::uint32_t j = 0; j < n; ++j) {
              double exact = 0, magnitude = 0;
              for (std::uint32_t x = 0; x < k; ++x) {
                const double product = double{a[std::size_t{i} * k + x]} * w.weights[std::size_t{j} * k + x];
                exact += product;
                magnitude += std::abs(product);
              }
              // k products and k sums, each within half a unit of 2^-23: (k + 1) u sum|a w| to first order in
              // u.
              const double bound = (k + 2) * 0x1p-24 * magnitude;
              BOOST_REQUIRE_SMALL(c[std::size_t{i} * n + j] - exact, bound);
            }
        }
      }
    }
  });
}

BOOST_AUTO_TEST_CASE(a_row_gives_the_same_bits_whatever_the_row_count_and_the_slice) {
  for_each_format([](const char* id) {
    for (const auto& [n, k] : {std::pair{49u, 576u}, std::pair{200u, 1568u}}) {
      matrix w(scheme_named(id), n, k);
      constexpr std::uint32_t most = 64;
      guarded_array<float> a(std::size_t{most} * k);
      fill_random(a, 9);
      for (const troupe_mm_kernel* kernel : kernels(w.scheme)) {
        std::vector<float> alone;
        for (std::uint32_t i = 0; i < most; ++i) {
          const auto row = multiply(w, *kernel, a.data() + std::size_t{i} * k, 1, 0, n);
          alone.insert(alone.end(), row.begin(), row.end());
        }
        for (std::uint32_t m = 2; m <= most; m += m < 30 ? 1 : 17) {
          // The rows at the end of A, so that a read beyond them faults.
          const std::uint32_t first = most - m;
          const auto together = multiply(w, *kernel, a.data() + std::size_t{first} * k, m, 0, n);
          BOOST_TEST(
              same_bits(together, {alone.begin() + std::ptrdiff_t{first} * n, alone.end()}),
              "isa " << kernel->isa << ", m " << m);
          const auto slice = multiply(w, *kernel, a.data() + std::size_t{first} * k, m, 32, n);
          for (std::uint32_t i = 0; i < m; ++i)
            BOOST_REQUIRE(
                std::memcmp(
                    &slice[std::size_t{i} * (n - 32)], &together[std::size_t{i} * n + 32],
                    (n - 32) * sizeof(float)) == 0);
        }
      }
    }
  });
}

BOOST_AUTO_TEST_CASE(avx2_and_avx512_give_the_same_bits) {
  for_each_format([](const char* id) {
    if (!cpu_runs(TROUPE_ISA_AVX512)) {
      std::puts("skipped: this machine has no AVX-512");
      return;
    }
    matrix w(scheme_named(id), 161, 832);
    for (const std::uint32_t m : {1u, 2u, 5u, 7u, 24u, 40u}) {
      guarded_array<float> a(std::size_t{m} * w.shape.k);
      fill_random(a, m);
      std::array<std::vector<float>, TROUPE_ISA_AMX + 1> by_isa;
      for (const troupe_mm_kernel* kernel : kernels(w.scheme))
        by_isa[kernel->isa] = multiply(w, *kernel, a.data(), m, 0, w.shape.n);
      BOOST_TEST(same_bits(by_isa[TROUPE_ISA_AVX2], by_isa[TROUPE_ISA_AVX512]), "m " << m);
    }
  });
}

BOOST_AUTO_TEST_CASE(a_row_with_nan_or_infinity_spoils_only_itself) {
  for_each_format([](const char* id) {
    matrix w(scheme_named(id), 65, 64);
    constexpr std::uint32_t m = 14;
    for (const troupe_mm_kernel* kernel : kernels(w.scheme)) {
      guarded_array<float> a(m * 64);
      fill_random(a, 2);
      const auto clean = multiply(w, *kernel, a.data(), m, 0, 65);
      a[3 * 64 + 7] = std::numeric_limits<float>::quiet_NaN();
      a[9 * 64 + 63] = std::numeric_limits<float>::infinity();
      const auto spoilt = multiply(w, *kernel, a.data(), m, 0, 65);
      for (std::uint32_t i = 0; i < m; ++i) {
        const bool same = std::memcmp(&clean[i * 65], &spoilt[i * 65], 65 * sizeof(float)) == 0;
        BOOST_TEST(same == (i != 3 && i != 9), "isa " << kernel->isa << ", row " << i);
      }
      BOOST_TEST(std::isnan(spoilt[3 * 65]));
      BOOST_TEST(!std::isfinite(spoilt[9 * 65]));
    }
  });
}

BOOST_AUTO_TEST_CASE(kernels_keep_the_rounding_mode_and_the_masks_of_the_cpu) {
  for_each_format([](const char* id) {
    constexpr unsigned sticky_flags = 0x3f;
    matrix w(scheme_named(id), 64, 64);
    guarded_array<float> a(16 * 64);
    fill_random(a, 1);
    for (const troupe_mm_kernel* kernel : kernels(w.scheme)) {
      const unsigned before = _mm_getcsr();
      multiply(w, *kernel, a.data(), 16, 0, 64);
      BOOST_TEST((_mm_getcsr() & ~sticky_flags) == (before & ~sticky_flags));
    }
  });
}

BOOST_AUTO_TEST_CASE(scales_that_are_not_finite_are_refused_with_their_place) {
  for_each_format([](const char* id) {
    const troupe_quant_scheme& scheme = scheme_named(id);
    const troupe_weight_shape shape{sizeof shape, 40, 96};
    const auto good = matrix::random_blocks(scheme, shape.n, shape.k, 4);
    guarded_array<std::uint8_t> packed(matrix::bytes(scheme, shape));
    for (const std::uint16_t bad : {std::uint16_t{0x7c00}, std::uint16_t{0xfc00}, std::uint16_t{0x7e01}})
      for (std::size_t half = 0; half < (has_minimum(scheme) ? 2u : 1u); ++half) {
        auto blocks = good;
        std::memcpy(&blocks[(37 * 3 + 1) * scheme.source_block_bytes + half * 2], &bad, 2);
        std::array<char, 200> why{};
        BOOST_TEST(
            scheme.pack(&shape, blocks.data(), 0, 40, packed.data(), troupe_text{why.data(), why.size()}) ==
            TROUPE_BAD_DATA);
        BOOST_TEST(
            std::string_view(why.data()).find("channel 37, inputs 32..63") != std::string_view::npos,
            why.data());
        // A text buffer of one byte is a legal one.
        BOOST_TEST(
            scheme.pack(&shape, blocks.data(), 0, 40, packed.data(), troupe_text{why.data(), 1}) ==
            TROUPE_BAD_DATA);
        BOOST_TEST(why[0] == '\0');
        BOOST_TEST(scheme.pack(&shape, blocks.data(), 0, 32, packed.data(), {nullptr, 0}) == TROUPE_OK);
      }
  });
}

BOOST_AUTO_TEST_CASE(shapes_and_arguments_out_of_contract_are_refused) {
  for_each_format([](const char* id) {
    const troupe_quant_scheme& scheme = scheme_named(id);
    std::array<char, 200> why{};
    const troupe_text text{why.data(), why.size()};
    for (const auto& [n, k] : {std::pair{0u, 32u}, std::pair{4u, 0u}, std::pair{4u, 33u}}) {
      const troupe_weight_shape shape{sizeof shape, n, k};
      troupe_packed_size size{sizeof size, 0, 0};
      BOOST_TEST(scheme.check(&shape, text) == TROUPE_UNSUPPORTED);
      BOOST_TEST(std::string_view(why.data()).find("multiple of 32") != std::string_view::npos);
      BOOST_TEST(scheme.packed_size(&shape, &size) == TROUPE_UNSUPPORTED);
    }
    matrix w(scheme, 64, 32);
    const auto pack = [&](std::uint32_t begin, std::uint32_t end) {
      return scheme.pack(&w.shape, w.source.data(), begin, end, w.packed.data(), text);
    };
    BOOST_TEST(pack(1, 64) == TROUPE_BAD_ARG);
    BOOST_TEST(pack(0, 33) == TROUPE_BAD_ARG);
    BOOST_TEST(pack(0, 96) == TROUPE_BAD_ARG);
    BOOST_TEST(pack(64, 32) == TROUPE_BAD_ARG);
    BOOST_TEST(scheme.dequantise(&w.shape, w.packed.data(), 60, 65, w.weights.data(), 32) == TROUPE_BAD_ARG);
    const troupe_weight_shape huge{sizeof huge, 0xffffffffu, 0xffffffe0u};
    troupe_packed_size size{sizeof size, 0, 0};
    const auto status = scheme.packed_size(&huge, &size);
    BOOST_TEST((status == TROUPE_UNSUPPORTED || size.bytes > std::uint64_t{1} << 60));
  });
}

BOOST_AUTO_TEST_SUITE_END()
