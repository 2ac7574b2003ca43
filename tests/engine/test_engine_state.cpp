// SPDX-License-Identifier: Apache-2.0
// What requests meet in an engine that works.
#include "engine_fixture.hpp"

using namespace troupe;
using test::answer;

BOOST_FIXTURE_TEST_SUITE(engine_over_its_actors, test::engine_fixture)

BOOST_AUTO_TEST_CASE(one_request_streams_its_tokens_and_ends_once) {
  start();
  stream s = engine->submit(ask({1, 2, 3}, 20));
  auto a = std::make_shared<answer>();
  collect(s, a);
  run_until([&] { return a->terminal > 0; });
  BOOST_REQUIRE(a->done);
  BOOST_TEST(a->accepted == 1U);
  BOOST_TEST(a->ids == test::answer_alone({1, 2, 3}, 20), boost::test_tools::per_element());
  BOOST_TEST(a->text.size() == 20U);
  BOOST_TEST((a->done->reason == finish_reason::length));
  BOOST_TEST(a->done->usage.prompt_tokens == 3U);
  BOOST_TEST(a->done->usage.completion_tokens == 20U);
  BOOST_TEST(a->done->system_fingerprint == "fake-1");
}

BOOST_AUTO_TEST_CASE(many_requests_share_steps_and_get_the_tokens_they_get_alone) {
  options.max_queue = 64;
  start();
  std::vector<stream> streams;
  std::vector<std::shared_ptr<answer>> answers;
  streams.reserve(30);
  for (std::int32_t i = 0; i < 30; ++i) {
    std::vector<std::int32_t> prompt;
    for (std::int32_t j = 0; j <= i * 3; ++j) prompt.push_back((i * 7 + j) % 90);
    streams.push_back(engine->submit(ask(prompt, 12)));
    answers.push_back(std::make_shared<answer>());
    collect(streams.back(), answers.back());
  }
  run_until([&] { return std::ranges::all_of(answers, [](auto& a) { return a->terminal > 0; }); });
  for (std::int32_t i = 0; i < 30; ++i) {
    std::vector<std::int32_t> prompt;
    for (std::int32_t j = 0; j <= i * 3; ++j) prompt.push_back((i * 7 + j) % 90);
    BOOST_REQUIRE(answers[static_cast<std::size_t>(i)]->done);
    BOOST_TEST(
        answers[static_cast<std::size_t>(i)]->ids == test::answer_alone(prompt, 12),
        boost::test_tools::per_element());
  }
  BOOST_TEST(host->backend_of_test->most_sequences > 4U);
  const engine_stats stats = engine->stats();
  BOOST_TEST(stats.kv_free + stats.kv_cached == stats.kv_total);
  BOOST_TEST(stats.finished_length == 30U);
}

BOOST_AUTO_TEST_CASE(a_cancelled_request_frees_its_blocks_and_ends_as_cancelled) {
  start();
  stream s = engine->submit(ask({1, 2, 3}, 200));
  auto a = std::make_shared<answer>();
  collect(s, a);
  run_until([&] { return a->ids.size() > 3; });
  s.cancel();
  s.cancel();
  run_until([&] { return a->terminal > 0; });
  BOOST_REQUIRE(a->done);
  BOOST_TEST((a->done->reason == finish_reason::cancelled));
  run_until([&] { return engine->stats().kv_leased + engine->stats().kv_limbo == 0; });
}

BOOST_AUTO_TEST_CASE(dropping_the_stream_cancels_even_before_the_engine_saw_it) {
  start();
  { stream s = engine->submit(ask({1, 2, 3}, 200)); }
  run_until([&] { return engine->stats().cancelled + engine->stats().failed.size() == 1U; });
  BOOST_TEST(engine->stats().kv_leased + engine->stats().kv_limbo == 0);
}

