// SPDX-License-Identifier: Apache-2.0
#include "server/wire_objects.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::server;

namespace {
const openai_rules rules{"m", 100, false};
}

BOOST_AUTO_TEST_SUITE(wire_objects)

BOOST_AUTO_TEST_CASE(a_submit_survives_the_way_there) {
  const std::string text =
      submit_object("a1", openai_api::completions, R"({"prompt":"hi","max_tokens":3})", 5);
  client_object o = parse_client_object(text, rules);
  BOOST_REQUIRE_MESSAGE(!o.problem, (o.problem ? o.problem->message : std::string()));
  BOOST_TEST((o.kind == client_kind::submit));
  BOOST_TEST(o.id == "a1");
  BOOST_TEST(std::get<std::string>(o.body.what.prompt) == "hi");
  BOOST_TEST(o.credit.value() == 5U);
  o = parse_client_object(
      R"({"type":"submit","id":"x","api":"chat","priority":9,"deadline_ms":10,"resume_ms":0,
          "body":{"messages":[{"role":"user","content":"q"}],"priority":1}})",
      rules);
  BOOST_REQUIRE(!o.problem);
  BOOST_TEST(o.body.what.priority == 9U);
  BOOST_TEST(o.body.what.deadline_ms == 10U);
}

BOOST_AUTO_TEST_CASE(the_small_objects_survive_the_way_there) {
  BOOST_TEST((parse_client_object(cancel_object("a"), rules).kind == client_kind::cancel));
  const client_object credit = parse_client_object(credit_object("a", 7), rules);
  BOOST_TEST((credit.kind == client_kind::credit));
  BOOST_TEST(credit.credit.value() == 7U);
  BOOST_TEST(parse_client_object(ping_object("p"), rules).id == "p");
  BOOST_TEST(!parse_client_object(ping_object(""), rules).problem);
  BOOST_TEST(!parse_client_object(R"({"type":"hello","version":1})", rules).problem);
}

BOOST_AUTO_TEST_CASE(faults_are_named_and_keep_the_id_they_belong_to) {
  struct fault {
    const char* text;
    const char* id;
    const char* param;
  };
  const fault faults[] = {
      {"not json", "", ""},
      {"[]", "", ""},
      {"{}", "", "type"},
      {R"({"type":"dance","id":"a"})", "", "type"},
      {R"({"type":"resume","id":"a"})", "", "type"},
      {R"({"type":5})", "", "type"},
      {R"({"type":"submit"})", "", "id"},
      {R"({"type":"submit","id":""})", "", "id"},
      {R"({"type":"submit","id":7})", "", "id"},
      {R"({"type":"submit","id":"a\u0000"})", "", "id"},
      {R"({"type":"submit","id":"a"})", "a", "api"},
      {R"({"type":"submit","id":"a","api":"images","body":{}})", "a", "api"},
      {R"({"type":"submit","id":"a","api":"chat"})", "a", "body"},
      {R"({"type":"submit","id":"a","api":"completions","body":{"prompt":"x","top_p":7}})", "a", "top_p"},
      {R"({"type":"submit","id":"a","api":"completions","body":{"prompt":"x"},"priority":10})", "a",
       "priority"},
      {R"({"type":"submit","id":"a","api":"completions","body":{"prompt":"x"},"deadline_ms":0})", "a",
       "deadline_ms"},
      {R"({"type":"submit","id":"a","api":"completions","body":{"prompt":"x"},"credit":0})", "a", "credit"},
      {R"({"type":"submit","id":"a","api":"completions","body":{"prompt":"x"},"resume_ms":5})", "a",
       "resume_ms"},
      {R"({"type":"submit","id":"a","api":"completions","body":{"prompt":"x"},"x":5})", "a", "x"},
      {R"({"type":"submit","id":"a","api":"completions","body":{"prompt":"x","prompt":"y"}})", "a",
       "body.prompt"},
      {R"({"type":"cancel"})", "", "id"},
      {R"({"type":"cancel","id":"a","n":1})", "a", "n"},
      {R"({"type":"credit","id":"a"})", "a", "n"},
      {R"({"type":"credit","id":"a","n":-1})", "a", "n"},
      {R"({"type":"credit","id":"a","n":1048577})", "a", "n"},
      {R"({"type":"hello","version":2})", "", "version"},
  };
  for (const fault& f : faults) {
    const client_object o = parse_client_object(f.text, rules);
    BOOST_TEST_CONTEXT(f.text) {
      BOOST_REQUIRE(o.problem.has_value());
      BOOST_TEST(o.id == f.id);
      BOOST_TEST(o.problem->param == f.param);
    }
  }
  BOOST_TEST(
      parse_client_object(std::string(R"({"type":"ping","id":")") + std::string(65, 'a') + "\"}", rules)
          .problem.has_value());
}

