// SPDX-License-Identifier: Apache-2.0
#include "runtime/shutdown.hpp"
#include "runtime/sim/world.hpp"
#include "runtime/supervisor.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/test/unit_test.hpp>

#include <latch>
#include <thread>

using namespace troupe;
using namespace troupe::runtime;
using namespace std::chrono_literals;

namespace {

struct poke {
  std::uint64_t request = 0;
};
struct crash_now {
  std::uint64_t request = 0;
};
struct child_protocol : protocol<stream<poke>, control<crash_now>> {
  static constexpr std::string_view name = "child";
};

using journal = std::vector<std::string>;

class child final : public actor<child_protocol> {
 public:
  child(journal* j, bool* fail_start) : journal_(j), fail_start_(fail_start) {}
  void on(poke m) {
    held_.push_back(m.request);
    journal_->push_back(name() + " poke " + std::to_string(m.request));
  }
  void on(crash_now) { throw std::runtime_error("told to"); }

 private:
  void on_start() override {
    journal_->push_back(name() + " start at " + std::to_string(now().time_since_epoch() / 1ms));
    if (fail_start_ != nullptr && *fail_start_) throw std::runtime_error("cannot start");
  }
  void on_stop() noexcept override { journal_->push_back(name() + " stop"); }
  void requests_in_hand(std::vector<std::uint64_t>& ids) const override {
    ids.insert(ids.end(), held_.begin(), held_.end());
  }
  journal* journal_;
  bool* fail_start_;
  std::vector<std::uint64_t> held_;
};

restart_limits plain_limits() {
  restart_limits limits;
  limits.intensity = 3;
  limits.period = 5s;
  limits.backoff_first = 100ms;
  limits.jitter = 0;
  return limits;
}

struct company {
  explicit company(std::uint64_t seed = 1) : world(seed), system(world.clock, world.timers) {}
  boost::asio::any_io_executor executor() { return world.executor.get_executor(); }
  ref<supervisor_protocol>
  lead(std::string name, restart_strategy strategy, const ref<supervisor_protocol>* parent = nullptr) {
    supervisor_options options;
    options.strategy = strategy;
    options.limits = plain_limits();
    options.on_crash = [this](const crash_report& r, std::span<const std::uint64_t> poison) {
      crashes.push_back(r.actor);
      for (const auto id : poison) poisoned.push_back(id);
    };
    return spawn_supervisor(
               system, executor(), std::move(name), std::move(options),
               [this](const exit_report& r) { exits.push_back(r); }, parent)
        .value();
  }
  ref<child_protocol> hire(const ref<supervisor_protocol>& boss, std::string name, bool* fail = nullptr) {
    spawn_options options;
    options.name = std::move(name);
    return spawn_supervised<child>(
               system, executor(), std::move(options), boss,
               [this, fail] { return std::make_unique<child>(&book, fail); })
        .value();
  }
  void settle() { // everything that happens without time passing
    while (world.executor.step()) {
    }
  }
  sim::world world;
  journal book;
  std::vector<std::string> crashes;
  std::vector<std::uint64_t> poisoned;
  std::vector<exit_report> exits;
  actor_system system;
};

} // namespace

BOOST_AUTO_TEST_SUITE(restart_rules)

BOOST_AUTO_TEST_CASE(backoff_doubles_inside_the_period_and_starts_again_after_it) {
  restart_core core(restart_strategy::one_for_one, plain_limits(), 1);
  const time_point t{};
  BOOST_TEST((core.crashed(0, 3, t).delay == 100ms));
  BOOST_TEST((core.crashed(0, 3, t + 1s).delay == 200ms));
  BOOST_TEST((core.crashed(0, 3, t + 2s).delay == 400ms));
  BOOST_TEST(core.crashed(0, 3, t + 3s).escalate);
  BOOST_TEST((core.crashed(0, 3, t + 30s).delay == 100ms));
}

BOOST_AUTO_TEST_CASE(the_delay_is_capped_and_jitter_stays_inside_its_share) {
  auto limits = plain_limits();
  limits.intensity = 30;
  limits.backoff_max = 1s;
  limits.jitter = 0.25;
  restart_core core(restart_strategy::one_for_one, limits, 7);
  bool below = false;
  bool above = false;
  for (int i = 0; i < 20; ++i) {
    const auto d = core.crashed(0, 1, time_point{} + i * 1ms).delay;
    if (i < 5) continue;
    BOOST_TEST((d >= 750ms));
    BOOST_TEST((d <= 1250ms));
    below |= d < 1s;
    above |= d > 1s;
  }
  BOOST_TEST(below);
  BOOST_TEST(above);
}

