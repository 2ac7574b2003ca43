// SPDX-License-Identifier: Apache-2.0
// Starts that fail, shutdowns and the engine's destruction.
#include "engine_fixture.hpp"
#include "heard_log.hpp"

#include <cstdlib>
#include <filesystem>

using namespace troupe;
using test::answer;

namespace {

struct ends_fixture : test::engine_fixture {
  std::optional<result<void>> started, ended, ended_again;

  /// A start whose loading stands until the background runs.
  void begin_start(std::function<detail::host_result(std::stop_token)> load) {
    slow_text = true;
    auto around = environment();
    around.load = [load](const engine_options&, std::stop_token stop) { return load(std::move(stop)); };
    engine = std::make_shared<detail::engine_state>(io.get_executor(), options, std::move(around));
    engine->start([this](result<void> r) { started = std::move(r); });
    turn();
  }
  void shut_down(std::chrono::milliseconds limit) {
    engine->shut_down(limit, [this](result<void> r) { ended = std::move(r); });
  }
  /// Submits a request whose first step is being computed until the test releases it.
  std::pair<stream, std::shared_ptr<answer>> hold_a_step() {
    const auto before = host->backend_of_test->steps;
    host->backend_of_test->held = true;
    stream s = engine->submit(ask({1}, 100));
    run_until([&] { return host->backend_of_test->steps > before; });
    return {std::move(s), std::make_shared<answer>()};
  }
};

} // namespace

BOOST_FIXTURE_TEST_SUITE(engine_ends, ends_fixture)

BOOST_AUTO_TEST_CASE(a_failed_start_is_told_to_every_request) {
  begin_start([](std::stop_token) { return error{errc::bad_file, "a bad file", {}, 0}; });
  turn_text();
  BOOST_REQUIRE(started.has_value());
  BOOST_TEST((started->error().code == errc::bad_file));
  const auto a = finish(ask({1}, 5));
  BOOST_REQUIRE(a->failed);
  BOOST_TEST((a->failed->code == errc::bad_file));
  BOOST_TEST(!engine->stats().ready);
  BOOST_TEST(engine->system.live_actors() == 0U);
}

BOOST_AUTO_TEST_CASE(a_loader_without_memory_fails_the_start) {
  begin_start([](std::stop_token) -> detail::host_result { throw std::bad_alloc(); });
  turn_text();
  BOOST_REQUIRE(started.has_value());
  BOOST_TEST((started->error().code == errc::no_memory));
}

BOOST_AUTO_TEST_CASE(a_queue_that_no_mailbox_holds_is_refused_by_name_before_the_loading) {
  options.max_queue = 100'000;
  bool loaded = false;
  begin_start([&](std::stop_token) {
    loaded = true;
    return error{errc::internal, "not reached", {}, 0};
  });
  turn_text();
  BOOST_REQUIRE(started.has_value());
  BOOST_TEST((started->error().code == errc::bad_config));
  BOOST_TEST(started->error().param == "max_queue");
  BOOST_TEST(!loaded);
}

BOOST_AUTO_TEST_CASE(the_longest_queue_of_the_settings_starts) {
  options.max_queue = 60'000;
  options.max_batch = 4096;
  start();
  BOOST_TEST(finish(ask({1}, 5))->done.has_value());
}

BOOST_AUTO_TEST_CASE(a_shutdown_while_the_model_loads_ends_the_loading) {
  std::stop_token asked;
  begin_start([&](std::stop_token stop) {
    asked = std::move(stop);
    return std::shared_ptr<const detail::model_host>(host);
  });
  shut_down(std::chrono::seconds(1));
  turn_text();
  BOOST_TEST(asked.stop_requested());
  BOOST_REQUIRE((started && ended));
  BOOST_TEST((started->error().code == errc::shutdown));
  BOOST_TEST(ended->has_value());
}

BOOST_AUTO_TEST_CASE(destroying_a_loading_engine_stops_the_loading_and_answers_the_start) {
  std::stop_token asked;
  begin_start([&](std::stop_token stop) {
    asked = std::move(stop);
    return std::shared_ptr<const detail::model_host>(host);
  });
  engine->abandon();
  engine.reset();
  turn();
  BOOST_REQUIRE(started.has_value());
  BOOST_TEST((started->error().code == errc::shutdown));
  turn_text();
  BOOST_TEST(asked.stop_requested());
}

BOOST_AUTO_TEST_CASE(an_engine_that_goes_with_its_executor_stops_the_loading_too) {
  std::stop_token asked;
  begin_start([&](std::stop_token stop) {
    asked = std::move(stop);
    return std::shared_ptr<const detail::model_host>(host);
  });
  engine.reset(); // nobody runs `abandon`
  turn_text();
  BOOST_TEST(asked.stop_requested());
}

