// SPDX-License-Identifier: Apache-2.0
// The tokenizer keys of GGUF files: defaults, what is refused, what is remarked.
#include "models/gguf_file.hpp"
#include "models/vocabulary_gguf.hpp"
#include "tests/models/gguf_builder.hpp"
#include "tests/models/tokenizing.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::models;
using namespace troupe::models::test;

namespace {

std::string strings(std::initializer_list<std::string_view> texts) {
  std::string out;
  for (const std::string_view text : texts) out += raw_string(text);
  return out;
}

/// Tokens <s>, </s>, a, b, ab and, by `model`, what else it needs.
gguf_builder file_of(std::string_view model, std::string_view pre) {
  gguf_builder b;
  b.text("tokenizer.ggml.model", model);
  if (!pre.empty()) b.text("tokenizer.ggml.pre", pre);
  b.array("tokenizer.ggml.tokens", 8, 5, strings({"<s>", "</s>", "a", "b", "ab"}));
  b.array("tokenizer.ggml.token_type", 5, 5, raw(3) + raw(3) + raw(0) + raw(1) + raw(1));
  if (model == "gpt2" || model == "gemma4" || model == "whitespace")
    b.array("tokenizer.ggml.merges", 8, 1, strings({"a b"}));
  else
    b.array("tokenizer.ggml.scores", 6, 5, raw(0.f) + raw(0.f) + raw(-1.f) + raw(-2.f) + raw(-1.f));
  b.u32("tokenizer.ggml.bos_token_id", 0).u32("tokenizer.ggml.eos_token_id", 1);
  return b;
}

result<vocabulary> read(const gguf_builder& b) {
  const std::string bytes = b.bytes();
  auto file = gguf_file::parse(as_bytes(bytes), "test.gguf");
  if (!file) BOOST_FAIL(file.error().message);
  return read_vocabulary(*file);
}

} // namespace

BOOST_AUTO_TEST_SUITE(vocabulary_gguf)

BOOST_AUTO_TEST_CASE(bos_and_eos_are_put_around_a_text_as_model_and_family_say) {
  for (const auto& [model, pre, bos, eos] :
       {std::tuple("gpt2", "gpt-2", false, false),
        {"gpt2", "llama-bpe", true, false},
        {"gpt2", "falcon3", true, false},
        {"gpt2", "lfm2", true, false},
        {"gpt2", "pixtral", true, false},
        {"gpt2", "tekken", true, false},
        {"gpt2", "chameleon", true, false},
        {"gpt2", "qwen2", false, false},
        {"gpt2", "klingon", false, false},
        {"llama", "default", true, false},
        {"t5", "default", false, true},
        {"gpt2", "afmoe", false, false},
        {"gpt2", "cohere2moe", false, false},
        {"gpt2", "superbpe", false, false},
        {"gpt2", "tiny_aya", false, false},
        {"whitespace", "whitespace", false, false},
        {"gemma4", "", true, false}}) {
    const auto v = read(file_of(model, pre));
    BOOST_TEST_CONTEXT(model << ' ' << pre) {
      BOOST_REQUIRE(v.has_value());
      BOOST_TEST(v->add_bos == bos);
      BOOST_TEST(v->add_eos == eos);
    }
  }
  gguf_builder stated = file_of("gpt2", "llama-bpe");
  stated.value("tokenizer.ggml.add_bos_token", 7, raw<std::uint8_t>(0));
  BOOST_TEST(!read(stated)->add_bos);
}

BOOST_AUTO_TEST_CASE(byte_level_bpe_without_merges_is_refused_by_the_keys_name) {
  gguf_builder b = file_of("gpt2", "gpt-2");
  std::erase_if(b.values, [](const std::string& v) { return v.find("merges") != std::string::npos; });
  const auto v = read(b);
  BOOST_REQUIRE(!v);
  BOOST_TEST((v.error().code == errc::bad_file));
  BOOST_TEST(v.error().message.find("tokenizer.ggml.merges") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_file_says_whether_words_between_white_space_are_lowered) {
  for (const auto& [model, pre] : {std::pair("whitespace", "whitespace"), {"gpt2", "whitespace"}}) {
    gguf_builder b = file_of(model, pre);
    BOOST_TEST(!read(b)->lowercase);
    check_ids(encode(*make(*read(b)), "AB ab"), {4});
    b.value("tokenizer.ggml.normalizer.lowercase", 7, raw<std::uint8_t>(1));
    BOOST_TEST(read(b)->lowercase);
    check_ids(encode(*make(*read(b)), "AB ab"), {4, 4});
  }
  gguf_builder other = file_of("gpt2", "gpt-2");
  other.value("tokenizer.ggml.normalizer.lowercase", 7, raw<std::uint8_t>(1));
  BOOST_TEST(!read(other)->lowercase);
}

BOOST_AUTO_TEST_CASE(a_missing_family_is_remarked) {
  const auto v = read(file_of("gpt2", ""));
  BOOST_REQUIRE(v.has_value());
  BOOST_TEST(v->pre == "default");
  BOOST_REQUIRE(v->remarks.size() == 1u);
  BOOST_TEST(v->remarks[0].find("tokenizer.ggml.pre is missing") != std::string::npos);
  BOOST_TEST(read(file_of("gpt2", "default"))->remarks.empty());
  BOOST_TEST(read(file_of("llama", ""))->remarks.empty());
}

BOOST_AUTO_TEST_CASE(an_undefined_type_is_a_normal_token) {
  auto v = read(file_of("gpt2", "gpt-2"));
  BOOST_REQUIRE(v.has_value());
  BOOST_TEST((v->types[2] == token_type::normal));
  check_ids(encode(*make(std::move(*v)), "ab"), {4});
}

BOOST_AUTO_TEST_CASE(phi_3_is_known_by_architecture_or_name_where_words_are_sentencepieces) {
  const auto strips = [](std::string_view model, std::string_view key, std::string_view value) {
    gguf_builder b = file_of(model, "default");
    b.text(key, value);
    const auto v = read(b);
    BOOST_REQUIRE(v.has_value());
    return v->strips_behind_added;
  };
  BOOST_TEST(strips("llama", "general.architecture", "phi3"));
  BOOST_TEST(strips("llama", "general.name", "Phi-3 mini 4k Instruct"));
  BOOST_TEST(strips("llama", "general.name", "my PHI3"));
  BOOST_TEST(!strips("llama", "general.name", "Llama 3"));
  BOOST_TEST(!strips("llama", "general.architecture", "llama"));
  BOOST_TEST(!strips("gpt2", "general.architecture", "phi3")); // Phi-4 mini
}

BOOST_AUTO_TEST_SUITE_END()
