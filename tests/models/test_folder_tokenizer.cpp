// SPDX-License-Identifier: Apache-2.0
// The text side of a Hugging Face folder: what the files beside tokenizer.json change.
#include "models/folder_tokenizer.hpp"

#include <boost/test/unit_test.hpp>

#include <unistd.h>

#include <filesystem>
#include <fstream>

using namespace troupe;
using namespace troupe::models;

namespace {

/// A folder of its own, removed at the end.
class folder {
 public:
  folder() : path_(std::filesystem::temp_directory_path() / ("troupe_folder_" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directory(path_);
  }
  ~folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  folder& file(const std::string& name, std::string_view content) {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return *this;
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

constexpr std::string_view plain =
    R"({"model": {"type": "BPE", "vocab": {"a": 0, "<s>": 1, "</s>": 2}, "merges": []},
  "added_tokens": [{"id": 1, "content": "<s>", "special": true}, {"id": 2, "content": "</s>", "special": true}]})";

} // namespace

BOOST_AUTO_TEST_SUITE(folder_tokenizer)

BOOST_AUTO_TEST_CASE(special_tokens_come_from_the_files_beside) {
  folder f;
  f.file("tokenizer.json", plain)
      .file(
          "tokenizer_config.json",
          R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": true,
        "pad_token": null, "unk_token": {"content": "<u>"}, "sep_token": "<sep>", "added_tokens_decoder": {"7": {"content": "<x>", "special": false}}})")
      .file("generation_config.json", R"({"eos_token_id": [2, 0]})");
  const auto text = make_tokenizer_from_folder(f.path());
  if (!text) BOOST_FAIL(text.error().message);
  const tokenizer& t = *text->tokenizer;
  const vocabulary& v = t.vocab();
  BOOST_TEST(*v.bos == 1);
  BOOST_REQUIRE(v.named_texts.size() == 2u);
  BOOST_TEST((v.named_texts[0] == std::pair<std::string, std::string>("unk_token", "<u>")));
  BOOST_TEST((v.named_texts[1] == std::pair<std::string, std::string>("sep_token", "<sep>")));
  BOOST_TEST(*v.eos == 2);
  BOOST_TEST(v.add_bos);
  BOOST_TEST(!v.padding.has_value());
  BOOST_TEST(end_of_generation_ids(v) == (std::vector<token_id>{0, 2}), boost::test_tools::per_element());
  BOOST_TEST(t.encode("a<x>", {}).value() == (std::vector<token_id>{0, 7}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_chat_template_is_a_file_a_text_or_one_of_a_list) {
  folder f;
  BOOST_TEST(!read_folder_chat_template(f.path()).value().has_value());
  f.file("tokenizer_config.json", R"({"chat_template": "one"})");
  BOOST_TEST(*read_folder_chat_template(f.path()).value() == "one");
  f.file(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "two"}, {"name": "default", "template": "three"}]})");
  BOOST_TEST(*read_folder_chat_template(f.path()).value() == "three");
  BOOST_TEST(*read_folder_chat_template(f.path(), "tool_use").value() == "two");
  BOOST_TEST(!read_folder_chat_template(f.path(), "none").value().has_value());
  f.file("chat_template.jinja", "four");
  BOOST_TEST(*read_folder_chat_template(f.path()).value() == "four");
}

BOOST_AUTO_TEST_CASE(bad_files_are_refused_by_name) {
  const auto refused = [](const folder& f, std::string_view needle) {
    const auto t = make_tokenizer_from_folder(f.path());
    BOOST_REQUIRE(!t);
    BOOST_TEST_CONTEXT(t.error().message) BOOST_TEST(t.error().message.find(needle) != std::string::npos);
  };
  folder f;
  refused(f, "tokenizer.json");
  f.file("tokenizer.json", "{");
  refused(f, "not JSON");
  f.file("tokenizer.json", plain).file("tokenizer_config.json", "[]");
  refused(f, "tokenizer_config.json is not an object");
  f.file("tokenizer_config.json", R"({"bos_token": 7})");
  refused(f, "bos_token");
  f.file("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "a"}}})");
  refused(f, "named by no token id");
  f.file("tokenizer_config.json", "{}").file("generation_config.json", R"({"eos_token_id": "a"})");
  refused(f, "eos_token_id");
  f.file("tokenizer_config.json", R"({"chat_template": [7]})");
  BOOST_TEST(!read_folder_chat_template(f.path()));
}

BOOST_AUTO_TEST_SUITE_END()
