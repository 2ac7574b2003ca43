// SPDX-License-Identifier: Apache-2.0
#include "runtime/ask.hpp"

#include "runtime/actor.hpp"
#include "runtime/sim/world.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/test/unit_test.hpp>

#include <future>
#include <optional>
#include <vector>

using namespace troupe;
using namespace troupe::runtime;
using namespace std::chrono_literals;

namespace {

struct how_many {
  reply<int> answer;
};
struct later {
  reply<int> answer;
};
struct halt {};

struct counter_protocol : protocol<query<how_many>, query<later>, control<halt>> {
  static constexpr std::string_view name = "counter";
};

class counter final : public actor<counter_protocol> {
 public:
  void on(how_many&& m) { m.answer(42); }
  void on(later&& m) { kept_.push_back(std::move(m.answer)); }
  void on(halt) { stop(); }

 private:
  std::vector<reply<int>> kept_;
};

struct stage {
  stage() : world(7), system(world.clock, world.timers) {
    spawn_options options;
    options.mailbox.query = {2, 64 << 10};
    asked = spawn<counter>(system, world.executor.get_executor(), std::move(options)).value();
  }
  template<class Question>
  void put(duration within = 100ms) {
    ask<int>(
        asked, world.timers, within, [](reply<int> back) { return Question{std::move(back)}; },
        [this](result<int> answer) { answers.push_back(std::move(answer)); });
  }
  sim::world world;
  actor_system system;
  ref<counter_protocol> asked;
  std::vector<result<int>> answers;
};

} // namespace

BOOST_AUTO_TEST_SUITE(questions)

BOOST_FIXTURE_TEST_CASE(a_question_is_answered_once_and_leaves_no_timer, stage) {
  put<how_many>();
  world.run(1000);
  BOOST_TEST_REQUIRE(answers.size() == 1U);
  BOOST_TEST(answers[0].value() == 42);
  BOOST_TEST((world.clock.now().time_since_epoch() < 100ms));
}

BOOST_FIXTURE_TEST_CASE(a_question_without_an_answer_ends_at_its_deadline, stage) {
  put<later>(50ms);
  world.run(1000);
  BOOST_TEST_REQUIRE(answers.size() == 1U);
  BOOST_TEST((answers[0].error().code == errc::deadline_exceeded));
  BOOST_TEST((world.clock.now().time_since_epoch() == 50ms));
  asked.stop(); // the reply it still holds comes too late
  world.run(1000);
  BOOST_TEST(answers.size() == 1U);
}

BOOST_FIXTURE_TEST_CASE(an_actor_that_stops_answers_what_it_was_asked, stage) {
  put<later>();
  while (world.executor.ready() > 0) world.executor.step();
  BOOST_TEST(answers.empty());
  asked.stop();
  world.run(1000);
  BOOST_TEST_REQUIRE(answers.size() == 1U);
  BOOST_TEST((answers[0].error().code == errc::shutdown));
}

BOOST_FIXTURE_TEST_CASE(a_question_to_nobody_and_one_too_many_are_refused_at_once, stage) {
  for (int i = 0; i < 3; ++i) put<later>();
  BOOST_TEST_REQUIRE(answers.size() == 1U);
  BOOST_TEST((answers[0].error().code == errc::queue_full));
  asked.stop();
  world.run(1000);
  BOOST_TEST(answers.size() == 3U);
  put<how_many>();
  BOOST_TEST_REQUIRE(answers.size() == 4U);
  BOOST_TEST((answers[3].error().code == errc::shutdown));
}

BOOST_AUTO_TEST_CASE(an_answer_and_a_deadline_that_race_give_one_result) {
  boost::asio::thread_pool pool(3);
  runtime::steady_clock clock;
  asio_timers clock_timers(pool.get_executor());
  actor_system system(clock, clock_timers);
  const auto asked = spawn<counter>(system, pool.get_executor(), {}).value();
  for (int i = 0; i < 300; ++i) {
    std::promise<void> told;
    std::atomic<int> times{0};
    ask<int>(
        asked, clock_timers, std::chrono::microseconds(i % 60),
        [](reply<int> back) { return how_many{std::move(back)}; },
        [&](result<int>) {
          if (++times == 1) told.set_value();
        });
    told.get_future().wait();
    BOOST_TEST_REQUIRE(times == 1);
  }
  asked.stop();
  pool.join();
}

BOOST_AUTO_TEST_SUITE_END()
