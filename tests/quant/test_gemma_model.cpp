// SPDX-License-Identifier: Apache-2.0
// Gemma 3 270M, as a GGUF file and as a folder of the same numbers, against answers that PyTorch gave in
// FP32. Two of the prompts are longer than its window of 512.
#include "tests/quant/loaded_model.hpp"
#include "tests/shared_files.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::quant;
using namespace troupe::quant::test;
using troupe::test::gemma_model;
using troupe::test::present;
using troupe::test::shared_file;

namespace {

/// $TROUPE_TEST_GEMMA_FOLDER: that file written by tools/gguf_to_folder.py.
std::optional<std::filesystem::path> gemma_folder() {
  const char* path = std::getenv("TROUPE_TEST_GEMMA_FOLDER");
  return present(path ? path : "$TROUPE_TEST_GEMMA_FOLDER");
}

void check_gemma(const std::optional<std::filesystem::path>& model) {
  const auto path = shared_file("golden/model_gemma.json");
  if (!model || !path) return;
  const auto golden = read_golden(path->string());
  BOOST_REQUIRE_MESSAGE(golden, golden.error().message);
  const auto loaded = load(model->string(), false, kernels::best_isa(), longest_case(*golden));
  check_golden(loaded, *golden, 0.15, 0.1);
}

} // namespace

BOOST_AUTO_TEST_SUITE(gemma)

BOOST_AUTO_TEST_CASE(golden_tokens_and_logits_agree) {
  check_gemma(gemma_model());
}

BOOST_AUTO_TEST_CASE(golden_tokens_and_logits_agree_from_a_folder) {
  check_gemma(gemma_folder());
}

BOOST_AUTO_TEST_SUITE_END()