BOOST_AUTO_TEST_CASE(an_unread_stream_pauses_its_request_and_reading_resumes_it) {
  options.stream_credit = 4;
  start();
  stream s = engine->submit(ask({5}, 40));
  run_until([&] { return engine->stats().paused == 1; });
  auto a = std::make_shared<answer>();
  collect(s, a);
  run_until([&] { return a->terminal > 0; });
  BOOST_TEST(a->ids == test::answer_alone({5}, 40), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(bad_requests_and_prompts_that_never_fit_are_refused_with_their_field) {
  start();
  request bad = ask({1}, 5);
  bad.sampling.temperature = 9;
  stream first = engine->submit(std::move(bad));
  stream second = engine->submit(ask(std::vector<std::int32_t>(300, 1), 5));
  auto a = std::make_shared<answer>(), b = std::make_shared<answer>();
  collect(first, a);
  collect(second, b);
  run_until([&] { return a->terminal > 0 && b->terminal > 0; });
  BOOST_REQUIRE(a->failed);
  BOOST_TEST(a->failed->param == "temperature");
  BOOST_REQUIRE(b->failed);
  BOOST_TEST((b->failed->code == errc::context_length_exceeded));
}

BOOST_AUTO_TEST_CASE(a_request_that_waits_too_long_is_refused_without_having_been_accepted) {
  options.max_batch = 1;
  options.queue_timeout_ms = 20;
  start();
  host->backend_of_test->held = true;
  stream running = engine->submit(ask({1}, 2));
  auto first = std::make_shared<answer>();
  collect(running, first);
  run_until([&] { return first->accepted > 0; });
  stream waiting = engine->submit(ask({2}, 2));
  auto second = std::make_shared<answer>();
  collect(waiting, second);
  run_until([&] { return second->terminal > 0; });
  BOOST_REQUIRE(second->failed);
  BOOST_TEST((second->failed->code == errc::queue_timeout));
  BOOST_TEST(second->accepted == 0U);
  BOOST_TEST(first->terminal == 0U);
}

BOOST_AUTO_TEST_CASE(before_the_start_requests_are_told_that_the_model_loads) {
  engine = std::make_shared<detail::engine_state>(io.get_executor(), options, environment());
  stream s = engine->submit(ask({1}, 5));
  auto a = std::make_shared<answer>();
  collect(s, a);
  run_until([&] { return a->terminal > 0; });
  BOOST_REQUIRE(a->failed);
  BOOST_TEST((a->failed->code == errc::model_loading));
}

BOOST_AUTO_TEST_CASE(a_failed_step_is_repeated_and_a_row_that_is_not_finite_fails_alone) {
  start();
  host->backend_of_test->fail_steps = 1;
  host->backend_of_test->poison = 42;
  stream good = engine->submit(ask({1, 2}, 10));
  stream poisoned = engine->submit(ask({42}, 10));
  auto a = std::make_shared<answer>(), b = std::make_shared<answer>();
  collect(good, a);
  collect(poisoned, b);
  run_until([&] { return a->terminal > 0 && b->terminal > 0; });
  BOOST_TEST(a->ids == test::answer_alone({1, 2}, 10), boost::test_tools::per_element());
  BOOST_REQUIRE(b->failed);
  BOOST_TEST((b->failed->code == errc::not_finite));
}

BOOST_AUTO_TEST_CASE(a_prompt_that_can_never_fit_is_refused_without_tokenising_all_of_it) {
  start();
  request long_text;
  long_text.prompt = std::string(5000, 'a');
  const auto a = finish(std::move(long_text));
  BOOST_REQUIRE(a->failed);
  BOOST_TEST((a->failed->code == errc::context_length_exceeded));
  BOOST_TEST(a->failed->message.find("more than 255 tokens") != std::string::npos);
  BOOST_TEST(a->failed->param == "prompt");
}

BOOST_AUTO_TEST_CASE(ids_that_can_never_fit_are_refused_at_the_door) {
  start();
  const auto a = finish(ask(std::vector<std::int32_t>(256, 1), 5));
  BOOST_REQUIRE(a->failed);
  BOOST_TEST((a->failed->code == errc::context_length_exceeded));
  BOOST_TEST(host->encoded == 0U);
}

BOOST_AUTO_TEST_CASE(text_that_waits_to_be_tokenised_is_bounded) {
  slow_text = true;
  start();
  const auto text_of = [&](std::size_t bytes) {
    request r;
    r.prompt = std::string(bytes, 'a');
    return r;
  };
  stream first = engine->submit(text_of(detail::prompt_backlog_bytes - 100));
  turn();
  const auto refused = finish(text_of(101));
  BOOST_REQUIRE(refused->failed);
  BOOST_TEST((refused->failed->code == errc::queue_full));
  stream second = engine->submit(text_of(100));
  auto a = std::make_shared<answer>();
  collect(second, a);
  turn();
  BOOST_TEST(a->terminal == 0U);
  turn_text();
  const auto later = std::make_shared<answer>();
  stream third = engine->submit(text_of(101)); // the first two are tokenised
  collect(third, later);
  turn();
  turn_text();
  run_until([&] { return a->terminal > 0 && later->terminal > 0; });
  BOOST_TEST(later->done.has_value());
}

BOOST_AUTO_TEST_CASE(no_memory_for_tokenising_fails_the_request_alone) {
  start();
  host->encode_throws = true;
  const auto a = finish(ask({1}, 5));
  BOOST_REQUIRE(a->failed);
  BOOST_TEST((a->failed->code == errc::no_memory));
  host->encode_throws = false;
  BOOST_TEST(finish(ask({1}, 5))->done.has_value());
}

BOOST_AUTO_TEST_CASE(every_request_is_counted_once_in_and_once_out) {
  start();
  (void)finish(ask({1, 2}, 5));
  (void)finish(ask(std::vector<std::int32_t>(256, 1), 5));
  request bad = ask({1}, 5);
  bad.priority = 10;
  (void)finish(std::move(bad));
  const engine_stats stats = engine->stats();
  BOOST_TEST(stats.submitted == 3U);
  BOOST_TEST(stats.finished_length == 1U);
  BOOST_REQUIRE(stats.failed.size() == 2U);
  BOOST_TEST(stats.failed[0].second + stats.failed[1].second == 2U);
}

BOOST_AUTO_TEST_SUITE_END()
