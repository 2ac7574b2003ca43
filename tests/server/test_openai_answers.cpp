// SPDX-License-Identifier: Apache-2.0
#include "server/openai_answers.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>

using namespace troupe;
using namespace troupe::server;
namespace json = boost::json;

namespace {

answer_meta meta(openai_api api) {
  answer_meta m;
  m.api = api;
  m.id = "id-1";
  m.created = 7;
  m.model = "m";
  m.system_fingerprint = "fp";
  return m;
}

json::value parsed(std::string_view s) {
  return json::parse(json::string_view(s.data(), s.size()));
}

// The JSON of each `data:` event.
std::vector<json::value> events(std::string_view sse) {
  std::vector<json::value> out;
  while (!sse.empty()) {
    const std::size_t end = sse.find("\n\n");
    BOOST_REQUIRE(end != std::string_view::npos);
    BOOST_REQUIRE(sse.starts_with("data: "));
    const std::string_view data = sse.substr(6, end - 6);
    out.push_back(data == "[DONE]" ? json::value("DONE") : parsed(data));
    sse.remove_prefix(end + 2);
  }
  return out;
}

} // namespace

BOOST_AUTO_TEST_SUITE(openai_answers)

BOOST_AUTO_TEST_CASE(writes_error_bodies_in_the_openai_shape) {
  const json::value v = parsed(openai_error_body({errc::kv_cache_full, "full \xff", "", 1500}));
  BOOST_TEST(v.at("error").at("code") == "kv_cache_full");
  BOOST_TEST(v.at("error").at("type") == "overloaded_error");
  BOOST_TEST(v.at("error").at("param").is_null());
  BOOST_TEST(v.at("error").at("message") == "full \xef\xbf\xbd");
  BOOST_TEST(v.at("error").at("retry_after_ms") == 1500);
  const json::value named = parsed(openai_error_body({errc::bad_request, "m", "top_p", 0}));
  BOOST_TEST(named.at("error").at("param") == "top_p");
  BOOST_TEST(parsed(openai_error_body(431, "x")).at("error").at("code") == "header_too_large");
}

BOOST_AUTO_TEST_CASE(writes_whole_completions) {
  completion whole;
  whole.text = "hey \"you\"";
  whole.prompt_token_ids = {1, 2};
  whole.token_ids = {3};
  whole.reason = finish_reason::length;
  whole.usage = {2, 1, 1};
  answer_meta m = meta(openai_api::completions);
  json::value v = parsed(openai_completion(m, whole));
  BOOST_TEST(v.at("object") == "text_completion");
  BOOST_TEST(v.at("choices").at(0).at("text") == "hey \"you\"");
  BOOST_TEST(v.at("choices").at(0).at("finish_reason") == "length");
  BOOST_TEST(!v.at("choices").at(0).as_object().contains("token_ids"));
  BOOST_TEST(v.at("usage").at("total_tokens") == 3);
  BOOST_TEST(v.at("usage").at("prompt_tokens_details").at("cached_tokens") == 1);
  m.return_token_ids = true;
  v = parsed(openai_completion(m, whole));
  BOOST_TEST(v.at("choices").at(0).at("token_ids").at(0) == 3);
  BOOST_TEST(v.at("choices").at(0).at("prompt_token_ids").as_array().size() == 2U);
  BOOST_TEST(v.at("prompt_token_ids").as_array().size() == 2U);
  v = parsed(openai_completion(meta(openai_api::chat), whole));
  BOOST_TEST(v.at("object") == "chat.completion");
  BOOST_TEST(v.at("choices").at(0).at("message").at("role") == "assistant");
  BOOST_TEST(v.at("choices").at(0).at("message").at("content") == "hey \"you\"");
}

