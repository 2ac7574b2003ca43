// SPDX-License-Identifier: Apache-2.0
#include "runtime/actor.hpp"
#include "runtime/base/log.hpp"
#include "runtime/sim/world.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/test/unit_test.hpp>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::runtime;
using namespace std::chrono_literals;

namespace {

struct work {
  std::uint64_t request = 0;
  int amount = 0;
};
struct halt {};
struct explode {
  std::uint64_t request = 0;
};
struct tick {
  int number = 0;
};

struct worker_protocol : protocol<stream<work>, control<halt>, control<explode>, control<tick>> {
  static constexpr std::string_view name = "worker";
};

struct log_book {
  std::vector<std::string> lines;
};

class worker final : public actor<worker_protocol> {
 public:
  explicit worker(log_book* book) : book_(book) {}

  void on(work&& m) { say("work " + std::to_string(m.amount)); }
  void on(halt) { stop(); }
  void on(explode) { throw std::runtime_error("boom"); }
  void on(tick m) {
    say("tick " + std::to_string(m.number) + " at " + std::to_string(now().time_since_epoch() / 1ms));
    if (m.number == 1) {
      late_ = after(50ms, tick{50});
      dropped_ = after(20ms, tick{20});
    }
    if (m.number == 10 && dropped_ != 0) BOOST_TEST(cancel(dropped_));
  }

 private:
  void on_start() override {
    say("start");
    first_ = after(10ms, tick{10});
  }
  void on_stop() noexcept override { say("stop"); }
  void say(std::string line) { book_->lines.push_back(std::move(line)); }

  log_book* book_;
  std::uint64_t first_ = 0;
  std::uint64_t late_ = 0;
  std::uint64_t dropped_ = 0;
};

struct pass_on {};
struct relay_protocol : protocol<control<pass_on>> {
  static constexpr std::string_view name = "relay";
};
/// Sends control that must not be lost.
class relay final : public actor<relay_protocol> {
 public:
  explicit relay(ref<worker_protocol> to) : to_(to) {}
  void on(pass_on) { must_send(to_, halt{}); }

 private:
  ref<worker_protocol> to_;
};

struct stage {
  explicit stage(std::uint64_t seed = 1) : world(seed), system(world.clock, world.timers) {}
  boost::asio::any_io_executor executor() { return world.executor.get_executor(); }
  ref<worker_protocol> add(spawn_options options = {}) {
    return spawn<worker>(system, executor(), std::move(options), &book).value();
  }
  sim::world world;
  log_book book;
  actor_system system;
};

} // namespace

BOOST_AUTO_TEST_SUITE(actors)

BOOST_AUTO_TEST_CASE(an_actor_starts_handles_its_mail_in_order_and_stops) {
  stage s;
  auto w = s.add();
  BOOST_TEST((w.tell(work{1, 1}) == enqueue_result::ok));
  BOOST_TEST((w.tell(work{1, 2}) == enqueue_result::ok));
  while (s.world.executor.step()) {
  }
  BOOST_TEST((w.tell(halt{}) == enqueue_result::ok));
  while (s.world.executor.step()) {
  }
  BOOST_TEST((s.book.lines == std::vector<std::string>{"start", "work 1", "work 2", "stop"}));
  BOOST_TEST(!w.alive());
  BOOST_TEST((w.tell(work{1, 3}) == enqueue_result::closed));
  BOOST_TEST(s.system.live_actors() == 0U);
}

BOOST_AUTO_TEST_CASE(timers_deliver_messages_and_cancelled_ones_never_arrive) {
  stage s;
  auto w = s.add();
  BOOST_TEST((w.tell(tick{1}) == enqueue_result::ok));
  s.world.run(1000);
  BOOST_TEST(
      (s.book.lines == std::vector<std::string>{"start", "tick 1 at 0", "tick 10 at 10", "tick 50 at 50"}));
  w.stop();
  s.world.run(1000);
}

BOOST_AUTO_TEST_CASE(a_stopped_actor_s_timers_are_gone) {
  stage s;
  auto w = s.add();
  while (s.world.executor.step()) {
  }
  BOOST_TEST(s.world.timers.pending() == 1U);
  w.stop();
  while (s.world.executor.step()) {
  }
  BOOST_TEST(s.world.timers.pending() == 0U);
}

