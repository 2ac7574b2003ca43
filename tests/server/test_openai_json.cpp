// SPDX-License-Identifier: Apache-2.0
// Every field of the table at its bounds and with wrong types; the rules that need several fields; hostile
// JSON.
#include "runtime/base/bounded_json.hpp"
#include "server/openai_json.hpp"

#include <boost/test/unit_test.hpp>

#include <fstream>
#include <iterator>

using namespace troupe;
using namespace troupe::server;
using namespace std::string_literals;

namespace {

const openai_rules rules{"m", 100, false};

result<openai_request> completions(std::string_view fields) {
  return parse_openai_body(openai_api::completions, R"({"prompt":"hi")" + std::string(fields) + "}", rules);
}
result<openai_request> chat(std::string_view fields) {
  return parse_openai_body(
      openai_api::chat, R"({"messages":[{"role":"user","content":"hi"}])" + std::string(fields) + "}", rules);
}
result<openai_request> messages(std::string_view list) {
  return parse_openai_body(openai_api::chat, R"({"messages":)" + std::string(list) + "}", rules);
}
result<openai_request> prompt_of(std::string_view value) {
  return parse_openai_body(openai_api::completions, R"({"prompt":)" + std::string(value) + "}", rules);
}

std::string refused(const result<openai_request>& r) {
  return r ? "accepted" : r.error().param;
}

} // namespace

BOOST_AUTO_TEST_SUITE(openai_json)

BOOST_AUTO_TEST_CASE(reads_every_field_of_a_completion) {
  const auto r =
      completions(R"(,"model":"m","max_tokens":7,"min_tokens":2,"temperature":0.5,"top_p":0.25,"top_k":3,
    "min_p":0.125,"presence_penalty":-1,"frequency_penalty":1.5,"repetition_penalty":1.25,"seed":-1,"stop":["a","b"],
    "stop_token_ids":[5],"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true},
    "return_token_ids":true,"skip_special_tokens":false,"logprobs":2,"priority":0,"deadline_ms":1000,"user":"u","n":2,
    "echo":true,"best_of":2,"parse_special":true,"suffix":null,"logit_bias":{"7":-100,"0":2.5},"typical_p":0.75)");
  BOOST_REQUIRE_MESSAGE(r.has_value(), (r.has_error() ? r.error().message : std::string()));
  const request& q = r->what;
  BOOST_TEST(std::get<std::string>(q.prompt) == "hi");
  BOOST_TEST(q.max_tokens.value() == 7U);
  BOOST_TEST(q.min_tokens == 2U);
  BOOST_TEST(q.sampling.temperature == 0.5F);
  BOOST_TEST(q.sampling.top_p == 0.25F);
  BOOST_TEST(q.sampling.top_k == 3U);
  BOOST_TEST(q.sampling.min_p == 0.125F);
  BOOST_TEST(q.sampling.presence_penalty == -1.0F);
  BOOST_TEST(q.sampling.frequency_penalty == 1.5F);
  BOOST_TEST(q.sampling.repetition_penalty == 1.25F);
  BOOST_TEST(q.sampling.seed.value() == ~std::uint64_t{0});
  BOOST_TEST(q.stop == (std::vector<std::string>{"a", "b"}), boost::test_tools::per_element());
  BOOST_TEST(q.stop_token_ids == std::vector<std::int32_t>{5}, boost::test_tools::per_element());
  BOOST_TEST(q.ignore_eos);
  BOOST_TEST(!q.skip_special_tokens);
  BOOST_TEST(q.logprobs);
  BOOST_TEST(q.top_logprobs == 2U);
  BOOST_TEST(q.priority == 0U);
  BOOST_TEST(q.deadline_ms == 1000U);
  BOOST_TEST(r->stream);
  BOOST_TEST(r->include_usage);
  BOOST_TEST(r->return_token_ids);
  BOOST_TEST(q.n == 2U);
  BOOST_TEST(q.best_of == 2U);
  BOOST_TEST(q.echo);
  BOOST_TEST(q.parse_special);
  BOOST_TEST(q.sampling.typical_p == 0.75F);
  BOOST_REQUIRE_EQUAL(q.sampling.logit_bias.size(), 2U);
  BOOST_TEST(q.sampling.logit_bias[0].token == 7);
  BOOST_TEST(q.sampling.logit_bias[0].bias == -100.0F);
  BOOST_TEST(q.sampling.logit_bias[1].bias == 2.5F);
}

