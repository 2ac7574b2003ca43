// SPDX-License-Identifier: Apache-2.0
// Crashes of the engine's actors: who goes on, who ends, and what a shutdown makes of it.
#include "engine_fixture.hpp"

#include "../sim/failing_timers.hpp"

#include <map>
#include <numeric>

using namespace troupe;
using test::answer;
using test::answer_alone;

namespace {

/// Everything that one client is told.
struct heard {
  std::vector<std::int32_t> ids;
  std::map<std::uint32_t, std::vector<std::int32_t>> by_choice;
  std::vector<std::uint64_t> seqs;
  std::vector<float> logprobs;
  std::size_t echoed = 0, accepted = 0, terminal = 0;
  std::optional<done_event> done;
  std::optional<error> failed;
};

struct crash_fixture : test::engine_fixture {
  std::vector<stream> streams;
  std::vector<std::shared_ptr<heard>> clients;
  std::optional<result<void>> ended;

  void read(std::size_t i) {
    streams[i].async_read([this, i, into = clients[i]](boost::system::error_code ec, stream_event event) {
      BOOST_TEST(!ec);
      if (std::holds_alternative<accepted_event>(event)) ++into->accepted;
      if (const auto* t = std::get_if<token_event>(&event)) {
        into->seqs.push_back(t->seq);
        for (const scored_token& l : t->logprobs) into->logprobs.push_back(l.logprob);
        if (t->echo)
          into->echoed += t->token_ids.size();
        else
          for (const auto id : t->token_ids) into->ids.push_back(id), into->by_choice[t->index].push_back(id);
      }
      if (const auto* d = std::get_if<done_event>(&event)) into->done = *d;
      if (const auto* f = std::get_if<failed_event>(&event)) into->failed = f->why;
      if (detail::is_terminal(event))
        ++into->terminal;
      else
        read(i);
    });
  }
  std::shared_ptr<heard> begin(request what) {
    streams.push_back(engine->submit(std::move(what)));
    clients.push_back(std::make_shared<heard>());
    return clients.back();
  }
  std::shared_ptr<heard> submit(request what) {
    streams.reserve(64); // reads hold on to their place
    auto client = begin(std::move(what));
    read(streams.size() - 1);
    return client;
  }
  void run_to_the_end() {
    run_until([&] {
      return std::all_of(clients.begin(), clients.end(), [](const auto& c) { return c->terminal > 0; });
    });
    turn();
    for (const auto& c : clients) {
      BOOST_TEST(c->terminal == 1U);
      std::vector<std::uint64_t> order(c->seqs.size());
      std::iota(order.begin(), order.end(), 0U);
      BOOST_TEST(c->seqs == order, boost::test_tools::per_element());
    }
  }
  /// Nothing of the engine is left in use.
  void check_idle() {
    const engine_stats s = engine->stats();
    BOOST_TEST(s.kv_free + s.kv_cached == s.kv_total);
    BOOST_TEST(s.kv_total == 64U);
    BOOST_TEST(s.running + s.waiting + s.paused == 0U);
    std::uint64_t ends = s.finished_stop + s.finished_length + s.cancelled;
    for (const auto& [code, count] : s.failed) ends += count;
    BOOST_TEST(ends == s.submitted);
    for (const lost_messages& l : s.dead_letters)
      if (l.message_class == "control" && l.reason == "full") BOOST_TEST(l.count == 0U);
  }
  void crash_once() {
    const auto before = engine->stats().restarts;
    host->backend_of_test->throw_steps = 1;
    run_until([&] { return engine->stats().restarts > before; });
  }
  void expect_whole(const heard& c, const std::vector<std::int32_t>& prompt, std::size_t count) {
    BOOST_TEST(c.done.has_value());
    BOOST_TEST(c.accepted == 1U);
    BOOST_TEST(c.ids == answer_alone(prompt, count), boost::test_tools::per_element());
  }
  void shut_down(std::chrono::milliseconds limit) {
    engine->shut_down(limit, [this](result<void> r) { ended = std::move(r); });
  }
};

} // namespace

BOOST_FIXTURE_TEST_SUITE(engine_crashes, crash_fixture)

BOOST_AUTO_TEST_CASE(streams_go_on_over_crashes_without_a_gap_or_a_token_twice) {
  start();
  std::vector<std::vector<std::int32_t>> prompts;
  for (std::int32_t i = 0; i < 4; ++i) prompts.push_back({i, 3 * i + 1, 7});
  for (const auto& p : prompts) submit(ask(p, 60));
  for (std::size_t part : {5U, 20U, 40U}) {
    run_until([&] { return clients[0]->ids.size() >= part; });
    crash_once();
  }
  run_to_the_end();
  for (std::size_t i = 0; i < prompts.size(); ++i) expect_whole(*clients[i], prompts[i], 60);
  const engine_stats s = engine->stats();
  BOOST_TEST(s.restarts == 3U);
  BOOST_TEST(s.carried_over == 12U);
  BOOST_TEST(s.failed.empty());
  BOOST_TEST(s.ready);
  check_idle();
}