BOOST_AUTO_TEST_CASE(a_crash_without_supervisor_ends_the_actor_and_reports_it) {
  stage s;
  exit_report seen;
  spawn_options options;
  options.name = "worker/7";
  options.on_exit = [&](const exit_report& r) { seen = r; };
  auto w = s.add(std::move(options));
  BOOST_TEST((w.tell(explode{42}) == enqueue_result::ok));
  BOOST_TEST((w.tell(work{43, 1}) == enqueue_result::ok));
  s.world.run(1000);
  BOOST_TEST((seen.reason == exit_reason::crashed));
  BOOST_TEST(seen.crash.actor == "worker/7");
  BOOST_TEST(seen.crash.message == "explode");
  BOOST_TEST(seen.crash.what == "boom");
  BOOST_TEST((seen.crash.requests == std::vector<std::uint64_t>{42}));
  BOOST_TEST(s.system.dead().count(message_class::control, dead_reason::crashed) == 1U);
  BOOST_TEST(s.system.dead().count(message_class::stream, dead_reason::stopped) == 1U);
  BOOST_TEST(s.system.dead().recent().front().message == "explode");
  BOOST_TEST((s.book.lines == std::vector<std::string>{"start"})); // no on_stop after a crash
}

BOOST_AUTO_TEST_CASE(a_stale_reference_answers_closed_even_after_its_slot_is_reused) {
  stage s;
  auto old = s.add();
  old.stop();
  s.world.run(1000);
  auto fresh = s.add();
  BOOST_TEST(old.address().slot == fresh.address().slot);
  BOOST_TEST((old.tell(work{1, 1}) == enqueue_result::closed));
  BOOST_TEST((fresh.tell(work{1, 2}) == enqueue_result::ok));
  BOOST_TEST(!old.reserve(1));
  BOOST_TEST((ref<worker_protocol>{}.tell(work{1, 1}) == enqueue_result::closed));
}

BOOST_AUTO_TEST_CASE(references_outlive_their_system) {
  ref<worker_protocol> w;
  reservation<worker_protocol> slots;
  {
    stage s;
    w = s.add();
    slots = w.reserve(2);
    BOOST_TEST(slots.units() == 2U);
  }
  BOOST_TEST((w.tell(work{1, 1}) == enqueue_result::closed));
  BOOST_TEST((slots.tell(halt{}) == enqueue_result::closed));
}

BOOST_AUTO_TEST_CASE(a_reservation_returns_what_it_did_not_spend) {
  stage s;
  auto w = s.add();
  {
    auto slots = w.reserve(3);
    auto one = slots.split(1);
    BOOST_TEST((one.tell(tick{5}) == enqueue_result::ok));
    BOOST_TEST(one.units() == 0U);
    BOOST_TEST(w.load(message_class::control).messages == 3U);
  }
  BOOST_TEST(w.load(message_class::control).messages == 1U);
}

BOOST_AUTO_TEST_CASE(the_status_names_what_waits_and_the_diagram_shows_the_request) {
  stage s;
  spawn_options options;
  options.name = "worker/a";
  auto w = s.add(std::move(options));
  BOOST_TEST((w.tell(work{9, 1}) == enqueue_result::ok));
  const auto status = s.system.status();
  BOOST_REQUIRE(status.size() == 1U);
  BOOST_TEST(status[0].name == "worker/a");
  BOOST_TEST(status[0].depth == 1U);
  BOOST_TEST(status[0].state == "scheduled");
  s.world.run(1000);
  const auto text = s.system.diagram(9);
  BOOST_TEST(text.find("(outside)") != std::string::npos);
  BOOST_TEST(text.find("worker/a") != std::string::npos);
  BOOST_TEST(text.find("work") != std::string::npos);
  BOOST_TEST(s.system.diagram(10).empty());
}

namespace {

// A standing dialogue as between a scheduler and its executor: one control slot, used again and again.
struct order {
  reservation<struct boss_protocol> answer_slot;
};
struct report_back {
  int steps = 0;
};
struct boss_protocol : protocol<control<report_back>> {
  static constexpr std::string_view name = "boss";
};
struct hand_protocol : protocol<control<order>> {
  static constexpr std::string_view name = "hand";
};
class hand final : public actor<hand_protocol> {
 public:
  void on(order&& m) {
    if (send(m.answer_slot, report_back{++steps_}) != enqueue_result::ok) throw std::runtime_error("refused");
  }