BOOST_AUTO_TEST_CASE(the_strategy_chooses_who_is_restarted) {
  restart_core one(restart_strategy::one_for_one, plain_limits(), 1);
  restart_core rest(restart_strategy::rest_for_one, plain_limits(), 1);
  const auto a = one.crashed(1, 4, {});
  const auto b = rest.crashed(1, 4, {});
  BOOST_TEST(a.first == 1U);
  BOOST_TEST(a.last == 2U);
  BOOST_TEST(b.first == 1U);
  BOOST_TEST(b.last == 4U);
}

BOOST_AUTO_TEST_CASE(a_request_present_at_two_crashes_is_poison) {
  poison_ledger ledger(3);
  const std::uint64_t first[] = {1, 2};
  const std::uint64_t second[] = {2, 3};
  BOOST_TEST(ledger.crashed(first).empty());
  BOOST_TEST((ledger.crashed(second) == std::vector<std::uint64_t>{2}));
  BOOST_TEST(ledger.poisoned(2));
  BOOST_TEST(!ledger.poisoned(1));
  ledger.forget(2);
  BOOST_TEST(!ledger.poisoned(2));
  const std::uint64_t many[] = {4, 5, 6};
  BOOST_TEST(ledger.crashed(many).empty());
  BOOST_TEST(ledger.size() == 3U); // the oldest are forgotten
  BOOST_TEST(ledger.crashed(first).empty());
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(supervision)

BOOST_AUTO_TEST_CASE(one_for_one_restarts_only_the_crashed_child_and_keeps_its_mail) {
  company c;
  auto boss = c.lead("root", restart_strategy::one_for_one);
  auto a = c.hire(boss, "a");
  auto b = c.hire(boss, "b");
  c.settle();
  c.book.clear();
  BOOST_TEST((a.tell(crash_now{7}) == enqueue_result::ok));
  c.settle();
  BOOST_TEST((a.tell(poke{1}) == enqueue_result::ok)); // waits out the backoff
  BOOST_TEST((b.tell(poke{2}) == enqueue_result::ok));
  c.settle();
  BOOST_TEST((c.book == journal{"b poke 2"}));
  c.world.run(1000);
  BOOST_TEST((c.book == journal{"b poke 2", "a start at 100", "a poke 1"}));
  BOOST_TEST((c.crashes == std::vector<std::string>{"a"}));
  BOOST_TEST(c.system.dead().count(message_class::control, dead_reason::crashed) == 1U);
}

BOOST_AUTO_TEST_CASE(rest_for_one_restarts_the_later_children_in_order) {
  company c(3);
  auto boss = c.lead("root", restart_strategy::rest_for_one);
  std::vector<ref<child_protocol>> all;
  for (const char* name : {"a", "b", "c", "d"}) {
    all.push_back(c.hire(boss, name));
    c.settle();
  }
  c.book.clear();
  BOOST_TEST((all[1].tell(crash_now{}) == enqueue_result::ok));
  c.world.run(1000);
  BOOST_TEST((c.book == journal{"b start at 100", "c start at 100", "d start at 100"}));
  for (auto& r : all) BOOST_TEST(r.alive());
}

BOOST_AUTO_TEST_CASE(a_spent_intensity_ends_the_root_and_its_children) {
  company c;
  auto boss = c.lead("root", restart_strategy::one_for_one);
  auto a = c.hire(boss, "a");
  auto b = c.hire(boss, "b");
  for (int i = 0; i < 4; ++i) {
    BOOST_TEST((a.tell(crash_now{}) == enqueue_result::ok));
    c.world.run(1000);
  }
  BOOST_TEST(!a.alive());
  BOOST_TEST(!b.alive());
  BOOST_REQUIRE(c.exits.size() == 1U);
  BOOST_TEST((c.exits[0].reason == exit_reason::crashed));
  BOOST_TEST(c.exits[0].crash.what.find("a crashed last") != std::string::npos);
  BOOST_TEST(c.system.live_actors() == 0U);
}

BOOST_AUTO_TEST_CASE(escalation_restarts_the_whole_branch_through_the_parent) {
  company c;
  auto root = c.lead("root", restart_strategy::one_for_one);
  auto branch = c.lead("branch", restart_strategy::one_for_one, &root);
  auto a = c.hire(branch, "a");
  c.hire(branch, "b");
  auto aside = c.hire(root, "aside");
  c.world.run(1000);
  for (int i = 0; i < 4; ++i) {
    c.book.clear();
    BOOST_TEST((a.tell(crash_now{}) == enqueue_result::ok));
    c.world.run(1000);
  }
  BOOST_TEST(c.crashes.back() == "branch");
  // 100 + 200 + 400 ms of the branch's own attempts, then the root's first 100 ms.
  BOOST_TEST((c.book == journal{"a start at 800", "b start at 800"}));
  BOOST_TEST((a.tell(poke{5}) == enqueue_result::ok));
  c.world.run(1000);
  BOOST_TEST(c.book.back() == "a poke 5");
  BOOST_TEST(aside.alive());
  BOOST_TEST(c.exits.empty());
}

BOOST_AUTO_TEST_CASE(requests_in_hand_at_two_crashes_are_reported_as_poison) {
  company c;
  auto boss = c.lead("root", restart_strategy::one_for_one);
  auto a = c.hire(boss, "a");
  BOOST_TEST((a.tell(poke{10}) == enqueue_result::ok));
  c.settle();
  BOOST_TEST((a.tell(crash_now{11}) == enqueue_result::ok)); // 10 and 11 are present
  c.world.run(1000);
  BOOST_TEST(c.poisoned.empty());
  BOOST_TEST((a.tell(crash_now{10}) == enqueue_result::ok));
  c.world.run(1000);
  BOOST_TEST((c.poisoned == std::vector<std::uint64_t>{10}));
}

BOOST_AUTO_TEST_CASE(a_child_that_cannot_start_again_is_tried_until_the_intensity_is_spent) {
  company c;
  bool fail = false;
  auto boss = c.lead("root", restart_strategy::one_for_one);
  auto a = c.hire(boss, "a", &fail);
  c.settle();
  fail = true;
  BOOST_TEST((a.tell(crash_now{}) == enqueue_result::ok));
  c.world.run(1000);
  BOOST_TEST(c.crashes.size() == 4U);
  BOOST_TEST(c.system.live_actors() == 0U);
}

BOOST_AUTO_TEST_CASE(a_stopped_supervisor_stops_its_children_newest_first) {
  company c;
  auto boss = c.lead("root", restart_strategy::one_for_one);
  auto a = c.hire(boss, "a");
  c.hire(boss, "b");
  c.settle();
  boss.stop();
  c.world.run(1000);
  BOOST_TEST(c.system.live_actors() == 0U);
  BOOST_TEST(std::count(c.book.begin(), c.book.end(), "a stop") == 1);
  BOOST_TEST(std::count(c.book.begin(), c.book.end(), "b stop") == 1);
  BOOST_TEST((a.tell(poke{}) == enqueue_result::closed));
}

BOOST_AUTO_TEST_CASE(a_child_that_stops_by_itself_is_let_go) {
  company c;
  auto boss = c.lead("root", restart_strategy::rest_for_one);
  auto a = c.hire(boss, "a");
  auto b = c.hire(boss, "b");
  c.settle();
  b.stop();
  c.world.run(1000);
  BOOST_TEST((a.tell(crash_now{}) == enqueue_result::ok));
  c.world.run(1000);
  BOOST_TEST(c.book.back() == "a start at 100");
  BOOST_TEST(a.alive());
  BOOST_TEST(!b.alive());
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(shutting_down)

BOOST_AUTO_TEST_CASE(stages_run_in_order_each_after_the_one_before_is_done) {
  company c;
  shutdown_sequence s(c.system);
  journal order;
  unique_function<void()> later;
  s.add("doors", [&](auto done) {
    order.push_back("doors");
    done();
  });
  s.add("drain", [&](auto done) {
    order.push_back("drain");
    later = std::move(done);
  });
  s.add("actors", [&](auto done) {
    order.push_back("actors");
    c.system.stop_all();
    c.system.when_empty(std::move(done));
  });
  auto boss = c.lead("root", restart_strategy::one_for_one);
  c.hire(boss, "a");
  c.settle();
  std::optional<shutdown_report> report;
  s.run(10s, [&](const shutdown_report& r) { report = r; });
  BOOST_TEST(s.stage() == "drain");
  BOOST_TEST((order == journal{"doors", "drain"}));
  later();
  BOOST_TEST(s.stage() == "actors");
  c.settle();
  BOOST_REQUIRE(report.has_value());
  BOOST_TEST(report->clean);
  BOOST_TEST(s.stage().empty());
  BOOST_TEST(c.world.timers.pending() == 0U);
}

BOOST_AUTO_TEST_CASE(stages_that_did_not_start_are_dropped_with_the_deadline_and_with_the_sequence) {
  company c;
  const auto owned = std::make_shared<int>(0);
  unique_function<void()> late; // holds the sequence, as an unfinished stage does
  {
    shutdown_sequence s(c.system);
    s.add("wait for ever", [&](auto done) { late = std::move(done); });
    s.add("not reached", [owned](auto) {});
    bool finished = false;
    s.run(3s, [&](const shutdown_report&) { finished = true; });
    BOOST_TEST(owned.use_count() == 2);
    c.world.run(1000);
    BOOST_TEST(finished);
    BOOST_TEST(owned.use_count() == 1);
  }
  {
    shutdown_sequence s(c.system);
    s.add("wait for ever", [&](auto done) { late = std::move(done); });
    s.add("not reached", [owned](auto) {});
    s.run(3s, [](const shutdown_report&) { BOOST_ERROR("must not be told"); });
  }
  BOOST_TEST(owned.use_count() == 1);
  late();
  BOOST_TEST(c.world.timers.pending() == 0U);
}

BOOST_AUTO_TEST_CASE(a_deadline_moves_only_to_an_earlier_time) {
  company c;
  shutdown_sequence s(c.system);
  s.add("wait for ever", [](auto) {});
  std::optional<time_point> finished;
  const time_point begin = c.world.clock.now();
  s.run(10s, [&](const shutdown_report&) { finished = c.world.clock.now(); });
  s.shorten(20s);
  s.shorten(2s);
  s.shorten(5s);
  BOOST_TEST(c.world.timers.pending() == 1U);
  c.world.run(1000);
  BOOST_REQUIRE(finished.has_value());
  BOOST_TEST((*finished - begin < 3s));
}

BOOST_AUTO_TEST_CASE(at_the_deadline_every_live_actor_is_named_with_its_mail) {
  company c;
  auto boss = c.lead("root", restart_strategy::one_for_one);
  auto a = c.hire(boss, "stubborn");
  c.settle();
  shutdown_sequence s(c.system);
  s.add("wait for ever", [](auto) {});
  std::optional<shutdown_report> report;
  s.run(3s, [&](const shutdown_report& r) { report = r; });
  BOOST_TEST((a.tell(crash_now{}) == enqueue_result::ok)); // suspended: its mail waits
  c.settle();
  BOOST_TEST((a.tell(poke{1}) == enqueue_result::ok));
  BOOST_TEST((a.tell(poke{2}) == enqueue_result::ok));
  const auto frozen = c.system.status();
  BOOST_TEST(frozen[1].state == "suspended");
  BOOST_TEST(frozen[1].depth == 2U);
  c.world.run(1000);
  BOOST_REQUIRE(report.has_value());
  BOOST_TEST(!report->clean);
  BOOST_TEST(report->stage == "wait for ever");
  const auto text = report->text();
  BOOST_TEST(text.find("stubborn") != std::string::npos);
  BOOST_TEST(text.find("root") != std::string::npos);
  BOOST_TEST(text.find("'wait for ever'") != std::string::npos);
}

namespace {
struct block {
  std::uint64_t request = 0;
};
struct blocker_protocol : protocol<stream<block>> {
  static constexpr std::string_view name = "blocker";
};
class blocker final : public actor<blocker_protocol> {
 public:
  blocker(std::latch* entered, std::latch* release) : entered_(entered), release_(release) {}
  void on(block) {
    entered_->count_down();
    release_->wait();
  }

 private:
  std::latch* entered_;
  std::latch* release_;
};
} // namespace

BOOST_AUTO_TEST_CASE(the_report_shows_the_message_an_actor_hangs_in) {
  boost::asio::io_context work;
  boost::asio::io_context timing;
  steady_clock clock;
  asio_timers timers(timing.get_executor());
  actor_system system(clock, timers, {.stall_limit = {}});
  std::latch entered(1);
  std::latch release(1);
  auto r = spawn<blocker>(system, work.get_executor(), {}, &entered, &release).value();
  BOOST_TEST((r.tell(block{77}) == enqueue_result::ok));
  std::thread runner([&] { work.run(); });
  entered.wait();
  shutdown_sequence s(system);
  s.add("actors", [&](auto done) {
    system.stop_all();
    system.when_empty(std::move(done));
  });
  std::string text;
  s.run(10ms, [&](const shutdown_report& report) { text = report.text(); });
  timing.run(); // until the deadline has fired
  release.count_down();
  runner.join();
  BOOST_TEST(text.find("blocker (running)") != std::string::npos);
  BOOST_TEST(text.find("in hand block of request 77") != std::string::npos);
  BOOST_TEST(system.live_actors() == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