BOOST_AUTO_TEST_CASE(shutdown_lets_running_work_finish_and_refuses_new_work) {
  start();
  stream s = engine->submit(ask({1}, 30));
  auto a = std::make_shared<answer>(), late = std::make_shared<answer>();
  collect(s, a);
  run_until([&] { return a->ids.size() > 2; });
  shut_down(std::chrono::seconds(30));
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
  shut_down(std::chrono::milliseconds(1));
  io.restart();
  io.run_for(std::chrono::milliseconds(50));
  host->backend_of_test->release(); // the step that was running when the limit came
  run_until([&] { return ended.has_value() && a->terminal > 0; });
  BOOST_REQUIRE(a->failed);
  BOOST_TEST((a->failed->code == errc::shutdown));
}

BOOST_AUTO_TEST_CASE(what_a_shutdown_cuts_is_named_in_the_log) {
  const test::heard_log heard;
  start();
  host->backend_of_test->held = true;
  request asked = ask({1}, 100);
  asked.name = "cmpl-7\nforged";
  asked.n = 2;
  std::vector<stream> cut;
  cut.push_back(engine->submit(std::move(asked)));
  cut.push_back(engine->submit(ask({2}, 100)));
  run_until([&] { return host->backend_of_test->steps == 1; });
  shut_down(std::chrono::milliseconds(1));
  run_until([&] { return heard.says("cuts 2 requests: "); });
  BOOST_TEST(heard.says("cmpl-7?forged (0 token events read), request 3 (0 token events read)"));
  host->backend_of_test->release();
  run_until([&] { return ended.has_value(); });
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

BOOST_AUTO_TEST_CASE(a_finished_shutdown_leaves_no_timer) {
  start();
  stream s = engine->submit(ask({1}, 30));
  auto a = std::make_shared<answer>();
  collect(s, a);
  run_until([&] { return a->ids.size() > 2; });
  shut_down(std::chrono::minutes(10));
  run_until([&] { return ended.has_value(); });
  BOOST_TEST(timers->pending() == 0U);
}

BOOST_AUTO_TEST_CASE(a_second_shutdown_waits_for_the_first_and_takes_the_earlier_limit) {
  start();
  auto [s, a] = hold_a_step();
  collect(s, a);
  shut_down(std::chrono::hours(1));
  turn();
  engine->shut_down(std::chrono::milliseconds(0), [&](result<void> r) { ended_again = std::move(r); });
  turn();
  BOOST_TEST(!ended_again);
  host->backend_of_test->release();
  run_until([&] { return ended && ended_again; });
  BOOST_TEST(ended->has_value());
  BOOST_TEST(ended_again->has_value());
  BOOST_REQUIRE(a->failed);
  BOOST_TEST((a->failed->code == errc::shutdown));
}

BOOST_AUTO_TEST_CASE(the_longest_limit_there_is_lets_work_finish) {
  start();
  stream s = engine->submit(ask({1}, 30));
  auto a = std::make_shared<answer>();
  collect(s, a);
  run_until([&] { return a->ids.size() > 2; });
  shut_down(std::chrono::milliseconds::max());
  run_until([&] { return ended.has_value(); });
  BOOST_TEST(ended->has_value());
  BOOST_TEST(a->ids.size() == 30U);
}

BOOST_AUTO_TEST_CASE(an_engine_that_is_dropped_in_its_shutdown_is_freed) {
  start();
  auto [s, a] = hold_a_step();
  shut_down(std::chrono::minutes(10));
  turn();
  std::weak_ptr<detail::engine_state> left = engine;
  engine.reset(); // as when the execution context goes with the engine's last task unrun
  BOOST_TEST(left.expired());
}

BOOST_AUTO_TEST_CASE(destroying_the_engine_answers_its_shutdown_and_ends_its_actors) {
  start();
  auto [s, a] = hold_a_step();
  collect(s, a);
  shut_down(std::chrono::minutes(10));
  turn();
  engine->abandon();
  BOOST_TEST(engine->system.live_actors() == 0U);
  std::weak_ptr<detail::engine_state> left = engine;
  engine.reset();
  BOOST_TEST(left.expired());
  turn();
  BOOST_REQUIRE(ended.has_value());
  BOOST_TEST((ended->error().code == errc::shutdown));
  BOOST_REQUIRE(a->failed);
  BOOST_TEST((a->failed->code == errc::shutdown));
  host->backend_of_test->release(); // a step that ends after its engine
  turn();
}

BOOST_AUTO_TEST_CASE(a_shutdown_ends_after_the_traces_are_written) {
  char dir[] = "/tmp/troupe-ends-XXXXXX";
  BOOST_REQUIRE(mkdtemp(dir) != nullptr);
  options.trace_dir = dir;
  slow_text = true;
  begin_start([this](std::stop_token) { return std::shared_ptr<const detail::model_host>(host); });
  turn_text();
  stream s = engine->submit(ask({1}, 5));
  auto a = std::make_shared<answer>();
  collect(s, a);
  turn();
  turn_text();
  run_until([&] { return a->terminal > 0; });
  shut_down(std::chrono::minutes(1));
  turn();
  BOOST_TEST(!ended);
  turn_text();
  BOOST_TEST(ended.has_value());
  BOOST_TEST(std::distance(std::filesystem::directory_iterator(dir), {}) == 1);
  std::filesystem::remove_all(dir);
}

BOOST_AUTO_TEST_SUITE_END()