 private:
  int steps_ = 0;
};
class boss final : public actor<boss_protocol> {
 public:
  boss(ref<hand_protocol> h, int* steps) : hand_(h), orders_(h.reserve(100)), steps_(steps) {}
  void on(report_back m) {
    *steps_ = m.steps;
    if (m.steps < 50) give(renew());
  }

 private:
  void on_start() override { give(self().reserve(1)); }
  void give(reservation<boss_protocol> slot) {
    BOOST_TEST(slot.units() == 1U);
    BOOST_TEST((send(orders_, order{std::move(slot)}) == enqueue_result::ok));
  }
  ref<hand_protocol> hand_;
  reservation<hand_protocol> orders_;
  int* steps_;
};

} // namespace

BOOST_AUTO_TEST_CASE(a_renewed_slot_carries_a_dialogue_in_a_full_mailbox) {
  stage s;
  spawn_options roomy;
  roomy.mailbox.control = {128, 1 << 20};
  auto h = spawn<hand>(s.system, s.executor(), std::move(roomy)).value();
  spawn_options tight;
  tight.mailbox.control = {1, 1024}; // room for the one answer and nothing else
  int steps = 0;
  auto b = spawn<boss>(s.system, s.executor(), std::move(tight), h, &steps).value();
  while (s.world.executor.step()) {
    if (steps > 0 && steps < 50) BOOST_TEST(!b.reserve(1)); // never free for others in between
  }
  BOOST_TEST(steps == 50);
  BOOST_TEST(b.load(message_class::control).messages == 0U);
  BOOST_TEST(s.system.dead().counts().empty());
}

BOOST_AUTO_TEST_CASE(control_refused_as_full_is_counted_and_logged_once) {
  std::ostringstream text;
  const auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(text);
  log().sinks().push_back(sink);
  stage s;
  spawn_options small;
  small.name = "worker/7";
  small.mailbox.control = {2, 1 << 10}; // one is the alarm of its start
  auto w = s.add(std::move(small));
  BOOST_TEST((w.tell(halt{}) == enqueue_result::ok));
  BOOST_TEST((w.tell(halt{}) == enqueue_result::ok));
  BOOST_TEST((w.tell(explode{9}) == enqueue_result::full));
  BOOST_TEST((w.tell(halt{}) == enqueue_result::full));
  std::erase(log().sinks(), sink);
  BOOST_TEST(s.system.dead().count(message_class::control, dead_reason::full) == 2U);
  const std::string said = text.str();
  BOOST_TEST(said.find("worker/7") != std::string::npos);
  BOOST_TEST(said.find("explode") != std::string::npos);
  BOOST_TEST(std::count(said.begin(), said.end(), '\n') == 1);
  w.stop();
  s.world.run(1000);
}

BOOST_AUTO_TEST_CASE(an_actor_crashes_over_control_that_finds_no_room_and_not_over_a_receiver_that_is_gone) {
  stage s;
  spawn_options small;
  small.mailbox.control = {1, 1 << 10};
  auto w = s.add(std::move(small));
  bool crashed = false;
  const auto add_relay = [&] {
    spawn_options o;
    o.on_exit = [&](const exit_report& r) { crashed = r.reason == exit_reason::crashed; };
    return spawn<relay>(s.system, s.executor(), std::move(o), w).value();
  };
  boost::asio::io_context never; // where the full one's turn does not come
  auto full =
      spawn<worker>(s.system, never.get_executor(), {.mailbox = {.control = {1, 1 << 10}}}, &s.book).value();
  BOOST_TEST((full.tell(halt{}) == enqueue_result::ok));
  spawn_options o;
  o.on_exit = [&](const exit_report& r) { crashed = r.reason == exit_reason::crashed; };
  auto to_full = spawn<relay>(s.system, s.executor(), std::move(o), full).value();
  BOOST_TEST((to_full.tell(pass_on{}) == enqueue_result::ok));
  s.world.run(1000);
  BOOST_TEST(crashed);
  w.stop();
  s.world.run(1000);
  crashed = false;
  auto to_gone = add_relay();
  BOOST_TEST((to_gone.tell(pass_on{}) == enqueue_result::ok));
  s.world.run(1000);
  BOOST_TEST(!crashed);
  BOOST_TEST(to_gone.alive());
  s.system.end_all();
}

BOOST_AUTO_TEST_SUITE_END()
