// SPDX-License-Identifier: Apache-2.0
// The default model against answers that PyTorch gave in FP32 for the same numbers.
#include "kernels/cpu_backend.hpp"
#include "models/model.hpp"
#include "plugins/host/scheme_registry.hpp"
#include "quant/evaluation.hpp"
#include "quant/golden.hpp"
#include "tests/quant/shared_files.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::quant;

namespace {

struct loaded_model {
  std::shared_ptr<const models::model> model;
  std::unique_ptr<kernels::cpu_backend> backend;
};

/// The model on the reference path, or on the best kernels, with a pool of `tokens` positions.
loaded_model load(const std::string& path, bool reference, std::uint32_t tokens) {
  plugins::scheme_registry registry;
  BOOST_REQUIRE(plugins::add_built_in_schemes(registry));
  models::model_options options;
  options.find_scheme = [&](std::string_view id) { return registry.find(id); };
  options.reference = reference;
  auto model = models::load_model(path, options);
  BOOST_REQUIRE_MESSAGE(model, model.error().message);
  kernels::cpu_backend_options backend_options;
  if (reference) backend_options.level = kernels::isa::ref;
  auto backend = kernels::make_cpu_backend(backend_options);
  BOOST_REQUIRE_MESSAGE(backend, backend.error().message);
  BOOST_REQUIRE((*backend)->create_pool((*model)->program->kv, blocks_for(tokens)));
  BOOST_TEST_MESSAGE(
      kernels::describe_kernels(*(*model)->program, (*backend)->level()) << "; " << (*backend)->describe());
  return {*model, std::move(*backend)};
}

void report(const golden_report& r) {
  BOOST_TEST_MESSAGE(
      r.cases << " cases, " << r.steps << " steps, " << r.steps_compared << " compared, "
              << r.mismatches.size() << " differ; largest margin of a differing step "
              << r.largest_mismatch_margin << "; first-step logits within " << r.first_logit_difference);
  for (const auto& m : r.mismatches)
    BOOST_TEST_MESSAGE(
        "  '" << m.name << "' step " << m.step << ": " << m.expected << " expected, " << m.got
              << " got, margin " << m.margin);
}

} // namespace

BOOST_AUTO_TEST_SUITE(default_model)

BOOST_AUTO_TEST_CASE(the_default_path_agrees_with_the_golden_tokens_and_logits) {
  const auto path = test::default_model();
  const auto golden_path = test::shared_file("golden/model_smol.json");
  if (!path || !golden_path) return;
  const auto golden = read_golden(golden_path->string());
  BOOST_REQUIRE_MESSAGE(golden, golden.error().message);
  const auto loaded = load(path->string(), false, longest_case(*golden));
  const auto compared = compare_golden(*loaded.backend, loaded.model->program, *golden, {0.15, 128, nullptr});
  BOOST_REQUIRE_MESSAGE(compared, compared.error().message);
  report(*compared);
  BOOST_TEST(compared->mismatches.empty());
  BOOST_TEST(compared->steps_compared > 500U);
  BOOST_TEST(compared->first_logit_difference < 0.1);
}

BOOST_AUTO_TEST_SUITE_END()
