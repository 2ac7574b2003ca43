// SPDX-License-Identifier: Apache-2.0
// The remark on what a model's files recommend for drawing tokens.
#include "models/generation_defaults.hpp"
#include "models/gguf_file.hpp"
#include "tests/models/gguf_builder.hpp"
#include "tests/models/tiny_folder.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::models;
using namespace troupe::models::test;

BOOST_AUTO_TEST_SUITE(generation_defaults)

BOOST_AUTO_TEST_CASE(settings_that_would_change_an_answer_are_named_with_their_values) {
  const temporary_folder disk;
  const auto told = [&](const char* json) {
    disk.write("generation_config.json", json);
    return unapplied_generation(disk.path());
  };
  BOOST_TEST(!unapplied_generation(disk.path())); // no such file
  const auto several = told(
      R"({"temperature": 0.6, "top_k": 20, "top_p": 0.95, "do_sample": true, "eos_token_id": [1, 2],
          "repetition_penalty": 1.05, "suppress_tokens": [7], "transformers_version": "4.51.0"})");
  BOOST_REQUIRE(several);
  BOOST_TEST(
      *several == "generation_config.json: temperature 0.6, top_k 20, top_p 0.95, repetition_penalty 1.05, "
                  "suppress_tokens are not applied: a request says what it wants");
  BOOST_TEST(
      *told(R"({"top_k": 1})") ==
      "generation_config.json: top_k 1 is not applied: a request says what it wants");
}

BOOST_AUTO_TEST_CASE(settings_that_do_nothing_are_passed_over) {
  const temporary_folder disk;
  for (const char* json :
       {"{}", R"({"bos_token_id": 1, "eos_token_id": 2, "_from_model_config": true})",
        R"({"temperature": 1.0, "top_p": 1, "top_k": 0, "repetition_penalty": 1.0, "bad_words_ids": null,
            "suppress_tokens": [], "num_beams": 1, "max_length": 20})",
        "[]", "{"}) {
    disk.write("generation_config.json", json);
    BOOST_TEST_CONTEXT(json) BOOST_TEST(!unapplied_generation(disk.path()));
  }
}

BOOST_AUTO_TEST_CASE(those_of_a_gguf_file_are_named_too) {
  gguf_builder built;
  built.text("general.architecture", "llama");
  const std::string plain = built.bytes();
  built.value("general.sampling.temp", 6, raw(0.5F)).u32("general.sampling.top_k", 20);
  const std::string with = built.bytes();
  const auto told = [](const std::string& bytes) {
    return unapplied_generation(
        gguf_file::parse(std::as_bytes(std::span(bytes.data(), bytes.size())), "test.gguf").value());
  };
  BOOST_TEST(!told(plain));
  const auto line = told(with);
  BOOST_REQUIRE(line);
  BOOST_TEST(*line == "general.sampling: temp 0.5, top_k 20 are not applied: a request says what it wants");
}

BOOST_AUTO_TEST_SUITE_END()
