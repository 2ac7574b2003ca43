// SPDX-License-Identifier: Apache-2.0
// The formats whose blocks stay as they are in the file: what they read back is what the gguf package reads,
// and every kernel multiplies by exactly that.
#include "models/ggml_type.hpp"
#include "plugins/host/scheme_registry.hpp"
#include "tests/plugins/packed_matrix.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <boost/test/unit_test.hpp>

#include <xmmintrin.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>

namespace {

using namespace troupe::test;

template<class Check>
void for_each_tiled_format(Check check) {
  std::uint32_t count = 0;
  const troupe_quant_scheme* const* schemes = troupe_gguf_blocks_schemes(&count);
  for (std::uint32_t i = 5; i < count; ++i) BOOST_TEST_CONTEXT(schemes[i]->id) {
      check(*schemes[i]);
    }
}

/// At least `inputs`, as a whole number of blocks.
std::uint32_t whole_blocks(const troupe_quant_scheme& scheme, std::uint32_t inputs) {
  const std::uint32_t block = scheme.source_block_elements;
  return (inputs + block - 1) / block * block;
}

std::vector<std::uint8_t> file_bytes(const std::string& name) {
  std::ifstream file(TROUPE_TEST_DATA "/ggml_blocks/" + name, std::ios::binary);
  BOOST_REQUIRE_MESSAGE(file, name);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Blocks of one type and the numbers that the gguf package reads from them.
struct fixture {
  std::string type;
  const troupe_quant_scheme* scheme;
  std::uint32_t blocks;
  std::vector<std::uint8_t> packed;
  std::vector<float> values;
};

std::vector<fixture> fixtures() {
  static const troupe::plugins::scheme_registry registry = [] {
    troupe::plugins::scheme_registry all;
    BOOST_REQUIRE(troupe::plugins::add_built_in_schemes(all));
    return all;
  }();
  const auto text = file_bytes("index.json");
  const auto index = boost::json::parse({reinterpret_cast<const char*>(text.data()), text.size()});
  std::vector<fixture> all;
  for (const auto& entry : index.at("types").as_array()) {
    fixture f;
    f.type = entry.at("type").as_string().c_str();
    const auto* info = troupe::models::find_ggml_type(entry.at("ggml_type").to_number<std::uint32_t>());
    BOOST_REQUIRE_MESSAGE(info != nullptr && info->name == f.type, f.type);
    f.scheme = registry.find(info->scheme);
    BOOST_REQUIRE_MESSAGE(f.scheme != nullptr, f.type);
    BOOST_TEST(f.scheme->source_block_elements == entry.at("block_elements").to_number<std::uint32_t>());
    BOOST_TEST(f.scheme->source_block_bytes == entry.at("block_bytes").to_number<std::uint32_t>());
    f.blocks = entry.at("blocks").to_number<std::uint32_t>();
    f.packed = file_bytes(entry.at("packed").as_string().c_str());
    const auto values = file_bytes(entry.at("values").as_string().c_str());
    f.values.resize(values.size() / sizeof(float));
    std::memcpy(f.values.data(), values.data(), values.size());
    BOOST_REQUIRE_EQUAL(f.values.size(), std::size_t{f.blocks} * f.scheme->source_block_elements);
    BOOST_REQUIRE_EQUAL(f.packed.size(), std::size_t{f.blocks} * f.scheme->source_block_bytes);
    all.push_back(std::move(f));
  }
  return all;
}

/// Packs the whole fixture as n rows, from an odd address.
void pack(const fixture& f, const troupe_weight_shape& shape, guarded_array<std::uint8_t>& packed) {
  std::vector<std::uint8_t> odd(f.packed.size() + 1);
  std::copy(f.packed.begin(), f.packed.end(), odd.begin() + 1);
  BOOST_REQUIRE_EQUAL(
      f.scheme->pack(&shape, odd.data() + 1, 0, shape.n, packed.data(), {nullptr, 0}), TROUPE_OK);
}

/// Activations that are 1 at one input and 0 elsewhere, `at_once` rows a call: C is exactly the weights.
void multiply_by_units(
    const fixture& f, std::uint8_t* packed, const troupe_mm_kernel& kernel, std::uint32_t at_once) {
  const std::uint32_t k = f.scheme->source_block_elements, n = f.blocks;
  const troupe_weight_shape shape{sizeof shape, n, k};
  guarded_array<std::uint8_t> scratch(kernel.scratch_bytes == nullptr ? 0 : kernel.scratch_bytes(&shape));
  std::vector<float> a(std::size_t{k} * k), c(std::size_t{k} * n);
  for (std::uint32_t i = 0; i < k; ++i) a[std::size_t{i} * k + i] = 1;
  for (std::uint32_t i = 0; i < k; i += at_once) {
    const troupe_mm_call call{
        sizeof call, at_once,       0, n, packed, &a[std::size_t{i} * k], k, &c[std::size_t{i} * n],
        n,           scratch.data()};
    BOOST_REQUIRE_EQUAL(kernel.run(&shape, &call), TROUPE_OK);
  }
  for (std::uint32_t i = 0; i < k; ++i)
    for (std::uint32_t j = 0; j < n; ++j)
      BOOST_REQUIRE_EQUAL(c[std::size_t{i} * n + j], f.values[std::size_t{j} * k + i]);
}

} // namespace

BOOST_AUTO_TEST_SUITE(tiled_blocks)

BOOST_AUTO_TEST_CASE(every_type_reads_back_bit_for_bit_what_the_gguf_package_reads) {
  for (const fixture& f : fixtures()) BOOST_TEST_CONTEXT(f.type) {
      const std::uint32_t elements = f.scheme->source_block_elements;
      for (const auto& [n, k] : {std::pair{f.blocks, elements}, std::pair{1u, f.blocks * elements}}) {
        const troupe_weight_shape shape{sizeof shape, n, k};
        guarded_array<std::uint8_t> packed(matrix::bytes(*f.scheme, shape));
        pack(f, shape, packed);
        std::vector<float> weights(f.values.size());
        BOOST_TEST(f.scheme->dequantise(&shape, packed.data(), 0, n, weights.data(), k) == TROUPE_OK);
        BOOST_TEST(same_bits(weights, f.values));
      }
    }
}

BOOST_AUTO_TEST_CASE(every_kernel_multiplies_by_every_number_that_the_gguf_package_reads) {
  for (const fixture& f : fixtures()) BOOST_TEST_CONTEXT(f.type) {
      if (f.scheme->source_block_elements == 1) continue;
      const troupe_weight_shape shape{sizeof shape, f.blocks, f.scheme->source_block_elements};
      guarded_array<std::uint8_t> packed(matrix::bytes(*f.scheme, shape));
      pack(f, shape, packed);
      for (const troupe_mm_kernel* kernel : kernels(*f.scheme))
        for (const std::uint32_t at_once : {1u, 2u, 4u, 16u})
          BOOST_TEST_CONTEXT("isa " << kernel->isa << ", rows " << at_once)
      multiply_by_units(f, packed.data(), *kernel, at_once);
    }
}

BOOST_AUTO_TEST_CASE(packing_in_slices_gives_the_same_bytes_and_any_run_is_read_back) {
  for_each_tiled_format([](const troupe_quant_scheme& scheme) {
    const std::uint32_t k = whole_blocks(scheme, 320);
    matrix whole(scheme, 113, k);
    guarded_array<std::uint8_t> packed(whole.packed.size());
    std::fill(packed.begin(), packed.end(), std::uint8_t{0x11});
    for (const auto& [begin, end] : {std::pair{96u, 113u}, std::pair{0u, 32u}, std::pair{32u, 96u}})
      BOOST_TEST(
          scheme.pack(&whole.shape, whole.source.data(), begin, end, packed.data(), {nullptr, 0}) ==
          TROUPE_OK);
    BOOST_TEST(std::memcmp(packed.data(), whole.packed.data(), packed.size()) == 0);
    std::vector<float> some(3 * (k + 6), untouched);
    BOOST_TEST(scheme.dequantise(&whole.shape, packed.data(), 30, 33, some.data(), k + 6) == TROUPE_OK);
    for (std::size_t j = 0; j < 3; ++j) {
      BOOST_TEST(std::memcmp(&some[j * (k + 6)], &whole.weights[(30 + j) * k], k * sizeof(float)) == 0);
      BOOST_TEST(some[j * (k + 6) + k] == untouched);
    }
  });
}

BOOST_AUTO_TEST_CASE(every_kernel_agrees_with_the_exact_products) {
  for_each_tiled_format([](const troupe_quant_scheme& scheme) {
    for (const auto& [n, inputs] : {std::pair{1u, 32u}, std::pair{33u, 64u}, std::pair{49u, 1568u}}) {
      const std::uint32_t k = whole_blocks(scheme, inputs);
      matrix w(scheme, n, k);
      for (const std::uint32_t m : {1u, 3u, 13u}) {
        guarded_array<float> a(std::size_t{m} * k);
        fill_random(a, 5);
        for (const troupe_mm_kernel* kernel : kernels(scheme)) {
          const auto c = multiply(w, *kernel, a.data(), m, 0, n);
          for (std::uint32_t i = 0; i < m; ++i)
            for (std::uint32_t j = 0; j < n; ++j) {
              double exact = 0, magnitude = 0;
              for (std::uint32_t x = 0; x < k; ++x) {
                const double product = double{a[std::size_t{i} * k + x]} * w.weights[std::size_t{j} * k + x];
                exact += product;
                magnitude += std::abs(product);
              }
              // As in test_gguf_blocks.cpp: k products and k sums.
              BOOST_REQUIRE_SMALL(c[std::size_t{i} * n + j] - exact, (k + 2) * 0x1p-24 * magnitude);
            }
        }
      }
    }
  });
}

BOOST_AUTO_TEST_CASE(a_row_gives_the_same_bits_whatever_the_row_count_and_the_slice) {
  for_each_tiled_format([](const troupe_quant_scheme& scheme) {
    const std::uint32_t n = 81, k = whole_blocks(scheme, 1000);
    matrix w(scheme, n, k);
    constexpr std::uint32_t most = 25;
    guarded_array<float> a(std::size_t{most} * k);
    fill_random(a, 9);
    for (const troupe_mm_kernel* kernel : kernels(scheme)) {
      std::vector<float> alone;
      for (std::uint32_t i = 0; i < most; ++i) {
        const auto row = multiply(w, *kernel, a.data() + std::size_t{i} * k, 1, 0, n);
        alone.insert(alone.end(), row.begin(), row.end());
      }
      for (const std::uint32_t m : {2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 13u, 25u}) {
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
  });
}

BOOST_AUTO_TEST_CASE(avx2_and_avx512_give_the_same_bits_for_tiles) {
  if (!cpu_runs(TROUPE_ISA_AVX512)) {
    std::puts("skipped: this machine has no AVX-512");
    return;
  }
  for_each_tiled_format([](const troupe_quant_scheme& scheme) {
    matrix w(scheme, 161, whole_blocks(scheme, 832));
    for (const std::uint32_t m : {1u, 2u, 5u, 7u, 24u}) {
      guarded_array<float> a(std::size_t{m} * w.shape.k);
      fill_random(a, m);
      std::array<std::vector<float>, TROUPE_ISA_AMX + 1> by_isa;
      for (const troupe_mm_kernel* kernel : kernels(scheme))
        by_isa[kernel->isa] = multiply(w, *kernel, a.data(), m, 0, w.shape.n);
      BOOST_TEST(same_bits(by_isa[TROUPE_ISA_AVX2], by_isa[TROUPE_ISA_AVX512]), "m " << m);
    }
  });
}

BOOST_AUTO_TEST_CASE(a_row_with_nan_or_infinity_spoils_only_itself_and_the_cpu_keeps_its_modes) {
  for_each_tiled_format([](const troupe_quant_scheme& scheme) {
    constexpr unsigned sticky_flags = 0x3f;
    const std::uint32_t k = whole_blocks(scheme, 64);
    matrix w(scheme, 65, k);
    for (const troupe_mm_kernel* kernel : kernels(scheme))
      for (const std::uint32_t m : {2u, 4u, 14u}) {
        guarded_array<float> a(std::size_t{m} * k);
        fill_random(a, 2);
        const unsigned before = _mm_getcsr();
        const auto clean = multiply(w, *kernel, a.data(), m, 0, 65);
        BOOST_TEST((_mm_getcsr() & ~sticky_flags) == (before & ~sticky_flags));
        a[7] = std::numeric_limits<float>::quiet_NaN();
        a[k + 31] = std::numeric_limits<float>::infinity();
        const auto spoilt = multiply(w, *kernel, a.data(), m, 0, 65);
        for (std::uint32_t i = 0; i < m; ++i) {
          const bool same =
              std::memcmp(&clean[std::size_t{i} * 65], &spoilt[std::size_t{i} * 65], 65 * sizeof(float)) == 0;
          BOOST_TEST(same == (i > 1), "isa " << kernel->isa << ", row " << i << " of " << m);
        }
      }
  });
}

BOOST_AUTO_TEST_CASE(scales_of_tiles_that_are_not_finite_are_refused_with_their_place) {
  const auto check = [](const troupe_quant_scheme& scheme, auto spoil) {
    const std::uint32_t elements = scheme.source_block_elements;
    const troupe_weight_shape shape{sizeof shape, 40, 3 * elements};
    auto blocks = matrix::random_blocks(scheme, shape.n, shape.k, 4);
    guarded_array<std::uint8_t> packed(matrix::bytes(scheme, shape));
    spoil(&blocks[(37 * 3 + 1) * scheme.source_block_bytes]);
    std::array<char, 200> why{};
    const troupe_text text{why.data(), why.size()}, tiny{why.data(), 1};
    BOOST_TEST(scheme.pack(&shape, blocks.data(), 0, 40, packed.data(), text) == TROUPE_BAD_DATA);
    const std::string place =
        "channel 37, inputs " + std::to_string(elements) + ".." + std::to_string(2 * elements - 1) + ": ";
    BOOST_TEST(std::string_view(why.data()).starts_with(place), why.data());
    BOOST_TEST(scheme.pack(&shape, blocks.data(), 0, 40, packed.data(), tiny) == TROUPE_BAD_DATA);
    BOOST_TEST(why[0] == '\0');
    BOOST_TEST(scheme.pack(&shape, blocks.data(), 0, 32, packed.data(), {nullptr, 0}) == TROUPE_OK);
  };
  for_each_tiled_format([&](const troupe_quant_scheme& scheme) {
    for (const std::size_t field : half_fields(scheme))
      for (const std::uint16_t bad : {std::uint16_t{0x7c00}, std::uint16_t{0xfc00}, std::uint16_t{0x7e01}})
        check(scheme, [&](std::uint8_t* block) { std::memcpy(block + field, &bad, 2); });
  });
  check(scheme_named("gguf.iq1_m"), [](std::uint8_t* block) {
    block[55] |= 0x70u;
    block[53] |= 0xc0u;
  });
  for (const unsigned exponent : {253u, 254u, 255u})
    check(scheme_named("gguf.mxfp4"), [&](std::uint8_t* block) {
      block[0] = static_cast<std::uint8_t>(exponent);
    });
}

BOOST_AUTO_TEST_CASE(any_bytes_whose_scales_are_taken_give_finite_numbers) {
  for_each_tiled_format([](const troupe_quant_scheme& scheme) {
    const troupe_weight_shape shape{sizeof shape, 1, scheme.source_block_elements};
    std::vector<std::uint8_t> block(scheme.source_block_bytes);
    guarded_array<std::uint8_t> packed(matrix::bytes(scheme, shape));
    std::vector<float> numbers(shape.k);
    std::mt19937 random(11);
    int taken = 0;
    for (int round = 0; round < 500; ++round) {
      for (auto& byte : block) byte = static_cast<std::uint8_t>(random());
      if (round % 50 == 0)
        std::fill(block.begin(), block.end(), static_cast<std::uint8_t>(round == 0 ? 0 : 0xff));
      if (scheme.pack(&shape, block.data(), 0, 1, packed.data(), {nullptr, 0}) != TROUPE_OK) continue;
      ++taken;
      BOOST_TEST(scheme.dequantise(&shape, packed.data(), 0, 1, numbers.data(), shape.k) == TROUPE_OK);
      for (const float x : numbers) BOOST_REQUIRE(std::isfinite(x));
    }
    BOOST_TEST(taken > 300);
  });
}

BOOST_AUTO_TEST_CASE(shapes_and_arguments_out_of_contract_are_refused_for_tiles) {
  for_each_tiled_format([](const troupe_quant_scheme& scheme) {
    const std::uint32_t elements = scheme.source_block_elements;
    std::array<char, 200> why{};
    const troupe_text text{why.data(), why.size()};
    for (const auto& [n, k] :
         {std::pair{0u, elements}, std::pair{4u, 0u}, std::pair{4u, elements + 32},
          std::pair{4u, elements - 1}}) {
      if (k % elements == 0 && n != 0 && k != 0) continue;
      const troupe_weight_shape shape{sizeof shape, n, k};
      troupe_packed_size size{sizeof size, 0, 0};
      BOOST_TEST(scheme.check(&shape, text) == TROUPE_UNSUPPORTED);
      BOOST_TEST(
          std::string_view(why.data()).ends_with("multiple of " + std::to_string(elements)), why.data());
      BOOST_TEST(scheme.packed_size(&shape, &size) == TROUPE_UNSUPPORTED);
    }
    matrix w(scheme, 64, elements);
    const auto pack = [&](std::uint32_t begin, std::uint32_t end) {
      return scheme.pack(&w.shape, w.source.data(), begin, end, w.packed.data(), text);
    };
    BOOST_TEST(pack(1, 64) == TROUPE_BAD_ARG);
    BOOST_TEST(pack(0, 33) == TROUPE_BAD_ARG);
    BOOST_TEST(pack(0, 96) == TROUPE_BAD_ARG);
    BOOST_TEST(pack(64, 32) == TROUPE_BAD_ARG);
    BOOST_TEST(
        scheme.dequantise(&w.shape, w.packed.data(), 60, 65, w.weights.data(), elements) == TROUPE_BAD_ARG);
    const troupe_weight_shape huge{sizeof huge, 0xffffffffu, 0xffffff00u};
    troupe_packed_size size{sizeof size, 0, 0};
    const auto status = scheme.packed_size(&huge, &size);
    BOOST_TEST((status == TROUPE_UNSUPPORTED || size.bytes > std::uint64_t{1} << 59));
    troupe_packed_size short_struct{4, 0, 0};
    BOOST_TEST(scheme.packed_size(&w.shape, &short_struct) == TROUPE_BAD_ARG);
    BOOST_TEST(scheme.check(nullptr, text) == TROUPE_BAD_ARG);
  });
}

BOOST_AUTO_TEST_SUITE_END()