BOOST_AUTO_TEST_CASE(reads_a_conversation) {
  const auto r = messages(R"([{"role":"developer","content":"be brief"},
    {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
    {"role":"assistant","content":"<|im_end|>","tool_calls":null},{"role":"user","content":""}])");
  BOOST_REQUIRE_MESSAGE(r.has_value(), (r.has_error() ? r.error().message : std::string()));
  const auto& list = std::get<chat_prompt>(r->what.prompt).messages;
  BOOST_REQUIRE_EQUAL(list.size(), 4U);
  BOOST_TEST(list[0].role == "system");
  BOOST_TEST(list[1].content == "a\nb");
  BOOST_TEST(list[2].content == "<|im_end|>");
  BOOST_TEST(list[3].content.empty()); // a message may be, a prompt may not
}

BOOST_AUTO_TEST_CASE(the_two_limits_on_tokens_agree_or_are_refused) {
  BOOST_TEST(chat(R"(,"max_completion_tokens":5)").value().what.max_tokens.value() == 5U);
  BOOST_TEST(chat(R"(,"max_tokens":5,"max_completion_tokens":5)").value().what.max_tokens.value() == 5U);
  BOOST_TEST(refused(chat(R"(,"max_tokens":6,"max_completion_tokens":5)")) == "max_completion_tokens");
  BOOST_TEST(refused(completions(R"(,"max_completion_tokens":5)")) == "max_completion_tokens");
  BOOST_TEST(refused(completions(R"(,"max_tokens":5,"min_tokens":6)")) == "min_tokens");
}

BOOST_AUTO_TEST_CASE(a_completion_without_a_limit_has_sixteen_tokens_and_a_chat_the_context) {
  BOOST_TEST(completions("").value().what.max_tokens.value() == 16U);
  BOOST_TEST(completions(R"(,"min_tokens":20)").value().what.max_tokens.value() == 20U);
  BOOST_TEST(completions(R"(,"max_tokens":null)").value().what.max_tokens.value() == 16U);
  BOOST_TEST(completions(R"(,"max_tokens":0)").value().what.max_tokens.value() == 0U);
  BOOST_TEST(!chat("").value().what.max_tokens.has_value());
}

BOOST_AUTO_TEST_CASE(the_protocol_page_has_a_row_for_every_field) {
  std::ifstream file(TROUPE_TEST_DATA "/../../docs/protocol.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  for (const openai_field& f : openai_fields()) {
    const char* door = !f.in_chat ? "completions" : !f.in_completions ? "chat" : "both";
    std::string row = "\n| `" + std::string(f.name) + "` | " + door + " | " + std::string(f.rule) + " |";
    row += f.standard.empty() ? " |\n" : " " + std::string(f.standard) + " |\n";
    BOOST_TEST((page.find(row) != std::string::npos), row);
  }
}

BOOST_AUTO_TEST_CASE(every_field_refuses_every_wrong_type_and_names_itself) {
  // What each rule in words admits, beside null.
  for (const openai_field& f : openai_fields()) {
    const bool wants_number = f.rule.starts_with("an integer") || f.rule.starts_with("a number") ||
                              f.rule == "1" || f.rule.starts_with("a 64-bit");
    const bool wants_bool = f.rule == "true or false" || f.rule == "false";
    for (const std::string_view value : {"true", "\"~\"", "3.5", "1e300", "[[]]", "{\"a\":1}"}) {
      const bool is_bool = value == "true";
      if (wants_bool && is_bool && f.rule != "false") continue;
      if (f.rule.starts_with("a string") && value.front() == '"' && f.name != "model") continue;
      if (wants_number && value == "3.5" && f.rule.starts_with("a number")) {
        // In range or not, a number is the right type; the bounds have their own case.
        continue;
      }
      const std::string field = std::string(",\"") + std::string(f.name) + "\":" + std::string(value);
      const bool twice = f.name == "prompt" || f.name == "messages";
      for (const bool is_chat : {false, true}) {
        if (is_chat ? !f.in_chat : !f.in_completions) continue;
        const auto r = twice ? parse_openai_body(
                                   is_chat ? openai_api::chat : openai_api::completions,
                                   std::string("{") + field.substr(1) + "}", rules)
                             : (is_chat ? chat(field) : completions(field));
        BOOST_TEST_CONTEXT(field) {
          BOOST_REQUIRE(!r);
          BOOST_TEST(r.error().param.starts_with(f.name));
          BOOST_TEST(r.error().message.find(f.name) != std::string::npos);
        }
      }
    }
    if (f.name != "prompt" && f.name != "messages") {
      const std::string nothing = std::string(",\"") + std::string(f.name) + "\":null";
      if (f.in_completions) BOOST_TEST(completions(nothing).has_value());
      if (f.in_chat) BOOST_TEST(chat(nothing).has_value());
    }
  }
}

