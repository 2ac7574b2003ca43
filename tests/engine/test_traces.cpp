// SPDX-License-Identifier: Apache-2.0
// Which requests leave a trace, and what it says of their ends.
#include "engine_fixture.hpp"

#include "engine/trace_file.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <filesystem>

using namespace troupe;
using namespace troupe::test;

namespace {

struct trace_fixture : engine_fixture {
  std::string dir = "/tmp/troupe-traces-XXXXXX";

  trace_fixture() {
    BOOST_REQUIRE(mkdtemp(dir.data()) != nullptr);
    options.trace_dir = dir;
  }
  ~trace_fixture() { std::filesystem::remove_all(dir); }

  std::vector<detail::request_trace> traces() {
    turn();
    std::vector<detail::request_trace> all;
    for (const auto& file : std::filesystem::directory_iterator(dir)) {
      auto read = detail::read_trace(file.path().string());
      BOOST_REQUIRE_MESSAGE(read, read.error().message);
      all.push_back(std::move(*read));
    }
    return all;
  }
  detail::request_trace only_trace() {
    auto all = traces();
    BOOST_REQUIRE_EQUAL(all.size(), 1U);
    return std::move(all.front());
  }
  static std::vector<std::int32_t> prompt_of(const detail::request_trace& trace) {
    return std::get<std::vector<std::int32_t>>(trace.asked.prompt);
  }
};

} // namespace

BOOST_FIXTURE_TEST_SUITE(traces_of_requests, trace_fixture)

BOOST_AUTO_TEST_CASE(a_request_that_draws_no_token_leaves_its_trace) {
  start();
  const auto a = finish(ask({1, 2}, 0));
  BOOST_REQUIRE(a->done);
  const auto trace = only_trace();
  BOOST_TEST(prompt_of(trace) == (std::vector<std::int32_t>{1, 2}), boost::test_tools::per_element());
  BOOST_TEST((trace.asked.max_tokens == 0U));
  BOOST_TEST((trace.reason == finish_reason::length));
  BOOST_TEST(trace.token_ids.empty());
}

BOOST_AUTO_TEST_CASE(a_request_that_fails_at_its_first_row_leaves_its_prompt_and_its_error) {
  start();
  host->backend_of_test->poison = 42;
  request what;
  what.prompt = std::string("*"); // 42, known as an id only once it is tokenised
  what.max_tokens = 5;
  const auto a = finish(std::move(what));
  BOOST_REQUIRE(a->failed);
  const auto trace = only_trace();
  BOOST_TEST(prompt_of(trace) == std::vector<std::int32_t>{42}, boost::test_tools::per_element());
  BOOST_REQUIRE(trace.failed);
  BOOST_TEST(trace.failed->code == code_name(a->failed->code));
  BOOST_TEST(trace.failed->message == a->failed->message);
}

BOOST_AUTO_TEST_CASE(a_request_that_fails_on_its_way_leaves_the_tokens_before_it) {
  start();
  const auto alone = answer_alone({1, 2}, 4);
  host->backend_of_test->poison = alone[2];
  const auto a = finish(ask({1, 2}, 10));
  BOOST_REQUIRE(a->failed);
  const auto trace = only_trace();
  BOOST_TEST(
      trace.token_ids == std::vector<std::int32_t>(alone.begin(), alone.begin() + 3),
      boost::test_tools::per_element());
  BOOST_REQUIRE(trace.failed);
  BOOST_TEST(trace.failed->code == "not_finite");
}

BOOST_AUTO_TEST_CASE(a_crash_of_the_engine_leaves_the_trace_of_the_one_it_ended) {
  start();
  host->backend_of_test->crashes_over = 2;
  const auto a = finish(ask({1, 2}, 5));
  BOOST_REQUIRE(a->failed);
  const auto trace = only_trace();
  BOOST_REQUIRE(trace.failed);
  BOOST_TEST(trace.failed->code == "poison_request");
}

BOOST_AUTO_TEST_CASE(the_trace_of_one_that_went_on_after_a_crash_is_whole) {
  start();
  stream s = engine->submit(ask({1, 2}, 9));
  auto a = std::make_shared<answer>();
  collect(s, a);
  run_until([&] { return a->ids.size() == 4; });
  host->backend_of_test->throw_steps = 1;
  run_until([&] { return a->terminal > 0; });
  BOOST_TEST(engine->stats().restarts == 1U);
  BOOST_TEST(only_trace().token_ids == answer_alone({1, 2}, 9), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_cancelled_request_is_no_failure) {
  start();
  host->backend_of_test->held = true;
  stream s = engine->submit(ask({1, 2}, 5));
  auto a = std::make_shared<answer>();
  collect(s, a);
  run_until([&] { return host->backend_of_test->steps > 0; });
  s.cancel();
  host->backend_of_test->held = false;
  host->backend_of_test->release();
  run_until([&] { return a->terminal > 0; });
  const auto trace = only_trace();
  BOOST_TEST(!trace.failed);
  BOOST_TEST((trace.reason == finish_reason::cancelled));
}

BOOST_AUTO_TEST_CASE(what_is_refused_or_cannot_be_tokenised_leaves_none) {
  start();
  BOOST_TEST(finish(ask(std::vector<std::int32_t>(256, 1), 5))->failed.has_value()); // at the door
  request too_long;
  too_long.prompt = std::string(5000, 'a');
  BOOST_TEST(finish(std::move(too_long))->failed.has_value());
  BOOST_TEST(traces().empty());
}

BOOST_AUTO_TEST_SUITE_END()
