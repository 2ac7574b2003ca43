// SPDX-License-Identifier: Apache-2.0
// Token ids of real vocabularies against independently computed ones. Skipped where the files are absent.
#include "models/detokenizer.hpp"
#include "models/folder_tokenizer.hpp"
#include "models/gguf_file.hpp"
#include "models/tokenizer.hpp"
#include "models/tokenizer_json.hpp"
#include "models/vocabulary_gguf.hpp"
#include "tests/models/shared_files.hpp"

#include <boost/json.hpp>
#include <boost/test/unit_test.hpp>

#include <sstream>

using namespace troupe;
using namespace troupe::models;
namespace json = boost::json;

namespace {

using ids_t = std::vector<token_id>;

std::unique_ptr<const tokenizer> open_tokenizer(const std::filesystem::path& path) {
  auto file = gguf_file::open(path.string());
  if (!file) BOOST_FAIL(file.error().message);
  auto v = read_vocabulary(*file);
  if (!v) BOOST_FAIL(v.error().message);
  auto t = make_tokenizer(std::move(*v));
  if (!t) BOOST_FAIL(t.error().message);
  return std::move(*t);
}

ids_t encode(const tokenizer& t, std::string_view text, bool special) {
  auto ids = t.encode(text, {.parse_special = special});
  if (!ids) BOOST_FAIL(ids.error().message);
  return *ids;
}

/// Texts between marker lines and one line of ids for each.
void check_vocabulary(const std::string& name) {
  const auto folder = models::test::shared_file("data/vocab");
  if (!folder) return;
  const auto t = open_tokenizer(*folder / ("ggml-vocab-" + name + ".gguf"));
  const std::string inputs = models::test::read_file(*folder / ("ggml-vocab-" + name + ".gguf.inp"));
  std::istringstream outputs(models::test::read_file(*folder / ("ggml-vocab-" + name + ".gguf.out")));
  constexpr std::string_view marker = "\n__ggml_vocab_test__\n";
  std::size_t cases = 0;
  for (std::size_t at = 0; at <= inputs.size(); ++cases) {
    const std::size_t end = std::min(inputs.find(marker, at), inputs.size());
    const std::string_view text = std::string_view(inputs).substr(at, end - at);
    at = end + marker.size();
    std::string line;
    std::getline(outputs, line);
    std::istringstream numbers(line);
    const ids_t want{std::istream_iterator<token_id>(numbers), {}};
    const ids_t got = encode(*t, text, false);
    BOOST_TEST_CONTEXT(text) BOOST_CHECK_EQUAL_COLLECTIONS(got.begin(), got.end(), want.begin(), want.end());
    BOOST_TEST(detokenize(*t, got) == text);
  }
  BOOST_TEST(cases >= 45u);
}

} // namespace

BOOST_AUTO_TEST_SUITE(tokenizer_golden)

BOOST_AUTO_TEST_CASE(gpt_2_vocabulary_gives_the_published_ids) {
  check_vocabulary("gpt-2");
}

BOOST_AUTO_TEST_CASE(deepseek_llm_vocabulary_gives_the_published_ids) {
  check_vocabulary("deepseek-llm");
}

BOOST_AUTO_TEST_CASE(llama_sentencepiece_vocabulary_gives_the_published_ids) {
  check_vocabulary("llama-spm");
}

BOOST_AUTO_TEST_CASE(gemma_gives_the_reference_ids_for_prompts_and_all_of_wikitext) {
  const auto model = models::test::gemma_model();
  const auto golden = models::test::shared_file("golden/model_gemma.json");
  const auto text_file = models::test::shared_file("data/wikitext2/wiki.test.raw");
  if (!model || !golden || !text_file) return;
  const auto t = open_tokenizer(*model);
  const json::value g = json::parse(models::test::read_file(*golden));
  for (const auto& p : g.at("prompts").as_array()) {
    const auto want = json::value_to<ids_t>(p.at("ids"));
    auto got = t->encode(p.at("text").as_string(), {.add_bos = true});
    if (!got) BOOST_FAIL(got.error().message);
    BOOST_CHECK_EQUAL_COLLECTIONS(got->begin(), got->end(), want.begin(), want.end());
    BOOST_TEST(detokenize(*t, *got) == std::string_view(p.at("text").as_string()));
  }
  const std::string text = models::test::read_file(*text_file);
  const ids_t ids = encode(*t, text, false);
  BOOST_TEST(static_cast<std::int64_t>(ids.size()) == g.at("wiki").at("tokens").as_int64());
  BOOST_TEST(
      models::test::sha256(std::as_bytes(std::span(ids))) ==
      std::string_view(g.at("wiki").at("sha256_of_ids_u32le").as_string()));
  BOOST_TEST(detokenize(*t, ids) == text);
}

BOOST_AUTO_TEST_CASE(qwen_3_tokenizer_json_gives_the_reference_ids_and_texts) {
  const auto folder = models::test::shared_file("data/tokenizers/qwen3");
  const auto golden = models::test::shared_file("golden/tok_qwen3.json");
  if (!folder || !golden) return;
  const auto text = make_tokenizer_from_folder(folder->string());
  if (!text) BOOST_FAIL(text.error().message);
  BOOST_TEST(text->chat_template.has_value());
  const auto& t = text->tokenizer;
  const json::value cases = json::parse(models::test::read_file(*golden));
  for (const auto& c : cases.as_array()) {
    const auto want = json::value_to<ids_t>(c.at("ids"));
    const ids_t got = encode(*t, c.at("text").as_string(), true);
    BOOST_TEST_CONTEXT(c.at("text")) {
      BOOST_CHECK_EQUAL_COLLECTIONS(got.begin(), got.end(), want.begin(), want.end());
    }
    BOOST_TEST(detokenize(*t, want, true) == std::string_view(c.at("decoded").as_string()));
  }
}