BOOST_AUTO_TEST_CASE(row_50_bounds_hold_exactly) {
  struct bound {
    const char* name;
    const char* inside[2];
    const char* outside[4];
  };
  const bound bounds[] = {
      {"max_tokens", {"0", "2147483647"}, {"-1", "0.5", "2147483648", "9223372036854775808"}},
      {"min_tokens", {"0", "0.0"}, {"-1", "2147483648", "1e999", "0.5"}},
      {"temperature", {"0", "2"}, {"-0.001", "2.001", "1e999", "-1e30"}},
      {"top_p", {"1e-3", "1"}, {"0", "1.001", "-1", "1e-400"}},
      {"top_k", {"-1", "2147483647"}, {"-2", "2147483648", "1.5", "1e19"}},
      {"typical_p", {"1e-3", "1"}, {"0", "1.001", "-1", "1e-400"}},
      {"min_p", {"0", "1"}, {"-0.001", "1.001", "1e999", "-1e999"}},
      {"presence_penalty", {"-2", "2"}, {"-2.001", "2.001", "1e30", "-1e30"}},
      {"frequency_penalty", {"-2", "2"}, {"-2.001", "2.001", "1e30", "-1e30"}},
      {"repetition_penalty", {"0.001", "2"}, {"0", "2.001", "-1", "1e-400"}},
      {"seed",
       {"-9223372036854775808", "18446744073709551615"},
       {"0.5", "1e300", "18446744073709551616", "true"}},
      {"logprobs", {"0", "20"}, {"-1", "21", "49152", "1.5"}},
      {"priority", {"0", "9"}, {"-1", "10", "0.5", "1e3"}},
      {"deadline_ms", {"1", "86400000"}, {"0", "-1", "86400001", "0.1"}},
      {"n", {"1", "16.0"}, {"0", "17", "1000000000", "-1"}},
      {"best_of", {"1", "16.0"}, {"0", "17", "1000000", "1.5"}},
  };
  for (const bound& b : bounds) {
    const std::string field = std::string(",\"") + std::string(b.name) + "\":";
    for (const char* v : b.inside) BOOST_TEST(completions(field + v).has_value(), b.name << " " << v);
    for (const char* v : b.outside)
      BOOST_TEST(refused(completions(field + v)).starts_with(b.name), b.name << " " << v);
  }
  BOOST_TEST(refused(chat(R"(,"logprobs":true,"top_logprobs":21)")) == "top_logprobs");
  BOOST_TEST(refused(chat(R"(,"top_logprobs":1)")) == "top_logprobs");
  BOOST_TEST(chat(R"(,"logprobs":true,"top_logprobs":20)").value().what.top_logprobs == 20U);
}

BOOST_AUTO_TEST_CASE(prompts_are_text_or_ids) {
  BOOST_TEST(std::get<std::string>(prompt_of(R"(["hi"])").value().what.prompt) == "hi");
  BOOST_TEST(std::get<std::vector<std::int32_t>>(prompt_of("[0,99]").value().what.prompt).size() == 2U);
  BOOST_TEST(std::get<std::vector<std::int32_t>>(prompt_of("[[1,2,3]]").value().what.prompt).size() == 3U);
  for (const char* value :
       {"\"\"", "[]", "[[]]", "[\"\"]", "[100]", "[-1]", "[1.5]", "[1,\"a\"]", "5", "{}", "true", "[null]",
        "[2147483648]"})
    BOOST_TEST(refused(prompt_of(value)) == "prompt", value);
  BOOST_TEST(refused(parse_openai_body(openai_api::completions, "{}", rules)) == "prompt");
  BOOST_TEST(refused(parse_openai_body(openai_api::completions, R"({"prompt":null})", rules)) == "prompt");
}

