// SPDX-License-Identifier: Apache-2.0
// Words of each pre-tokenizer family, cut where the reference implementation cuts them.
#include "models/pretokenizer.hpp"
#include "tests/models/shared_files.hpp"

#include <boost/json.hpp>
#include <boost/test/unit_test.hpp>

#include <algorithm>

using namespace troupe;
using namespace troupe::models;
namespace json = boost::json;

namespace {

std::vector<std::size_t> cut(std::string_view family, std::string_view text) {
  auto words = pretokenizer::make(family);
  if (!words) BOOST_FAIL(words.error().message);
  std::vector<std::size_t> ends;
  if (auto ok = words->split(text, ends); !ok) BOOST_FAIL(ok.error().message);
  return ends;
}

} // namespace

BOOST_AUTO_TEST_SUITE(pretokenizer_)

BOOST_AUTO_TEST_CASE(cuts_where_the_reference_implementation_cuts) {
  const auto folder = std::filesystem::path(TROUPE_TEST_DATA).parent_path() / "models";
  const json::value all = json::parse(models::test::read_file(folder / "pretokenizer_cases.json"));
  const json::array& texts = all.at("texts").as_array();
  for (const auto& [family, cuts] : all.at("cuts").as_object()) {
    BOOST_REQUIRE(cuts.as_array().size() == texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::string_view text = texts[i].as_string();
      const auto want = json::value_to<std::vector<std::size_t>>(cuts.as_array()[i]);
      const auto got = text.empty() ? std::vector<std::size_t>() : cut(family, text);
      BOOST_TEST_CONTEXT(std::string_view(family) << ": " << texts[i]) {
        BOOST_CHECK_EQUAL_COLLECTIONS(got.begin(), got.end(), want.begin(), want.end());
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(names_of_one_family_cut_alike) {
  const std::string_view text = "I'LL be 12345  times\n\n  (there), naïve!";
  for (const auto& [name, like] :
       {std::pair("llama3", "llama-bpe"),
        {"llama-v3", "llama-bpe"},
        {"falcon3", "llama-bpe"},
        {"deepseek-r1-qwen", "qwen2"},
        {"stablelm2", "qwen2"},
        {"starcoder", "smollm"},
        {"refact", "smollm"},
        {"command-r", "smollm"},
        {"mpt", "gpt-2"},
        {"olmo", "gpt-2"},
        {"phi-2", "gpt-2"},
        {"roberta-bpe", "gpt-2"},
        {"jina-v2-code", "gpt-2"},
        {"jina-v5-nano", "llama-bpe"},
        {"f2llmv2", "qwen2"},
        {"talkie", "gpt-4o"},
        {"glm5", "llama-bpe"},
        {"hy_v4", "deepseek-v3"},
        {"granite-embed-multi-97m", "gpt-4o"},
        {"cohere2moe", "tiny_aya"}}) {
    BOOST_TEST(cut(name, text) == cut(like, text), boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(families_whose_models_normalise_bring_text_to_nfc) {
  const auto form = [](std::string_view name) { return pretokenizer::make(name)->form(); };
  for (const std::string_view name :
       {"cohere2moe", "command-r", "deepseek-r1-qwen", "f2llmv2", "modern-bert", "mpt", "olmo", "qwen2",
        "qwen35", "tiny_aya"}) {
    BOOST_TEST_CONTEXT(name) BOOST_TEST((form(name) == normal_form::nfc));
  }
  for (const std::string_view name : {"afmoe", "dbrx", "gpt-2", "llama-bpe", "superbpe"})
    BOOST_TEST_CONTEXT(name) BOOST_TEST(!form(name).has_value());
}

BOOST_AUTO_TEST_CASE(an_unknown_family_is_refused_with_the_known_ones) {
  const auto words = pretokenizer::make("klingon");
  BOOST_REQUIRE(!words.has_value());
  BOOST_TEST((words.error().code == errc::unsupported));
  for (const std::string_view name : pretokenizer::known_families()) {
    BOOST_TEST(words.error().message.find(name) != std::string::npos);
  }
  const auto known = pretokenizer::known_families();
  BOOST_TEST(std::is_sorted(known.begin(), known.end()));
}

BOOST_AUTO_TEST_SUITE_END()