BOOST_AUTO_TEST_CASE(tiny_tokenizer_json_files_give_the_ids_and_texts_of_hf_tokenizers) {
  const std::filesystem::path folder = std::filesystem::path(TROUPE_TEST_DATA) / "tokenizers_tiny";
  for (const std::string name : {"bpe_llama3", "bpe_nfc", "spm_bpe", "unigram"}) {
    const auto t = read_tokenizer_json(models::test::read_file(folder / (name + ".json")));
    if (!t) BOOST_FAIL(t.error().message);
    const json::value cases = json::parse(models::test::read_file(folder / (name + ".expected.json")));
    BOOST_TEST(cases.as_array().size() > 30u);
    for (const auto& c : cases.as_array()) {
      const std::string_view text = c.at("text").as_string();
      const auto want = json::value_to<ids_t>(c.at("ids"));
      const ids_t got = encode(**t, text, true);
      BOOST_TEST_CONTEXT(name << ": " << c.at("text")) {
        BOOST_CHECK_EQUAL_COLLECTIONS(got.begin(), got.end(), want.begin(), want.end());
        BOOST_TEST(detokenize(**t, want) == std::string_view(c.at("decoded").as_string()));
      }
      const auto around = json::value_to<ids_t>(c.at("with_specials"));
      encode_options all{.parse_special = true};
      all.add_bos = (*t)->vocab().add_bos;
      all.add_eos = (*t)->vocab().add_eos;
      // A text that itself begins with the token gets no second one.
      if (!want.empty() &&
          ((all.add_bos && want.front() == around.front()) || (all.add_eos && want.back() == around.back())))
        continue;
      const auto whole = (*t)->encode(text, all);
      BOOST_TEST_CONTEXT(name << ": " << c.at("text")) {
        BOOST_CHECK_EQUAL_COLLECTIONS(whole->begin(), whole->end(), around.begin(), around.end());
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(tiny_model_vocabulary_gives_the_independently_computed_ids) {
  const std::filesystem::path folder = std::filesystem::path(TROUPE_TEST_DATA) / "tiny";
  auto file = gguf_file::open((folder / "tiny_f16.gguf").string());
  if (!file) BOOST_FAIL(file.error().message);
  for (const std::string pre : {"gpt2", "smollm"}) {
    auto v = read_vocabulary(*file);
    if (!v) BOOST_FAIL(v.error().message);
    v->pre = pre == "gpt2" ? "gpt-2" : pre;
    auto t = make_tokenizer(std::move(*v));
    if (!t) BOOST_FAIL(t.error().message);
    const json::value cases = json::parse(models::test::read_file(folder / ("tokenizer_" + pre + ".json")));
    BOOST_TEST(cases.as_array().size() > 10u);
    for (const auto& c : cases.as_array()) {
      const auto want = json::value_to<ids_t>(c.at("ids"));
      const ids_t got = encode(**t, c.at("text").as_string(), true);
      BOOST_TEST_CONTEXT(pre << ": " << c.at("text")) {
        BOOST_CHECK_EQUAL_COLLECTIONS(got.begin(), got.end(), want.begin(), want.end());
      }
      BOOST_TEST(detokenize(**t, want, true) == std::string_view(c.at("decoded").as_string()));
    }
  }
}

BOOST_AUTO_TEST_CASE(default_model_gives_the_reference_ids_for_prompts_and_chats) {
  const auto model = models::test::default_model();
  const auto golden = models::test::shared_file("golden/model_smol.json");
  if (!model || !golden) return;
  const auto t = open_tokenizer(*model);
  const json::value g = json::parse(models::test::read_file(*golden));
  const auto check = [&](const json::value& text, const json::value& ids, bool special) {
    const auto want = json::value_to<ids_t>(ids);
    const ids_t got = encode(*t, text.as_string(), special);
    BOOST_CHECK_EQUAL_COLLECTIONS(got.begin(), got.end(), want.begin(), want.end());
  };
  for (const auto& p : g.at("prompts").as_array()) check(p.at("text"), p.at("ids"), false);
  for (const auto& c : g.at("chats").as_array()) check(c.at("rendered"), c.at("ids"), true);
}

BOOST_AUTO_TEST_CASE(default_model_gives_the_reference_ids_for_all_of_wikitext) {
  const auto model = models::test::default_model();
  const auto text_file = models::test::shared_file("data/wikitext2/wiki.test.raw");
  if (!model || !text_file) return;
  const auto t = open_tokenizer(*model);
  const std::string text = models::test::read_file(*text_file);
  const ids_t ids = encode(*t, text, false);
  BOOST_TEST(ids.size() == 303415u);
  BOOST_TEST(
      models::test::sha256(std::as_bytes(std::span(ids))) ==
      "18e663b61dd00f49796c8a6ae498b7dbe009cac4a2eaf3c67fa7d81baf47d945");
  BOOST_TEST(detokenize(*t, ids) == text);
}

BOOST_AUTO_TEST_SUITE_END()