BOOST_AUTO_TEST_CASE(several_prompts_are_texts_and_ids_and_a_fault_names_its_place) {
  const auto r = prompt_of(R"(["a",[1,2],"c"])");
  BOOST_REQUIRE(r.has_value());
  BOOST_TEST(std::get<std::string>(r->what.prompt) == "a");
  BOOST_REQUIRE_EQUAL(r->what.further_prompts.size(), 2U);
  BOOST_TEST(std::get<std::vector<std::int32_t>>(r->what.further_prompts[0]).size() == 2U);
  BOOST_TEST(std::get<std::string>(r->what.further_prompts[1]) == "c");
  BOOST_TEST(refused(prompt_of(R"(["a",""])")) == "prompt[1]");
  BOOST_TEST(refused(prompt_of(R"(["a",5])")) == "prompt[1]");
  BOOST_TEST(refused(prompt_of("[[1],[]]")) == "prompt[1]");
  BOOST_TEST(refused(prompt_of("[[1],[2],[100]]")) == "prompt[2]");
  BOOST_TEST(refused(prompt_of("[[1],[[2]]]")) == "prompt[1]");
  std::string many = "[[1]";
  for (int i = 1; i < 128; ++i) many += ",[1]";
  BOOST_TEST(prompt_of(many + "]").value().what.further_prompts.size() == 127U);
  BOOST_TEST(refused(prompt_of(many + ",[1]]")) == "prompt");
}

BOOST_AUTO_TEST_CASE(a_bias_names_a_token_of_the_vocabulary_and_a_number_in_range) {
  BOOST_TEST(completions(R"(,"logit_bias":{})").value().what.sampling.logit_bias.empty());
  BOOST_TEST(
      completions(R"(,"logit_bias":{"99":100,"0":-100})").value().what.sampling.logit_bias.size() == 2U);
  for (const char* name : {"100", "-1", "1.0", " 1", "1 ", "", "x", "99999999999999999999"}) {
    const auto r = completions(std::string(R"(,"logit_bias":{")") + name + R"(":1})");
    BOOST_REQUIRE_MESSAGE(!r, name);
    BOOST_TEST(r.error().param == std::string("logit_bias.") + name);
    BOOST_TEST((r.error().code == errc::bad_request));
  }
  for (const char* value : {"100.5", "-101", "null", "\"1\"", "true", "1e999"})
    BOOST_TEST(
        refused(completions(std::string(R"(,"logit_bias":{"7":)") + value + "}")).starts_with("logit_bias"),
        value);
  std::string many;
  for (int i = 0; i < 1025; ++i) many += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":1";
  BOOST_TEST(refused(completions(R"(,"logit_bias":{)" + many + "}")) == "logit_bias");
  BOOST_TEST(refused(completions(R"(,"logit_bias":{"7":1,"7":2})")) == "logit_bias.7");
}

BOOST_AUTO_TEST_CASE(the_best_of_some_are_at_least_as_many_and_are_not_streamed) {
  BOOST_TEST(completions(R"(,"n":2,"best_of":5)").value().what.best_of == 5U);
  BOOST_TEST(completions(R"(,"n":2,"best_of":2,"stream":true)").has_value());
  BOOST_TEST(refused(completions(R"(,"best_of":5,"n":6)")) == "best_of");
  BOOST_TEST(refused(completions(R"(,"n":2,"best_of":3,"stream":true)")) == "best_of");
  BOOST_TEST(refused(chat(R"(,"best_of":1)")) == "best_of");
  BOOST_TEST(refused(chat(R"(,"echo":true)")) == "echo");
  BOOST_TEST(refused(chat(R"(,"max_tokens":0)")) == "max_tokens");
  BOOST_TEST(chat(R"(,"n":3)").value().what.n == 3U);
}

BOOST_AUTO_TEST_CASE(messages_name_the_place_of_a_fault) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "messages"},
      {"{}", "messages"},
      {"[5]", "messages[0]"},
      {R"([{"role":"user"}])", "messages[0].content"},
      {R"([{"content":"x"}])", "messages[0].role"},
      {R"([{"role":"user","content":"x"},{"role":"king","content":"x"}])", "messages[1].role"},
      {R"([{"role":"user","content":null}])", "messages[0].content"},
      {R"([{"role":"user","content":5}])", "messages[0].content"},
      {R"([{"role":"user","content":[]}])", "messages[0].content"},
      {R"([{"role":"user","content":["x"]}])", "messages[0].content[0]"},
      {R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text"},
      {R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://169.254.169.254/"}}]}])",
       "messages[0].content[0].type"},
      {R"([{"role":"user","content":[{"type":"text","text":"a","x":1}]}])", "messages[0].content[0].x"},
      {R"([{"role":"user","content":"x","name":"bob"}])", "messages[0].name"},
      {R"([{"role":"assistant","content":"x","tool_calls":[{}]}])", "messages[0].tool_calls"},
      {R"([{"role":"user","content":"x","extra":1}])", "messages[0].extra"},
  };
  for (const auto& [list, param] : cases) BOOST_TEST(refused(messages(list)) == param, list);
}