BOOST_AUTO_TEST_CASE(null_counts_as_absent_and_unknown_members_pass_when_switched_off) {
  const std::string submit = R"({"type":"submit","id":"a","api":"completions","body":{"prompt":"hi"},)";
  const auto absent = parse_client_object(
      submit + R"("credit":null,"priority":null,"deadline_ms":null,"resume_ms":null})", {"m", 100, false});
  BOOST_TEST(!absent.problem);
  BOOST_TEST(!absent.credit);
  BOOST_TEST(!parse_client_object(R"({"type":"ping","id":null})", {"m", 100, false}).problem);
  BOOST_TEST(parse_client_object(submit + R"("x":1})", {"m", 100, false}).problem.has_value());
  BOOST_TEST(!parse_client_object(submit + R"("x":1})", {"m", 100, true}).problem);
}

BOOST_AUTO_TEST_CASE(a_body_is_bounded_on_the_way_out_as_on_the_way_in) {
  const auto nested = [](int depth) {
    return R"({"prompt":)" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  BOOST_CHECK_NO_THROW(submit_object("a", openai_api::completions, nested(50)));
  BOOST_CHECK_THROW(submit_object("a", openai_api::completions, nested(100)), failure);
}

BOOST_AUTO_TEST_CASE(server_objects_survive_the_way_back) {
  server_object o = parse_server_object(accepted_object("a", {{1, 2}, "m"}, true)).value();
  BOOST_TEST((o.kind == server_kind::accepted));
  BOOST_TEST(o.token_ids.size() == 2U);
  BOOST_TEST(o.model == "m");
  o = parse_server_object(token_object("a", {3, 1, "t\n\"", {7, 8}, {{7, -1.0F, "\xff"}}, {}})).value();
  BOOST_TEST((o.kind == server_kind::token));
  BOOST_TEST(o.seq == 3U);
  BOOST_TEST(o.index == 1U);
  BOOST_TEST(o.text == "t\n\"");
  BOOST_TEST(o.token_ids.at(1) == 8);
  o = parse_server_object(done_object("a", {4, finish_reason::cancelled, {5, 6, 1}, "m", "fp"})).value();
  BOOST_TEST((o.kind == server_kind::done));
  BOOST_TEST(o.finish_reason == "cancelled");
  BOOST_TEST(o.usage.completion_tokens == 6U);
  o = parse_server_object(error_object("a", {errc::queue_full, "no", "", 250})).value();
  BOOST_TEST((o.kind == server_kind::error));
  BOOST_TEST(o.status == 429);
  BOOST_TEST(o.code == "queue_full");
  BOOST_TEST(o.retry_after_ms == 250U);
  BOOST_TEST(
      error_object("a", {errc::queue_full, "no", "", 250, 7}).find(R"("queue_length":7)") !=
      std::string::npos);
  o = parse_server_object(error_object("", 409, "duplicate_id", "taken")).value();
  BOOST_TEST(o.id.empty());
  BOOST_TEST(o.status == 409);
  BOOST_TEST(parse_server_object(goaway_object("draining")).value().code == "draining");
  BOOST_TEST(parse_server_object(notice_object("a", "paused")).value().code == "paused");
  BOOST_TEST(parse_server_object(pong_object("p")).value().id == "p");
  BOOST_TEST(parse_server_object(hello_object("m")).value().model == "m");
  BOOST_TEST(!parse_server_object(R"({"type":"dance"})"));
}

BOOST_AUTO_TEST_CASE(several_choices_and_prompts_are_told_apart) {
  namespace json = boost::json;
  accepted_event accepted{{1, 2}, "m"};
  accepted.further_prompts = {{3}, {4, 5, 6}};
  json::value v = json::parse(accepted_object("a", accepted, true));
  BOOST_TEST(v.at("prompt_tokens") == 6);
  BOOST_REQUIRE_EQUAL(v.at("prompt_token_ids").as_array().size(), 3U);
  BOOST_TEST(v.at("prompt_token_ids").at(2).at(2) == 6);
  token_event echo{0, 2, "p", {1}, {{1, no_logprob, "p"}}, {}};
  echo.echo = true;
  v = json::parse(token_object("a", echo));
  BOOST_TEST(v.at("echo").as_bool());
  BOOST_TEST(v.at("index") == 2);
  BOOST_TEST(v.at("logprobs").at(0).at("logprob").is_null());
  BOOST_TEST(!json::parse(token_object("a", {0, 0, "t", {1}, {}, {}})).as_object().contains("echo"));
  done_event done{4, finish_reason::stop, {5, 6, 1}, "m", "fp", {finish_reason::stop, finish_reason::length}};
  v = json::parse(done_object("a", done));
  BOOST_TEST(v.at("finish_reason") == "stop");
  BOOST_TEST(v.at("choices").at(1).at("index") == 1);
  BOOST_TEST(v.at("choices").at(1).at("finish_reason") == "length");
  done.reasons.clear();
  BOOST_TEST(!json::parse(done_object("a", done)).as_object().contains("choices"));
}

BOOST_AUTO_TEST_CASE(no_object_holds_a_line_end) {
  for (const std::string& line :
       {accepted_object("a\n", {{1}, "m\n"}, true), token_object("a", {0, 0, "x\ny\r", {}, {}, {}}),
        error_object("a", {errc::internal, "l1\nl2", "p\n", 0})})
    BOOST_TEST(line.find_first_of("\r\n") == std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
