// SPDX-License-Identifier: Apache-2.0
// The default model against answers that PyTorch gave in FP32 for the same numbers.
#include "tests/quant/loaded_model.hpp"
#include "tests/shared_files.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::quant;
using namespace troupe::quant::test;
using troupe::test::default_model;
using troupe::test::shared_file;

namespace {

struct inputs {
  std::string model, text;
  golden_file golden;
};

/// Nothing when one of the files is absent.
std::optional<inputs> present_inputs() {
  const auto model = default_model(), golden_path = shared_file("golden/model_smol.json");
  const auto text = shared_file("data/wikitext2/wiki.test.raw");
  if (!model || !golden_path || !text) return std::nullopt;
  auto golden = read_golden(golden_path->string());
  BOOST_REQUIRE_MESSAGE(golden, golden.error().message);
  return inputs{model->string(), text->string(), std::move(*golden)};
}

} // namespace

BOOST_AUTO_TEST_SUITE(default_model_on_the_default_path)

BOOST_AUTO_TEST_CASE(golden_tokens_and_logits_agree) {
  const auto in = present_inputs();
  if (!in) return;
  check_golden(load(in->model, false, kernels::best_isa(), longest_case(in->golden)), in->golden, 0.15, 0.1);
}

BOOST_AUTO_TEST_CASE(golden_tokens_and_logits_agree_with_a_bfloat_cache) {
  const auto in = present_inputs();
  if (!in) return;
  const auto loaded =
      load(in->model, false, kernels::best_isa(), longest_case(in->golden), kernels::kv_type::bf16);
  check_golden(loaded, in->golden, 0.4, 0.2);
}

BOOST_AUTO_TEST_CASE(perplexity_agrees) {
  const auto in = present_inputs();
  if (!in) return;
  const auto loaded = load(in->model, false, kernels::best_isa(), in->golden.perplexity_context);
  check_perplexity(loaded, in->golden, ids_of_file(*loaded.model, in->text), 0.005);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(default_model_on_the_reference_path)

BOOST_AUTO_TEST_CASE(golden_tokens_and_logits_agree) {
  const auto in = present_inputs();
  if (!in) return;
  check_golden(load(in->model, true, kernels::isa::ref, longest_case(in->golden)), in->golden, 0.002, 0.005);
}

BOOST_AUTO_TEST_CASE(perplexity_agrees) {
  const auto in = present_inputs();
  if (!in) return;
  const auto loaded = load(in->model, true, kernels::isa::ref, in->golden.perplexity_context);
  check_perplexity(loaded, in->golden, ids_of_file(*loaded.model, in->text), 0.001);
}

BOOST_AUTO_TEST_SUITE_END()
