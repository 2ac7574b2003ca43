// SPDX-License-Identifier: Apache-2.0
#include "tests/quant/loaded_model.hpp"

#include "models/tokenizer.hpp"
#include "plugins/host/scheme_registry.hpp"
#include "quant/evaluation.hpp"

#include <boost/test/unit_test.hpp>

#include <fstream>
#include <iterator>

namespace troupe::quant::test {

loaded_model load(
    const std::string& path, bool reference, kernels::isa level, std::uint32_t tokens, kernels::kv_type kv,
    const std::string& layer_scheme) {
  plugins::scheme_registry registry;
  BOOST_REQUIRE(plugins::add_built_in_schemes(registry));
  models::model_options options;
  options.find_scheme = [&](std::string_view id) { return registry.find(id); };
  options.reference = reference;
  options.kv = kv;
  options.layer_scheme = layer_scheme;
  auto model = models::load_model(path, options);
  BOOST_REQUIRE_MESSAGE(model, model.error().message);
  auto backend = kernels::make_cpu_backend({level, 0});
  BOOST_REQUIRE_MESSAGE(backend, backend.error().message);
  BOOST_REQUIRE((*backend)->create_pool((*model)->program->kv, blocks_for((*model)->program->kv, tokens)));
  BOOST_TEST_MESSAGE(
      kernels::describe_kernels(*(*model)->program, (*backend)->level()) << "; " << (*backend)->describe());
  return {*model, std::move(*backend)};
}

void check_golden(const loaded_model& loaded, const golden_file& golden, double margin, double logit_bound) {
  const auto compared =
      compare_golden(*loaded.backend, loaded.model->program, golden, {margin, 128, nullptr});
  BOOST_REQUIRE_MESSAGE(compared, compared.error().message);
  BOOST_TEST_MESSAGE(
      compared->cases << " cases, " << compared->steps << " steps, " << compared->steps_compared
                      << " compared, " << compared->mismatches.size()
                      << " differ; largest margin of a differing step " << compared->largest_mismatch_margin
                      << "; first-step logits within " << compared->first_logit_difference);
  for (const golden_mismatch& m : compared->mismatches)
    BOOST_TEST_MESSAGE(
        "  '" << m.name << "' step " << m.step << ": " << m.expected << " expected, " << m.got
              << " got, margin " << m.margin);
  BOOST_TEST(compared->cases == golden.cases.size());
  BOOST_TEST(compared->mismatches.empty());
  BOOST_TEST(compared->steps_compared * 4 > compared->steps * 3);
  std::size_t listed = 0;
  for (const golden_case& one : golden.cases) listed += one.first_logits.size();
  BOOST_TEST(listed > 0U);
  BOOST_TEST(compared->first_logits == listed);
  BOOST_TEST(compared->first_logit_difference < logit_bound);
}

std::vector<std::int32_t> ids_of_file(const models::model& model, const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  BOOST_REQUIRE_MESSAGE(in, "cannot read " << path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto tokenizer = models::make_tokenizer(model.vocabulary);
  BOOST_REQUIRE_MESSAGE(tokenizer, tokenizer.error().message);
  const auto ids = (*tokenizer)->encode(text, {});
  BOOST_REQUIRE_MESSAGE(ids, ids.error().message);
  return *ids;
}

void check_perplexity(
    const loaded_model& loaded, const golden_file& golden, std::span<const std::int32_t> ids, double share) {
  BOOST_REQUIRE(golden.perplexity);
  perplexity_options options;
  options.context = golden.perplexity_context;
  options.chunks = golden.perplexity_chunks;
  if (loaded.model->vocabulary.add_bos) options.bos = loaded.model->vocabulary.bos;
  const auto measured = measure_perplexity(*loaded.backend, loaded.model->program, ids, options);
  BOOST_REQUIRE_MESSAGE(measured, measured.error().message);
  BOOST_TEST_MESSAGE(
      "perplexity " << measured->perplexity << " +/- " << measured->standard_error << " over "
                    << measured->tokens << " tokens; golden " << *golden.perplexity);
  BOOST_REQUIRE_EQUAL(measured->chunk_nll.size(), golden.chunk_nll.size());
  BOOST_TEST(measured->perplexity == *golden.perplexity, boost::test_tools::tolerance(share));
  for (std::size_t i = 0; i < golden.chunk_nll.size(); ++i) // one chunk deviates more than their mean
    BOOST_TEST(measured->chunk_nll[i] == golden.chunk_nll[i], boost::test_tools::tolerance(share * 4));
}

} // namespace troupe::quant::test
