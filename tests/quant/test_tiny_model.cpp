// SPDX-License-Identifier: Apache-2.0
// The tiny models of the repository against answers that an independent program gave in FP64.
#include "kernels/cpu_features.hpp"
#include "tests/quant/loaded_model.hpp"

#include "quant/evaluation.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstring>
#include <limits>

using namespace troupe;
using namespace troupe::quant;
using namespace troupe::quant::test;

namespace {

const std::string folder = TROUPE_TEST_DATA "/tiny/";

golden_file golden_of(const std::string& name) {
  auto golden = read_golden(folder + name + ".json");
  BOOST_REQUIRE_MESSAGE(golden, golden.error().message);
  return std::move(*golden);
}

std::vector<kernels::isa> vector_levels() {
  std::vector<kernels::isa> levels;
  for (const auto level : {kernels::isa::avx2, kernels::isa::avx512})
    if (level <= kernels::best_isa()) levels.push_back(level);
  return levels;
}

const char* const names[] = {"tiny_f16", "tiny_q4_1", "tiny_mixed"};

} // namespace

BOOST_AUTO_TEST_SUITE(tiny_model)

BOOST_AUTO_TEST_CASE(the_reference_path_gives_the_expected_tokens_logits_and_perplexity) {
  for (const std::string name : names) {
    BOOST_TEST_CONTEXT(name) {
      const auto golden = golden_of(name);
      const auto loaded = load(folder + name + ".gguf", true, kernels::isa::ref, 512);
      check_golden(loaded, golden, 0.002, 0.001);
      check_perplexity(loaded, golden, ids_of_file(*loaded.model, folder + "held_out.txt"), 1e-4);
    }
  }
}

BOOST_AUTO_TEST_CASE(every_kernel_gives_the_expected_tokens_logits_and_perplexity) {
  for (const std::string name : names) {
    for (const kernels::isa level : vector_levels()) {
      for (const auto kv : {kernels::kv_type::f16, kernels::kv_type::bf16}) {
        BOOST_TEST_CONTEXT(name << ' ' << kernels::isa_name(level)) {
          const auto golden = golden_of(name);
          const auto loaded = load(folder + name + ".gguf", false, level, 512, kv);
          const bool half = kv == kernels::kv_type::f16;
          check_golden(loaded, golden, half ? 0.05 : 0.3, half ? 0.02 : 0.15);
          check_perplexity(
              loaded, golden, ids_of_file(*loaded.model, folder + "held_out.txt"), half ? 0.002 : 0.01);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(layers_converted_to_floats_give_the_same_bits_as_their_codes) {
  // dense.f32 holds the numbers that the codes stand for, and both multiply in the same order.
  const auto golden = golden_of("tiny_q4_1");
  for (const kernels::isa level : vector_levels()) {
    const auto codes = load(folder + "tiny_q4_1.gguf", false, level, 512);
    const auto floats =
        load(folder + "tiny_q4_1.gguf", false, level, 512, kernels::kv_type::f16, "dense.f32");
    BOOST_TEST(floats.model->plan.layer_schemes.size() == 4U);
    BOOST_TEST(floats.model->weight_bytes > codes.model->weight_bytes);
    std::vector<std::vector<float>> expected;
    evaluated_sequence a(*codes.backend, codes.model->program), b(*floats.backend, floats.model->program);
    const auto& ids = golden.cases.back().ids;
    BOOST_REQUIRE(a.run(ids, 0, [&](std::uint32_t, std::span<const float> logits) {
      expected.emplace_back(logits.begin(), logits.end());
    }));
    BOOST_REQUIRE(b.run(ids, 0, [&](std::uint32_t position, std::span<const float> logits) {
      BOOST_REQUIRE(std::memcmp(logits.data(), expected[position].data(), logits.size_bytes()) == 0);
    }));
  }
}

BOOST_AUTO_TEST_CASE(layers_in_16_bits_give_the_expected_tokens) {
  const auto golden = golden_of("tiny_q4_1");
  for (const std::string scheme : {"dense.f16", "dense.bf16"}) {
    const auto loaded =
        load(folder + "tiny_q4_1.gguf", false, kernels::best_isa(), 512, kernels::kv_type::f16, scheme);
    const bool half = scheme == "dense.f16";
    check_golden(loaded, golden, half ? 0.05 : 0.5, half ? 0.02 : 0.25);
  }
}

BOOST_AUTO_TEST_CASE(a_golden_file_for_another_model_is_refused) {
  const auto loaded = load(folder + "tiny_q4_1.gguf", false, kernels::best_isa(), 512);
  auto golden = golden_of("tiny_q4_1");
  golden.cases[0].ids[0] = 512;
  const auto compared = compare_golden(*loaded.backend, loaded.model->program, golden, {});
  BOOST_REQUIRE(!compared);
  BOOST_TEST((compared.error().code == errc::bad_file));
}

BOOST_AUTO_TEST_CASE(a_case_without_greedy_tokens_compares_its_first_logits_only) {
  const auto loaded = load(folder + "tiny_q4_1.gguf", false, kernels::best_isa(), 512);
  auto golden = golden_of("tiny_q4_1");
  golden.cases.resize(1);
  golden.cases[0].greedy.clear();
  golden.cases[0].margins.clear();
  golden.cases[0].first_logits[0].second += 7;
  const auto compared = compare_golden(*loaded.backend, loaded.model->program, golden, {1.0, 128, nullptr});
  BOOST_REQUIRE(compared);
  BOOST_TEST(compared->steps == 0U);
  BOOST_TEST(compared->first_logit_difference > 6.9);
}

BOOST_AUTO_TEST_CASE(a_logit_that_is_no_number_differs_beyond_every_bound) {
  const auto loaded = load(folder + "tiny_q4_1.gguf", false, kernels::best_isa(), 512);
  for (const std::size_t at : {std::size_t{0}, std::size_t{1}}) {
    auto golden = golden_of("tiny_q4_1");
    golden.cases.resize(1);
    golden.cases[0].first_logits.at(at).second = std::numeric_limits<double>::quiet_NaN();
    const auto compared = compare_golden(*loaded.backend, loaded.model->program, golden, {1.0, 128, nullptr});
    BOOST_REQUIRE(compared);
    BOOST_TEST(std::isinf(compared->first_logit_difference));
  }
}

BOOST_AUTO_TEST_CASE(a_wrong_answer_is_reported) {
  const auto loaded = load(folder + "tiny_q4_1.gguf", false, kernels::best_isa(), 512);
  auto golden = golden_of("tiny_q4_1");
  golden.cases.resize(1);
  BOOST_REQUIRE(golden.cases[0].margins[3] > 1);
  golden.cases[0].greedy[3] += 1;
  golden.cases[0].first_logits[0].second += 7;
  const auto compared = compare_golden(*loaded.backend, loaded.model->program, golden, {1.0, 128, nullptr});
  BOOST_REQUIRE(compared);
  BOOST_TEST(!compared->mismatches.empty());
  BOOST_TEST(compared->mismatches[0].step == 3U);
  BOOST_TEST(compared->first_logit_difference > 6.9);
}

BOOST_AUTO_TEST_CASE(a_text_shorter_than_a_chunk_has_no_perplexity) {
  const auto loaded = load(folder + "tiny_q4_1.gguf", false, kernels::best_isa(), 512);
  const std::vector<std::int32_t> ids(511, 1);
  const auto measured = measure_perplexity(*loaded.backend, loaded.model->program, ids, {});
  BOOST_REQUIRE(!measured);
  BOOST_TEST((measured.error().code == errc::bad_request));
}

BOOST_AUTO_TEST_SUITE_END()
