// SPDX-License-Identifier: Apache-2.0
// What a start takes from a model's files: which bytes the fingerprint is of, and ids that the model lacks.
#include "engine/model_host.hpp"

#include "heard_log.hpp"
#include "tests/models/llama_file.hpp"
#include "tests/models/tiny_folder.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::models::test;
using test::heard_log;

namespace {

detail::host_result load(const std::string& path) {
  engine_options o;
  o.model_path = path;
  o.threads = 1;
  o.max_batch = 2;
  o.max_queue = 2;
  o.kv_memory_bytes = 1U << 20;
  return detail::load_model_host(o, {});
}

std::shared_ptr<const detail::model_host> loaded(const std::string& path) {
  auto host = load(path);
  BOOST_REQUIRE_MESSAGE(host, host.error().message);
  return *host;
}

std::string fingerprint_of(const std::string& path) {
  return loaded(path)->info.system_fingerprint;
}

constexpr const char* tokenizer_json =
    R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "<s>": 2, "</s>": 3}, "merges": []},
        "added_tokens": [{"id": 2, "content": "<s>", "special": true},
                         {"id": 3, "content": "</s>", "special": true},
                         {"id": 31, "content": "<last>", "special": false},
                         {"id": 40, "content": "<|im_end|>", "special": true},
                         {"id": 41, "content": "<extra>", "special": false}]})";

/// A whole folder on disk.
struct text_folder {
  temporary_folder disk{"troupe_host"};
  text_folder() {
    tiny_folder{}.write(disk);
    disk.write("tokenizer.json", tokenizer_json);
    disk.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(model_host)

BOOST_AUTO_TEST_CASE(the_fingerprint_is_of_every_part_of_a_split_file) {
  const temporary_folder disk("troupe_host");
  llama_file file;
  const auto write = [&] {
    const auto parts = file.parts(2);
    disk.write("m-00002-of-00002.gguf", parts[1]);
    return disk.write("m-00001-of-00002.gguf", parts[0]);
  };
  const std::string path = write();
  const std::string before = fingerprint_of(path);
  BOOST_TEST(fingerprint_of(path) == before);
  const std::string first = file.parts(2)[0];
  for (const auto& [name, ne] : file.tensors) { // one in the second part
    file.scales = {{name, 0.02F}};
    if (file.parts(2)[0] == first) break;
  }
  BOOST_REQUIRE(file.parts(2)[0] == first);
  write();
  BOOST_TEST(fingerprint_of(path) != before);
}

BOOST_AUTO_TEST_CASE(the_fingerprint_of_a_folder_is_of_the_files_that_count) {
  const text_folder folder;
  const std::string before = fingerprint_of(folder.disk.path());
  // What only lies there is not looked at: other weights, an empty file, no JSON.
  folder.disk.write("consolidated.safetensors", "other weights");
  folder.disk.write("empty.json", "");
  folder.disk.write("notes.json", "{");
  folder.disk.write("extra.jinja", "");
  BOOST_TEST(fingerprint_of(folder.disk.path()) == before);
  folder.disk.write("generation_config.json", R"({"eos_token_id": 3})");
  const std::string after = fingerprint_of(folder.disk.path());
  BOOST_TEST(after != before);
  tiny_folder other;
  other.tensors["model.norm.weight"] = f32_tensor({8}, std::vector<float>(8, 0.5F));
  other.write(folder.disk);
  BOOST_TEST(fingerprint_of(folder.disk.path()) != after);
}

BOOST_AUTO_TEST_CASE(a_prompt_with_a_token_that_the_model_lacks_is_refused_by_name) {
  const text_folder folder;
  folder.disk.write("chat_template.jinja", "{{ messages[0].content }}<extra>");
  const heard_log heard;
  const auto host = loaded(folder.disk.path());
  BOOST_TEST(heard.says("the model has no row for 2 tokens ('<|im_end|>' 40, '<extra>' 41)"));
  const auto fine = host->encode(prompt(std::string("ab<last>")), true, 100);
  BOOST_REQUIRE(fine);
  BOOST_TEST(*fine == (std::vector<std::int32_t>{0, 1, 31}), boost::test_tools::per_element());
  for (const bool special : {false, true}) { // what has no tokens leaves none
    const auto ended = host->encode(prompt(std::string("a</s>b")), special, 100);
    BOOST_REQUIRE(ended);
    BOOST_TEST(ended->size() == (special ? 3U : 2U));
  }
  const auto refused = host->encode(prompt(std::string("ab<extra>a")), true, 100);
  BOOST_REQUIRE(!refused);
  BOOST_TEST((refused.error().code == errc::bad_request));
  BOOST_TEST(refused.error().param == "prompt");
  BOOST_TEST(refused.error().message.find("token 41 ('<extra>')") != std::string::npos);
  chat_prompt chat;
  chat.messages.push_back({"user", "a"});
  const auto chatted = host->encode(prompt(chat), false, 100);
  BOOST_REQUIRE(!chatted);
  BOOST_TEST((chatted.error().code == errc::bad_request));
  BOOST_TEST(chatted.error().param == "messages");
  BOOST_TEST(host->info.end_of_sequence == (std::vector<std::int32_t>{3}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(recommended_sampling_is_told_when_it_is_not_applied) {
  const text_folder folder;
  folder.disk.write("generation_config.json", R"({"eos_token_id": 3, "temperature": 0.6, "top_k": 20})");
  const heard_log heard;
  loaded(folder.disk.path());
  BOOST_TEST(heard.says("generation_config.json: temperature 0.6, top_k 20 are not applied"));
}

BOOST_AUTO_TEST_CASE(a_gguf_file_with_more_tokens_than_rows_loads_too) {
  const temporary_folder disk("troupe_host");
  llama_file file;
  file.tokens = {"a", "b", "c", "d"};
  const heard_log heard;
  const auto host = loaded(disk.write("m.gguf", file.bytes()));
  BOOST_TEST(heard.says("the model has no row for 1 token ('d' 3)"));
  BOOST_TEST(host->encode(prompt(std::string("abc")), false, 100).has_value());
  const auto refused = host->encode(prompt(std::string("abcd")), false, 100);
  BOOST_REQUIRE(!refused);
  BOOST_TEST(refused.error().message.find("token 3 ('d')") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