BOOST_AUTO_TEST_CASE(streams_a_chat_as_role_text_reason_usage_done) {
  answer_meta m = meta(openai_api::chat);
  m.include_usage = true;
  m.return_token_ids = true;
  openai_stream_writer writer(m);
  std::string out = writer.start({{9}, "m"});
  out += writer.token({0, 0, "a", {4}, {}, {}});
  out += writer.token({1, 0, "", {5}, {}, {}});
  out += writer.end({2, finish_reason::stop, {1, 2, 0}, "m", "fp"});
  const auto e = events(out);
  BOOST_REQUIRE_EQUAL(e.size(), 6U);
  BOOST_TEST(e[0].at("choices").at(0).at("delta").at("role") == "assistant");
  BOOST_TEST(e[0].at("usage").is_null());
  BOOST_TEST(e[1].at("choices").at(0).at("delta").at("content") == "a");
  BOOST_TEST(e[1].at("prompt_token_ids").at(0) == 9);
  BOOST_TEST(e[1].at("choices").at(0).at("token_ids").at(0) == 4);
  BOOST_TEST(!e[2].as_object().contains("prompt_token_ids"));
  BOOST_TEST(e[3].at("choices").at(0).at("finish_reason") == "stop");
  BOOST_TEST(e[3].at("choices").at(0).at("delta").as_object().empty());
  BOOST_TEST(e[4].at("choices").as_array().empty());
  BOOST_TEST(e[4].at("usage").at("completion_tokens") == 2);
  BOOST_TEST(e[5] == "DONE");
  for (std::size_t i = 0; i < 5; ++i) {
    BOOST_TEST(e[i].at("id") == "id-1");
    BOOST_TEST(e[i].at("object") == "chat.completion.chunk");
  }
}

BOOST_AUTO_TEST_CASE(a_stream_that_breaks_ends_with_an_error_and_no_done) {
  const auto e = events(openai_stream_writer::failure({errc::executor_failed, "step failed", "", 0}));
  BOOST_REQUIRE_EQUAL(e.size(), 1U);
  BOOST_TEST(e[0].at("error").at("code") == "executor_failed");
}

BOOST_AUTO_TEST_CASE(logprobs_take_each_doors_own_shape) {
  token_event event{0, 0, "\xc3\xa9", {1, 2}, {{1, -0.5F, "\xc3"}, {2, -INFINITY, "\xa9"}}, {}};
  event.top_logprobs = {{{1, -0.5F, "\xc3"}, {7, -1.5F, "b"}}, {{2, -0.25F, "x"}, {3, -9.0F, "x"}}};
  openai_stream_writer text_writer(meta(openai_api::completions));
  const json::value text = events(text_writer.token(event)).at(0).at("choices").at(0).at("logprobs");
  BOOST_TEST(text.at("tokens").at(0) == "bytes:\\xc3");
  BOOST_TEST(text.at("token_logprobs").at(1).as_double() == -9999.0);
  BOOST_TEST(text.at("top_logprobs").at(0).at("b").as_double() == -1.5);
  BOOST_TEST(text.at("top_logprobs").at(1).at("x").as_double() == -0.25);
  BOOST_TEST(text.at("top_logprobs").at(1).as_object().size() == 2U);
  BOOST_TEST(text.at("text_offset").at(1) == 1);
  openai_stream_writer chat_writer(meta(openai_api::chat));
  const json::value chat =
      events(chat_writer.token(event)).at(0).at("choices").at(0).at("logprobs").at("content");
  BOOST_TEST(chat.at(0).at("token") == "\xef\xbf\xbd");
  BOOST_TEST(chat.at(0).at("bytes").at(0) == 0xc3);
  BOOST_TEST(chat.at(0).at("top_logprobs").as_array().size() == 2U);
}

BOOST_AUTO_TEST_CASE(text_is_made_valid_without_losing_what_is) {
  BOOST_TEST(to_valid_utf8("a\xc3\xa9z") == "a\xc3\xa9z");
  BOOST_TEST(to_valid_utf8("a\xc3z") == "a\xef\xbf\xbdz");
  BOOST_TEST(to_valid_utf8("\xff\xfe") == "\xef\xbf\xbd\xef\xbf\xbd");
  BOOST_TEST(to_valid_utf8("a\xf0\x9f") == "a\xef\xbf\xbd");
  BOOST_TEST(to_valid_utf8("\xf0\x9f\xc3\xa9") == "\xef\xbf\xbd\xc3\xa9");
}

BOOST_AUTO_TEST_CASE(lists_the_model) {
  const json::value v = parsed(openai_model_list("m", 2048, 7));
  BOOST_TEST(v.at("data").at(0).at("id") == "m");
  BOOST_TEST(v.at("data").at(0).at("max_model_len") == 2048);
}

BOOST_AUTO_TEST_SUITE_END()
