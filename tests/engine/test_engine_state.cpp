// SPDX-License-Identifier: Apache-2.0
// The engine over its real actors, with a fake model and the test's own executor.
#include "fake_model.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/test/unit_test.hpp>

using namespace troupe;
namespace asio = boost::asio;

namespace {

struct answer {
  std::vector<std::int32_t> ids;
  std::string text;
  std::uint32_t accepted = 0, terminal = 0;
  std::optional<done_event> done;
  std::optional<error> failed;
};

struct fixture {
  asio::io_context io;
  std::shared_ptr<test::fake_host> host = std::make_shared<test::fake_host>(io.get_executor(), 64);
  engine_options options;
  std::shared_ptr<detail::engine_state> engine;

  fixture() {
    options.max_batch = 8;
    options.max_queue = 16;
    options.max_step_tokens = 32;
  }
  ~fixture() {
    if (engine) {
      engine->abandon();
      io.restart();
      io.poll();
    }
  }

  detail::engine_environment environment() {
    auto around = detail::real_environment(io.get_executor());
    around.background = io.get_executor();
    around.load = [h = host](const engine_options&) -> detail::host_result {
      return std::shared_ptr<const detail::model_host>(h);
    };
    return around;
  }

  void start() {
    engine = std::make_shared<detail::engine_state>(io.get_executor(), options, environment());
    std::optional<result<void>> outcome;
    engine->start([&](result<void> r) { outcome = std::move(r); });
    run_until([&] { return outcome.has_value(); });
    BOOST_REQUIRE(outcome->has_value());
  }

  /// Runs the executor until `condition`; a condition that can no longer come true fails the test instead of
  /// hanging.
  template<class Condition>
  void run_until(Condition condition) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    io.restart();
    while (!condition() && std::chrono::steady_clock::now() < limit)
      if (io.run_one_for(std::chrono::milliseconds(100)) == 0) io.restart();
    BOOST_REQUIRE(condition());
  }

  void collect(stream& s, std::shared_ptr<answer> into) {
    s.async_read([this, &s, into](boost::system::error_code ec, stream_event event) {
      BOOST_TEST(!ec);
      if (std::holds_alternative<accepted_event>(event)) ++into->accepted;
      if (const auto* t = std::get_if<token_event>(&event)) {
        into->ids.insert(into->ids.end(), t->token_ids.begin(), t->token_ids.end());
        into->text += t->text;
      }
      if (const auto* d = std::get_if<done_event>(&event)) into->done = *d;
      if (const auto* f = std::get_if<failed_event>(&event)) into->failed = f->why;
      if (detail::is_terminal(event))
        ++into->terminal;
      else
        collect(s, into);
    });
  }

  request ask(std::vector<std::int32_t> prompt, std::uint32_t tokens) {
    request r;
    r.prompt = std::move(prompt);
    r.max_tokens = tokens;
    return r;
  }
};

} // namespace

BOOST_FIXTURE_TEST_SUITE(engine_over_its_actors, fixture)

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
  BOOST_TEST(stats.kv_free == stats.kv_total);
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
  run_until([&] { return engine->stats().kv_free == engine->stats().kv_total; });
}

BOOST_AUTO_TEST_CASE(dropping_the_stream_cancels_even_before_the_engine_saw_it) {
  start();
  { stream s = engine->submit(ask({1, 2, 3}, 200)); }
  run_until([&] { return engine->stats().cancelled + engine->stats().failed.size() == 1U; });
  BOOST_TEST(engine->stats().kv_free == engine->stats().kv_total);
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

BOOST_AUTO_TEST_CASE(shutdown_lets_running_work_finish_and_refuses_new_work) {
  start();
  stream s = engine->submit(ask({1}, 30));
  auto a = std::make_shared<answer>(), late = std::make_shared<answer>();
  collect(s, a);
  run_until([&] { return a->ids.size() > 2; });
  std::optional<result<void>> ended;
  engine->shut_down(std::chrono::seconds(30), [&](result<void> r) { ended = std::move(r); });
  stream t = engine->submit(ask({2}, 3));
  collect(t, late);
  run_until([&] { return ended.has_value(); });
  BOOST_TEST(ended->has_value());
  BOOST_TEST(a->ids.size() == 30U);
  BOOST_REQUIRE(late->failed);
  BOOST_TEST((late->failed->code == errc::draining));
  BOOST_TEST(engine->system.live_actors() == 0U);
}

BOOST_AUTO_TEST_CASE(shutdown_cuts_what_is_not_done_at_its_limit) {
  start();
  host->backend_of_test->held = true;
  stream s = engine->submit(ask({1}, 100));
  auto a = std::make_shared<answer>();
  collect(s, a);
  run_until([&] { return host->backend_of_test->steps == 1; });
  std::optional<result<void>> ended;
  engine->shut_down(std::chrono::milliseconds(1), [&](result<void> r) { ended = std::move(r); });
  io.restart();
  io.run_for(std::chrono::milliseconds(50));
  host->backend_of_test->release(); // the step that was running when the limit came
  run_until([&] { return ended.has_value() && a->terminal > 0; });
  BOOST_REQUIRE(a->failed);
  BOOST_TEST((a->failed->code == errc::shutdown));
}

BOOST_AUTO_TEST_CASE(abandoning_the_engine_fails_every_stream_once) {
  start();
  stream s = engine->submit(ask({1}, 100));
  auto a = std::make_shared<answer>();
  collect(s, a);
  run_until([&] { return a->ids.size() > 1; });
  engine->abandon();
  run_until([&] { return a->terminal > 0; });
  BOOST_REQUIRE(a->failed);
  BOOST_TEST((a->failed->code == errc::shutdown));
  BOOST_TEST(a->terminal == 1U);
}

BOOST_AUTO_TEST_SUITE_END()
