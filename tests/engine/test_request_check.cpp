// SPDX-License-Identifier: Apache-2.0
#include "engine/request_check.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>
#include <limits>

using namespace troupe;

namespace {

constexpr std::uint32_t vocabulary = 100;

request text_request() {
  request r;
  r.prompt = std::string("hello");
  return r;
}

struct bad_case {
  const char* param;
  std::function<void(request&)> change;
};

} // namespace

BOOST_AUTO_TEST_SUITE(request_check)

BOOST_AUTO_TEST_CASE(the_defaults_pass) {
  BOOST_TEST(detail::check_request(text_request(), vocabulary).has_value());
}

BOOST_AUTO_TEST_CASE(the_edges_of_every_range_pass) {
  request r = text_request();
  r.sampling = {0, 0, 1, 1, 0, 2, -2, 2, 0, {{0, -100}, {99, 100}}};
  r.n = 4;
  r.best_of = 0;
  r.further_prompts.assign(31, std::string("more"));
  r.max_tokens = 1;
  r.min_tokens = 1;
  r.stop.assign(detail::max_stop_strings, std::string(detail::max_stop_bytes, 'x'));
  r.stop_token_ids.assign(detail::max_stop_ids, 99);
  r.top_logprobs = detail::max_top_logprobs;
  r.priority = 9;
  r.tenant.assign(detail::max_tenant_bytes, 't');
  BOOST_TEST(detail::check_request(r, vocabulary).has_value());
}

BOOST_AUTO_TEST_CASE(every_value_out_of_range_is_refused_by_name) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const bad_case cases[] = {
      {"temperature", [](request& r) { r.sampling.temperature = -0.1F; }},
      {"temperature", [](request& r) { r.sampling.temperature = 2.1F; }},
      {"temperature", [nan](request& r) { r.sampling.temperature = nan; }},
      {"top_p", [](request& r) { r.sampling.top_p = 0; }},
      {"top_p", [](request& r) { r.sampling.top_p = 1.01F; }},
      {"min_p", [](request& r) { r.sampling.min_p = -0.1F; }},
      {"repetition_penalty", [](request& r) { r.sampling.repetition_penalty = 0; }},
      {"presence_penalty", [](request& r) { r.sampling.presence_penalty = 2.5F; }},
      {"frequency_penalty",
       [](request& r) { r.sampling.frequency_penalty = -std::numeric_limits<float>::infinity(); }},
      {"typical_p", [](request& r) { r.sampling.typical_p = 0; }},
      {"typical_p", [](request& r) { r.sampling.typical_p = 1.5F; }},
      {"logit_bias",
       [](request& r) {
         r.sampling.logit_bias = {{100, 1}};
       }},
      {"logit_bias",
       [](request& r) {
         r.sampling.logit_bias = {{-1, 1}};
       }},
      {"logit_bias",
       [](request& r) {
         r.sampling.logit_bias = {{1, 100.5F}};
       }},
      {"logit_bias",
       [nan](request& r) {
         r.sampling.logit_bias = {{1, nan}};
       }},
      {"logit_bias",
       [](request& r) {
         r.sampling.logit_bias = {{1, 1}, {2, 1}, {1, 2}};
       }},
      {"logit_bias",
       [](request& r) {
         r.sampling.logit_bias.assign(detail::max_logit_biases + 1, {1, 1});
       }},
      {"n", [](request& r) { r.n = 0; }},
      {"n", [](request& r) { r.n = detail::max_choices + 1; }},
      {"best_of", [](request& r) { r.n = 3, r.best_of = 2; }},
      {"best_of", [](request& r) { r.best_of = detail::max_choices + 1; }},
      {"best_of", [](request& r) { r.best_of = 9, r.further_prompts.assign(1, std::string("x")); }},
      {"prompt", [](request& r) { r.n = 4, r.further_prompts.assign(32, std::string("x")); }},
      {"prompt", [](request& r) { r.further_prompts.assign(1, std::string()); }},
      {"prompt", [](request& r) { r.further_prompts.assign(1, std::vector<std::int32_t>{100}); }},
      {"min_tokens", [](request& r) { r.max_tokens = 0, r.min_tokens = 1; }},
      {"min_tokens", [](request& r) { r.max_tokens = 2, r.min_tokens = 3; }},
      {"stop", [](request& r) { r.stop.assign(detail::max_stop_strings + 1, "x"); }},
      {"stop", [](request& r) { r.stop = {""}; }},
      {"stop", [](request& r) { r.stop = {std::string(detail::max_stop_bytes + 1, 'x')}; }},
      {"stop_token_ids", [](request& r) { r.stop_token_ids = {-1}; }},
      {"stop_token_ids", [](request& r) { r.stop_token_ids.assign(detail::max_stop_ids + 1, 1); }},
      {"top_logprobs", [](request& r) { r.top_logprobs = detail::max_top_logprobs + 1; }},
      {"priority", [](request& r) { r.priority = 10; }},
      {"deadline_ms", [](request& r) { r.deadline_ms = detail::max_deadline_ms + 1; }},
      {"deadline_ms", [](request& r) { r.deadline_ms = std::numeric_limits<std::uint64_t>::max(); }},
      {"user", [](request& r) { r.tenant.assign(detail::max_tenant_bytes + 1, 't'); }},
      {"prompt", [](request& r) { r.prompt = std::string(); }},
      {"prompt", [](request& r) { r.prompt = std::vector<std::int32_t>(); }},
      {"prompt",
       [](request& r) {
         r.prompt = std::vector<std::int32_t>{5, 100};
       }},
      {"prompt", [](request& r) { r.prompt = std::vector<std::int32_t>{-1}; }},
      {"messages", [](request& r) { r.prompt = chat_prompt{}; }},
  };
  for (const bad_case& c : cases) {
    request r = text_request();
    c.change(r);
    const auto verdict = detail::check_request(r, vocabulary);
    BOOST_REQUIRE_MESSAGE(!verdict, c.param);
    BOOST_TEST(verdict.error().param == c.param);
    BOOST_TEST((verdict.error().code == errc::bad_request));
    BOOST_TEST(!verdict.error().message.empty());
  }
}

BOOST_AUTO_TEST_CASE(the_door_estimate_counts_every_form_of_prompt) {
  BOOST_TEST(detail::prompt_bytes(std::string("four")) == 4U);
  BOOST_TEST(detail::prompt_bytes(std::vector<std::int32_t>{1, 2, 3}) == 12U);
  BOOST_TEST(detail::prompt_bytes(chat_prompt{{{"user", "hi"}}, true}) == 22U);
}

BOOST_AUTO_TEST_CASE(a_deadline_beyond_what_clocks_hold_is_refused) {
  request r;
  r.prompt = std::string("x");
  r.deadline_ms = detail::max_deadline_ms;
  BOOST_TEST(detail::check_request(r, 10).has_value());
  r.deadline_ms = ~std::uint64_t{0};
  const auto checked = detail::check_request(r, 10);
  BOOST_REQUIRE(!checked);
  BOOST_TEST(checked.error().param == "deadline_ms");
}

BOOST_AUTO_TEST_SUITE_END()