BOOST_AUTO_TEST_CASE(only_the_request_to_blame_ends_and_its_prompt_is_refused_from_then_on) {
  start();
  host->backend_of_test->crashes_over = test::end_token; // which nobody draws
  submit(ask({1, 2}, 40));
  submit(ask({2, 3}, 40));
  run_until([&] { return clients[0]->ids.size() >= 5; });
  submit(ask({4, test::end_token}, 40));
  submit(ask({3, 4}, 40));
  run_to_the_end();
  expect_whole(*clients[0], {1, 2}, 40);
  expect_whole(*clients[1], {2, 3}, 40);
  expect_whole(*clients[3], {3, 4}, 40);
  BOOST_REQUIRE(clients[2]->failed);
  BOOST_TEST((clients[2]->failed->code == errc::poison_request));
  BOOST_TEST(clients[2]->ids.empty());
  BOOST_TEST(engine->stats().restarts == 2U);
  const auto again = finish(ask({4, test::end_token}, 5));
  BOOST_REQUIRE(again->failed);
  BOOST_TEST((again->failed->code == errc::poison_request));
  BOOST_TEST(engine->stats().restarts == 2U); // at the door
  BOOST_TEST(finish(ask({4, 94}, 5))->done.has_value());
  check_idle();
}

BOOST_AUTO_TEST_CASE(a_prompt_that_was_answered_since_its_crash_is_no_poison) {
  start();
  for (int i = 0; i < 3; ++i) {
    host->backend_of_test->throw_steps = 1;
    BOOST_TEST(finish(ask({7, 8}, 5))->done.has_value());
  }
}

BOOST_AUTO_TEST_CASE(one_that_was_alone_in_hand_at_two_crashes_ends) {
  start();
  host->backend_of_test->throw_steps = 2;
  const auto a = finish(ask({7, 8}, 5));
  BOOST_REQUIRE(a->failed);
  BOOST_TEST((a->failed->code == errc::poison_request));
  run_until([&] { return engine->stats().ready; });
  BOOST_TEST(finish(ask({7, 9}, 5))->done.has_value());
}

BOOST_AUTO_TEST_CASE(seeds_choices_and_scores_survive) {
  host->backend_of_test->by_seed = true;
  start();
  const auto ask_all = [&] {
    request choices = ask({5, 6, 7}, 30);
    choices.n = 3;
    choices.sampling.seed = 12;
    choices.sampling.temperature = 1;
    choices.logprobs = true;
    request scored = ask(std::vector<std::int32_t>(40, 9), 6);
    scored.echo = scored.logprobs = true;
    scored.sampling.seed = 5;
    request best = ask({8, 9}, 20);
    best.best_of = 4;
    best.sampling.seed = 77;
    submit(std::move(choices));
    submit(std::move(scored));
    submit(std::move(best));
  };
  ask_all();
  run_to_the_end();
  ask_all();
  run_until([&] { return clients[4]->echoed > 0 || clients[3]->ids.size() > 4; });
  crash_once();
  run_until([&] { return clients[3]->ids.size() > 40; });
  crash_once();
  run_to_the_end();
  for (std::size_t i = 0; i < 3; ++i) {
    BOOST_TEST(clients[i]->done.has_value());
    BOOST_TEST(clients[3 + i]->done.has_value());
    BOOST_TEST(clients[i]->by_choice.size() == clients[3 + i]->by_choice.size());
    for (const auto& [choice, ids] : clients[i]->by_choice)
      BOOST_TEST(clients[3 + i]->by_choice[choice] == ids, boost::test_tools::per_element());
    BOOST_TEST(clients[i]->echoed == clients[3 + i]->echoed);
    BOOST_TEST(clients[i]->logprobs.size() == clients[3 + i]->logprobs.size());
    BOOST_TEST(clients[3 + i]->accepted == 1U);
  }
  BOOST_TEST(engine->stats().restarts == 2U);
  check_idle();
}

