// SPDX-License-Identifier: Apache-2.0
#include "server/openai_answers.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <map>

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
  BOOST_TEST(!v.at("error").as_object().contains("queue_length"));
  const json::value queued = parsed(openai_error_body({errc::queue_full, "full", "", 1500, 7}));
  BOOST_TEST(queued.at("error").at("queue_length") == 7);
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
  const json::value spoken = events(chat_writer.token(event)).at(0).at("choices").at(0).at("logprobs");
  BOOST_TEST(spoken.at("refusal").is_null());
  const json::value& chat = spoken.at("content");
  BOOST_TEST(chat.at(0).at("token") == "\xef\xbf\xbd");
  BOOST_TEST(chat.at(0).at("bytes").at(0) == 0xc3);
  BOOST_TEST(chat.at(0).at("top_logprobs").as_array().size() == 2U);
}

BOOST_AUTO_TEST_CASE(several_choices_stand_side_by_side_with_their_prompts) {
  completion whole;
  whole.prompt_token_ids = {1};
  whole.further_prompts = {{2, 3}};
  for (std::uint32_t i = 0; i < 4; ++i)
    whole.take(token_event{
        0, i, std::string(1, static_cast<char>('a' + i)), {static_cast<std::int32_t>(i)}, {}, {}});
  whole.take(done_event{
      4,
      finish_reason::stop,
      {3, 4, 0},
      "m",
      "fp",
      {finish_reason::stop, finish_reason::length, finish_reason::cancelled, finish_reason::length}});
  answer_meta m = meta(openai_api::completions);
  m.n = 2;
  m.choices = 4;
  m.return_token_ids = true;
  const json::value v = parsed(openai_completion(m, whole));
  BOOST_REQUIRE_EQUAL(v.at("choices").as_array().size(), 4U);
  const char* reasons[] = {"stop", "length", "cancelled", "length"};
  for (std::size_t i = 0; i < 4; ++i) {
    const auto& choice = v.at("choices").at(i);
    BOOST_TEST(choice.at("index").as_int64() == static_cast<std::int64_t>(i));
    BOOST_TEST(choice.at("text").as_string() == std::string(1, static_cast<char>('a' + i)));
    BOOST_TEST(choice.at("finish_reason").as_string() == reasons[i]);
    BOOST_TEST(choice.at("prompt_token_ids").as_array().size() == (i < 2 ? 1U : 2U));
  }
}

BOOST_AUTO_TEST_CASE(streamed_choices_have_a_role_an_index_and_one_reason_each) {
  for (const openai_api api : {openai_api::chat, openai_api::completions}) {
    answer_meta m = meta(api);
    m.n = m.choices = 3;
    m.include_usage = m.return_token_ids = true;
    openai_stream_writer writer(m);
    std::string out = writer.start({{9, 8}, "m"});
    for (const std::uint32_t index : {2U, 0U, 2U}) out += writer.token({0, index, "x", {4}, {}, {}});
    out += writer.end(
        {3,
         finish_reason::stop,
         {2, 3, 0},
         "m",
         "fp",
         {finish_reason::stop, finish_reason::length, finish_reason::stop}});
    const auto e = events(out);
    std::map<std::int64_t, int> roles, ends, ids;
    for (const json::value& one : e) {
      if (one == "DONE" || one.at("choices").as_array().empty()) continue;
      BOOST_REQUIRE_EQUAL(one.at("choices").as_array().size(), 1U);
      const auto& choice = one.at("choices").at(0);
      const std::int64_t index = choice.at("index").as_int64();
      if (api == openai_api::chat && choice.at("delta").as_object().contains("role")) ++roles[index];
      if (one.as_object().contains("prompt_token_ids")) ++ids[index];
      if (!choice.at("finish_reason").is_null()) {
        ++ends[index];
        BOOST_TEST(choice.at("finish_reason") == (index == 1 ? "length" : "stop"));
      }
    }
    BOOST_TEST(ends.size() == 3U);
    for (const auto& [index, n] : ends) BOOST_TEST(n == 1);
    BOOST_TEST(roles.size() == (api == openai_api::chat ? 3U : 0U));
    BOOST_TEST(ids.size() == 2U); // with the first chunk of those that had one
    for (const auto& [index, n] : ids) BOOST_TEST(n == 1);
    BOOST_TEST(e.back() == "DONE");
    BOOST_TEST(e[e.size() - 2].at("usage").at("prompt_tokens") == 2);
  }
}

BOOST_AUTO_TEST_CASE(an_echo_counts_into_text_and_offsets_and_its_first_token_has_no_probability) {
  token_event echo{0, 0, "Hi you", {1, 2, 3}, {}, {}};
  echo.echo = true;
  echo.logprobs = {{1, no_logprob, "<s>", false}, {2, -2.5F, "Hi"}, {3, -1.5F, " you"}};
  echo.top_logprobs = {{}, {{7, -0.5F, "Ho"}}, {{3, -1.5F, " you"}}};
  token_event drawn{1, 0, "!", {4}, {{4, -0.25F, "!"}}, {{{4, -0.25F, "!"}}}};
  completion whole;
  whole.take(token_event(echo));
  whole.take(token_event(drawn));
  BOOST_TEST(whole.token_ids.size() == 1U);
  const json::value v = parsed(openai_completion(meta(openai_api::completions), whole)).at("choices").at(0);
  BOOST_TEST(v.at("text") == "Hi you!");
  const json::value& l = v.at("logprobs");
  BOOST_TEST(l.at("token_logprobs").at(0).is_null());
  BOOST_TEST(l.at("top_logprobs").at(0).is_null());
  BOOST_TEST(l.at("token_logprobs").at(1).as_double() == -2.5);
  BOOST_TEST(l.at("top_logprobs").at(1).at("Ho").as_double() == -0.5);
  BOOST_TEST(l.at("top_logprobs").at(1).at("Hi").as_double() == -2.5);
  BOOST_TEST(l.at("top_logprobs").at(2).as_object().size() == 1U);
  const std::int64_t offsets[] = {0, 0, 2, 6};
  for (std::size_t i = 0; i < 4; ++i) BOOST_TEST(l.at("text_offset").at(i).as_int64() == offsets[i]);
  answer_meta m = meta(openai_api::completions);
  m.return_token_ids = true;
  openai_stream_writer writer(m);
  writer.start({{1, 2, 3}, "m"});
  std::string written = writer.token(echo);
  written += writer.token(drawn);
  const auto e = events(written);
  BOOST_TEST(e[0].at("choices").at(0).at("text") == "Hi you");
  BOOST_TEST(e[0].at("choices").at(0).at("token_ids").as_array().empty());
  BOOST_TEST(e[1].at("choices").at(0).at("logprobs").at("text_offset").at(0) == 6);
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