BOOST_AUTO_TEST_CASE(unknown_and_repeated_fields_are_refused_unless_switched_off) {
  BOOST_TEST(refused(completions(R"(,"temprature":1)")) == "temprature");
  BOOST_TEST(refused(completions(R"(,"messages":[])")) == "messages");
  BOOST_TEST(refused(chat(R"(,"prompt":"x")")) == "prompt");
  BOOST_TEST(refused(completions(R"(,"stream_options":{"x":1},"stream":true)")) == "stream_options.x");
  BOOST_TEST(refused(completions(R"(,"stream_options":{})")) == "stream_options");
  BOOST_TEST(refused(completions(R"(,"temperature":1,"temperature":1)")) == "temperature");
  BOOST_TEST(refused(completions(R"(,"temperature":1,"temper\u0061ture":1)")) == "temperature");
  BOOST_TEST(refused(messages(R"([{"role":"user","role":"user","content":"x"}])")) == "messages.role");
  openai_rules lax = rules;
  lax.ignore_unknown_fields = true;
  BOOST_TEST(parse_openai_body(openai_api::completions, R"({"prompt":"a","x":1})", lax).has_value());
  BOOST_TEST(!parse_openai_body(openai_api::completions, R"({"prompt":"a","n":17})", lax).has_value());
  const std::string huge =
      completions(std::string(",\"") + std::string(1 << 19, 'k') + "\":1").error().message;
  BOOST_TEST(huge.size() < 200U);
}

BOOST_AUTO_TEST_CASE(unknown_fields_pass_everywhere_when_switched_off) {
  openai_rules lenient{"m", 100, true};
  const std::string body =
      R"({"messages":[{"role":"user","x":1,"content":[{"type":"text","text":"a","cache_control":{}}]}],)"
      R"("stream":true,"stream_options":{"x":1},"response_format":{"type":"text","x":1},"x":1})";
  BOOST_TEST(parse_openai_body(openai_api::chat, body, lenient).has_value());
  lenient.ignore_unknown_fields = false;
  BOOST_TEST(parse_openai_body(openai_api::chat, body, lenient).has_error());
}

BOOST_AUTO_TEST_CASE(fields_with_one_value_take_that_one_only) {
  const auto refused = [](const std::string& member) {
    const std::string body = R"({"messages":[{"role":"user","content":"a"}],)" + member + "}";
    return parse_openai_body(openai_api::chat, body, {"m", 100, false}).has_error();
  };
  for (const char* member :
       {R"("tool_choice":"default")", R"("function_call":"default")", R"("service_tier":"none")",
        R"("tool_choice":"none\" or \"auto")", R"("tool_choice":"")", R"("tools":{})", R"("functions":{})",
        R"("metadata":[])", R"("logit_bias":[])"})
    BOOST_TEST(refused(member), member);
  for (const char* member :
       {R"("tool_choice":"auto")", R"("service_tier":"default")", R"("tools":[])", R"("metadata":{})"})
    BOOST_TEST(!refused(member), member);
}

BOOST_AUTO_TEST_CASE(functions_that_are_missing_are_refused_by_name) {
  for (const char* field :
       {R"("suffix":"x")", R"("response_format":{"type":"json_object"})", R"("prompt_logprobs":1)"}) {
    const auto r = completions(std::string(",") + field);
    BOOST_REQUIRE(!r);
    BOOST_TEST((r.error().code == errc::unsupported));
    BOOST_TEST(std::string(field).find(std::string("\"") + r.error().param + "\"") == 0U);
  }
  BOOST_TEST((chat(R"(,"tools":[{"type":"function"}])").error().code == errc::unsupported));
  BOOST_TEST(chat(R"(,"tools":[],"tool_choice":"auto","response_format":{"type":"text"})").has_value());
}