BOOST_AUTO_TEST_CASE(who_waits_for_a_place_or_for_its_prompt_is_not_lost) {
  options.max_batch = 1;
  slow_text = true;
  start();
  auto& backend = *host->backend_of_test;
  backend.held = true;
  submit(ask({1, 2}, 30));
  turn();
  turn_text();
  BOOST_TEST(backend.steps == 1U);
  for (std::int32_t i = 2; i < 5; ++i) submit(ask({i, 2}, 5));
  turn();
  turn_text();            // these wait for a place
  submit(ask({9, 2}, 5)); // and this one for its prompt
  turn();
  backend.throw_steps = 1;
  backend.held = false;
  backend.release();
  run_until([&] { return !engine->stats().ready; });
  submit(ask({10, 2}, 5));
  run_until([&] { return engine->stats().ready; });
  run_until([&] {
    turn_text();
    return std::all_of(clients.begin(), clients.end(), [](const auto& c) { return c->terminal > 0; });
  });
  run_to_the_end();
  expect_whole(*clients[0], {1, 2}, 30);
  for (std::int32_t i = 1; i < 4; ++i) expect_whole(*clients[static_cast<std::size_t>(i)], {i + 1, 2}, 5);
  expect_whole(*clients[4], {9, 2}, 5);
  expect_whole(*clients[5], {10, 2}, 5);
  check_idle();
}

BOOST_AUTO_TEST_CASE(who_comes_in_a_recovery_is_served_after_it_and_who_leaves_has_its_end) {
  start();
  submit(ask({1, 2}, 50));
  submit(ask({2, 2}, 50));
  run_until([&] { return clients[1]->ids.size() > 2; });
  host->backend_of_test->throw_steps = 1;
  run_until([&] { return !engine->stats().ready; });
  submit(ask({3, 2}, 5));
  streams[1].cancel();
  const auto before = clients[1]->ids.size();
  BOOST_TEST(!engine->stats().ready);
  run_to_the_end();
  expect_whole(*clients[0], {1, 2}, 50);
  expect_whole(*clients[2], {3, 2}, 5);
  BOOST_REQUIRE(clients[1]->done);
  BOOST_TEST((clients[1]->done->reason == finish_reason::cancelled));
  BOOST_TEST(clients[1]->ids.size() <= before + 1);
  check_idle();
}

BOOST_AUTO_TEST_CASE(a_slow_reader_stays_paused_over_a_crash_and_goes_on_when_it_reads) {
  options.stream_credit = 4;
  start();
  streams.reserve(8);
  const auto slow = begin(ask({1, 2}, 30));
  submit(ask({2, 2}, 60));
  run_until([&] { return engine->stats().paused == 1 && clients[1]->ids.size() > 4; });
  crash_once();
  run_until([&] { return clients[1]->terminal > 0; });
  BOOST_TEST(engine->stats().paused == 1U);
  read(0);
  run_to_the_end();
  expect_whole(*slow, {1, 2}, 30);
  expect_whole(*clients[1], {2, 2}, 60);
  check_idle();
}

BOOST_AUTO_TEST_CASE(an_engine_that_crashes_too_often_ends_all_and_stays_down) {
  start();
  for (std::int32_t i = 0; i < 3; ++i) {
    host->backend_of_test->throw_steps = 1;
    BOOST_TEST(finish(ask({10 + i}, 5))->done.has_value());
  }
  submit(ask({1}, 50));
  submit(ask({2}, 50));
  run_until([&] { return clients[0]->ids.size() > 2; });
  host->backend_of_test->throw_steps = 1;
  run_to_the_end();
  for (const auto& c : clients) {
    BOOST_REQUIRE(c->failed);
    BOOST_TEST((c->failed->code == errc::executor_failed));
    BOOST_TEST(c->failed->message.find("too often") != std::string::npos);
  }
  BOOST_TEST(timers->pending() == 0U); // nobody plans to make it anew
  BOOST_TEST(!engine->stats().ready);
  const auto a = finish(ask({1}, 5));
  BOOST_REQUIRE(a->failed);
  BOOST_TEST((a->failed->code == errc::executor_failed));
  shut_down(std::chrono::seconds(1));
  run_until([&] { return ended.has_value(); });
  BOOST_TEST(ended->has_value());
}

BOOST_AUTO_TEST_CASE(after_a_crash_the_engine_is_not_ready_until_it_is_made_anew_and_its_sums_go_on) {
  start();
  (void)finish(ask({1, 2, 3}, 10));
  const engine_stats before = engine->stats();
  BOOST_TEST(before.ready);
  host->backend_of_test->throw_steps = 1;
  submit(ask({5}, 5));
  run_until([&] { return !engine->stats().ready; });
  run_until([&] { return engine->stats().ready; });
  run_to_the_end();
  BOOST_TEST(finish(ask({1, 2}, 10))->done.has_value());
  const engine_stats after = engine->stats();
  BOOST_TEST(after.steps > before.steps);
  BOOST_TEST(after.decode_tokens >= before.decode_tokens + 13);
  BOOST_TEST(after.submitted == 3U);
  BOOST_TEST(after.finished_length == 3U);
  BOOST_TEST(after.failed.empty());
  check_idle();
}

