// SPDX-License-Identifier: Apache-2.0
// Gemma 3 270M over more text than its prompts: perplexity, and the folder of its numbers beside the file
// itself.
#include "quant/evaluation.hpp"
#include "tests/quant/loaded_model.hpp"
#include "tests/shared_files.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>

using namespace troupe;
using namespace troupe::quant;
using namespace troupe::quant::test;
using troupe::test::gemma_model;
using troupe::test::present;
using troupe::test::shared_file;

namespace {

/// The most likely token after each position, and by how much.
struct choice {
  std::int32_t id = 0;
  float lead = 0;
};

std::vector<choice> choices_of(const std::string& path, const golden_file& golden) {
  const auto loaded = load(path, false, kernels::best_isa(), longest_case(golden));
  evaluated_sequence sequence(*loaded.backend, loaded.model->program);
  std::vector<choice> all;
  for (const golden_case& one : golden.cases) {
    std::vector<std::int32_t> ids = one.ids;
    ids.insert(ids.end(), one.greedy.begin(), one.greedy.end());
    const auto run = sequence.run(ids, 0, [&](std::uint32_t, std::span<const float> logits) {
      const auto best = std::max_element(logits.begin(), logits.end());
      float second = -INFINITY;
      for (auto at = logits.begin(); at != logits.end(); ++at)
        if (at != best) second = std::max(second, *at);
      all.push_back({static_cast<std::int32_t>(best - logits.begin()), *best - second});
    });
    BOOST_REQUIRE_MESSAGE(run, run.error().message);
  }
  return all;
}

} // namespace

BOOST_AUTO_TEST_SUITE(gemma_whole)

BOOST_AUTO_TEST_CASE(perplexity_agrees) {
  const auto model = gemma_model(), path = shared_file("golden/model_gemma.json");
  const auto text = shared_file("data/wikitext2/wiki.test.raw");
  if (!model || !path || !text) return;
  const auto golden = read_golden(path->string());
  BOOST_REQUIRE_MESSAGE(golden, golden.error().message);
  BOOST_TEST(*golden->perplexity == 20.414, boost::test_tools::tolerance(1e-4));
  BOOST_TEST(golden->perplexity_chunks == 16U);
  const auto loaded = load(model->string(), false, kernels::best_isa(), golden->perplexity_context);
  check_perplexity(loaded, *golden, ids_of_file(*loaded.model, text->string()), 0.005);
}

BOOST_AUTO_TEST_CASE(the_folder_gives_the_ids_of_the_file) {
  const char* written = std::getenv("TROUPE_TEST_GEMMA_FOLDER"); // by tools/gguf_to_folder.py
  const auto folder = present(written != nullptr ? written : "$TROUPE_TEST_GEMMA_FOLDER");
  const auto model = gemma_model(), path = shared_file("golden/model_gemma.json");
  if (!folder || !model || !path) return;
  const auto golden = read_golden(path->string());
  BOOST_REQUIRE_MESSAGE(golden, golden.error().message);
  const auto of_file = choices_of(model->string(), *golden),
             of_folder = choices_of(folder->string(), *golden);
  BOOST_REQUIRE_EQUAL(of_file.size(), of_folder.size());
  std::size_t compared = 0, differing = 0;
  for (std::size_t i = 0; i < of_file.size(); ++i) {
    if (of_file[i].lead < 0.01F) continue; // either may come first in another order of the same sums
    ++compared;
    differing += of_file[i].id != of_folder[i].id;
  }
  BOOST_TEST_MESSAGE(
      compared << " of " << of_file.size() << " positions compared, " << differing << " differ");
  BOOST_TEST(compared > of_file.size() * 9 / 10);
  BOOST_TEST(differing == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