BOOST_AUTO_TEST_CASE(another_model_is_not_found) {
  const auto r = completions(R"(,"model":"gpt-4")");
  BOOST_REQUIRE(!r);
  BOOST_TEST((r.error().code == errc::not_found));
  BOOST_TEST(r.error().param == "model");
  BOOST_TEST(
      completions(std::string(",\"model\":\"") + std::string(1 << 19, 'm') + "\"").error().message.size() <
      300U);
}

BOOST_AUTO_TEST_CASE(row_52_stop_lists_are_capped) {
  const auto list = [](int n, std::string_view one) {
    std::string out = "[";
    for (int i = 0; i < n; ++i) out.append(i > 0 ? "," : "").append(one);
    return out + "]";
  };
  BOOST_TEST(completions(std::string(",\"stop\":") + list(16, "\"x\"")).value().what.stop.size() == 16U);
  BOOST_TEST(completions(R"(,"stop":"x")").value().what.stop.size() == 1U);
  BOOST_TEST(completions(R"(,"stop":[])").value().what.stop.empty());
  BOOST_TEST(refused(completions(std::string(",\"stop\":") + list(17, "\"x\""))) == "stop");
  BOOST_TEST(refused(completions(std::string(",\"stop\":") + list(10000, "\"x\""))) == "stop");
  BOOST_TEST(refused(completions(std::string(",\"stop\":\"") + std::string(1025, 'x') + "\"")) == "stop");
  BOOST_TEST(refused(completions(R"(,"stop":"")")) == "stop");
  BOOST_TEST(refused(completions(R"(,"stop":[5])")) == "stop");
  BOOST_TEST(refused(completions(std::string(",\"stop_token_ids\":") + list(65, "1"))) == "stop_token_ids");
  BOOST_TEST(refused(completions(R"(,"stop_token_ids":[100])")) == "stop_token_ids");
}

BOOST_AUTO_TEST_CASE(rows_44_to_47_hostile_json_is_refused_with_a_place) {
  const std::string bad[] = {
      "",
      " ",
      "{",
      "[]",
      "null",
      "5",
      "{\"prompt\":\"a\"} x",
      "{\"prompt\":\"a\",}",
      "{'prompt':'a'}",
      "\xef\xbb\xbf{\"prompt\":\"a\"}",
      "{\"prompt\":\"\xff\"}",
      "{\"prompt\":\"\\ud800\"}",
      "{\"prompt\":\"\\udc00\\ud800\"}",
      "{\"prompt\":NaN}",
      "{\"prompt\":Infinity}",
      "{\"prompt\":\"a\nb\"}",
      "{\"prompt\":01}",
      "{\"prompt\":\"a\"/**/}",
      "\0{}"s,
      std::string(100000, '['),
      "{\"prompt\":" + std::string(65, '[') + std::string(65, ']') + "}",
  };
  for (const std::string& body : bad) {
    const auto r = parse_openai_body(openai_api::completions, body, rules);
    BOOST_TEST_CONTEXT(body.substr(0, 60)) {
      BOOST_REQUIRE(!r);
      BOOST_TEST((r.error().code == errc::bad_request));
      BOOST_TEST(!r.error().message.empty());
    }
  }
  BOOST_TEST(parse_bounded_json(std::string(64, '[') + std::string(64, ']')).has_value());
  BOOST_TEST(parse_bounded_json(R"({"a":"\u0000"})").has_value());
  BOOST_TEST(refused(completions(R"(,"temperature":1e999)")) == "temperature");
}

BOOST_AUTO_TEST_CASE(row_45_a_great_many_keys_cost_linear_work) {
  std::string body = "{";
  for (int i = 0; i < 60000; ++i) body.append(i > 0 ? ",\"" : "\"").append(std::to_string(i)).append("\":0");
  const auto parsed = parse_bounded_json(body + ",\"7\":0}");
  BOOST_REQUIRE(parsed);
  BOOST_TEST(parsed->repeated_keys == std::vector<std::string>{"7"}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