BOOST_AUTO_TEST_CASE(a_crash_in_a_shutdown_loses_nobody_and_the_drain_ends) {
  start();
  submit(ask({1, 2}, 40));
  submit(ask({2, 2}, 60));
  run_until([&] { return clients[0]->ids.size() > 2; });
  shut_down(std::chrono::minutes(10));
  turn();
  host->backend_of_test->throw_steps = 1;
  run_until([&] { return ended.has_value(); });
  run_to_the_end();
  BOOST_TEST(ended->has_value());
  expect_whole(*clients[0], {1, 2}, 40);
  expect_whole(*clients[1], {2, 2}, 60);
  BOOST_TEST(engine->system.live_actors() == 0U);
  BOOST_TEST(timers->pending() == 0U);
}

BOOST_AUTO_TEST_CASE(a_shutdown_in_a_recovery_waits_for_those_who_come_back) {
  start();
  submit(ask({1, 2}, 40));
  run_until([&] { return clients[0]->ids.size() > 2; });
  host->backend_of_test->throw_steps = 1;
  run_until([&] { return !engine->stats().ready; });
  shut_down(std::chrono::minutes(10));
  const auto late = submit(ask({2, 2}, 5));
  run_until([&] { return ended.has_value(); });
  run_to_the_end();
  BOOST_TEST(ended->has_value());
  expect_whole(*clients[0], {1, 2}, 40);
  BOOST_REQUIRE(late->failed);
  BOOST_TEST((late->failed->code == errc::draining));
  BOOST_TEST(timers->pending() == 0U);
}

BOOST_AUTO_TEST_CASE(the_limit_of_a_shutdown_cuts_in_a_recovery_too) {
  start();
  submit(ask({1, 2}, 200));
  run_until([&] { return clients[0]->ids.size() > 2; });
  host->backend_of_test->throw_steps = 1;
  run_until([&] { return !engine->stats().ready; });
  shut_down(std::chrono::milliseconds(0));
  run_until([&] { return ended.has_value(); });
  run_to_the_end();
  BOOST_REQUIRE(clients[0]->failed);
  BOOST_TEST((clients[0]->failed->code == errc::shutdown));
  BOOST_TEST(timers->pending() == 0U);
}

BOOST_AUTO_TEST_CASE(a_shutdown_of_an_idle_engine_in_its_recovery_leaves_no_timer) {
  start();
  host->backend_of_test->throw_steps = 2;
  (void)finish(ask({5}, 5)); // poison: nobody is left
  shut_down(std::chrono::minutes(10));
  run_until([&] { return ended.has_value(); });
  BOOST_TEST(ended->has_value());
  BOOST_TEST(timers->pending() == 0U);
}

BOOST_AUTO_TEST_CASE(destroying_the_engine_in_a_recovery_ends_every_stream_once) {
  start();
  submit(ask({1, 2}, 40));
  run_until([&] { return clients[0]->ids.size() > 2; });
  host->backend_of_test->throw_steps = 1;
  run_until([&] { return !engine->stats().ready; });
  engine->abandon();
  run_to_the_end();
  BOOST_REQUIRE(clients[0]->failed);
  BOOST_TEST((clients[0]->failed->code == errc::shutdown));
  BOOST_TEST(timers->pending() == 0U);
}

BOOST_AUTO_TEST_CASE(a_crash_of_the_scheduler_waits_for_the_step_that_may_still_write) {
  options.memory_interval_ms = 0; // no timer but the scheduler's
  auto around = environment();
  const auto failing = std::make_shared<sim::failing_timers>(timers);
  around.timers = failing;
  start(std::move(around));
  submit(ask({1, 2}, 20));
  run_until([&] { return clients[0]->ids.size() > 2; });
  host->backend_of_test->held = true;
  const auto steps = host->backend_of_test->steps;
  run_until([&] { return host->backend_of_test->steps > steps; });
  bool once = true;
  failing->fails = [&once] { return std::exchange(once, false); };
  submit(ask({2, 2}, 20)); // the scheduler sets an alarm for its longest wait
  run_until([&] { return !engine->stats().ready; });
  io.restart();
  io.run_for(std::chrono::milliseconds(60));
  BOOST_TEST(engine->stats().restarts == 0U);
  host->backend_of_test->held = false;
  host->backend_of_test->release();
  run_to_the_end();
  BOOST_TEST(engine->stats().restarts == 1U);
  expect_whole(*clients[0], {1, 2}, 20);
  expect_whole(*clients[1], {2, 2}, 20);
  check_idle();
}

BOOST_AUTO_TEST_SUITE_END()
