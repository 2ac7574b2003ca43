// SPDX-License-Identifier: Apache-2.0
// Turns that cannot be posted for want of memory: they come later, and no message is left lying.
#include "runtime/actor.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/execution.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <deque>
#include <new>
#include <optional>
#include <vector>

using namespace troupe;
using namespace troupe::runtime;
namespace asio = boost::asio;

namespace {

// Runs tasks when told to; while `scarce` it has no memory to take one.
class scarce_context : public asio::execution_context {
 public:
  class executor_type {
   public:
    explicit executor_type(scarce_context& c) noexcept : context_(&c) {}
    template<class Task>
    void execute(Task&& task) const {
      if (context_->scarce) throw std::bad_alloc();
      context_->tasks_.emplace_back(std::forward<Task>(task));
    }
    asio::execution_context& query(asio::execution::context_t) const noexcept { return *context_; }
    static constexpr asio::execution::blocking_t::never_t query(asio::execution::blocking_t) noexcept {
      return asio::execution::blocking.never;
    }
    friend bool operator==(const executor_type&, const executor_type&) noexcept = default;

   private:
    scarce_context* context_;
  };

  ~scarce_context() { // NOLINT(modernize-use-override): the base destructor is not virtual
    shutdown();
    destroy();
  }
  executor_type get_executor() noexcept { return executor_type(*this); }
  void run() {
    while (!tasks_.empty()) {
      auto task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }

  bool scarce = false;

 private:
  std::deque<unique_function<void()>> tasks_;
};

class held_timers final : public timers {
 public:
  timer_handle start(duration, unique_function<void()> fire) override {
    if (scarce) throw std::bad_alloc();
    waiting.push_back(std::move(fire));
    return {waiting.size()};
  }
  bool cancel(timer_handle) noexcept override { return false; }
  void fire() {
    for (auto& each : std::exchange(waiting, {})) each();
  }
  bool scarce = false;
  std::vector<unique_function<void()>> waiting;
};

struct word {
  unsigned number = 0;
};
struct hearer_protocol : protocol<control<word>> {
  static constexpr std::string_view name = "hearer";
};
class hearer final : public actor<hearer_protocol> {
 public:
  hearer(std::vector<unsigned>* heard, unsigned* starts) : heard_(heard), starts_(starts) {}
  void on(word w) { heard_->push_back(w.number); }

 private:
  void on_start() override { ++*starts_; }
  std::vector<unsigned>* heard_;
  unsigned* starts_;
};

struct stage {
  steady_clock clock;
  held_timers timers;
  scarce_context context;
  std::optional<actor_system> system{std::in_place, clock, timers};
  std::vector<unsigned> heard;
  unsigned starts = 0;

  ref<hearer_protocol> make(std::uint32_t drain_budget = 64) {
    spawn_options options;
    options.drain_budget = drain_budget;
    return spawn<hearer>(*system, context.get_executor(), std::move(options), &heard, &starts).value();
  }
};

const std::vector<unsigned> one{1}, one_two{1, 2}, one_two_three{1, 2, 3};

} // namespace

BOOST_AUTO_TEST_SUITE(owed_turns)

BOOST_FIXTURE_TEST_CASE(mail_whose_turn_had_no_memory_is_handled_without_another_send, stage) {
  auto r = make();
  context.run();
  context.scarce = true;
  BOOST_TEST((r.tell(word{1}) == enqueue_result::ok));
  context.run();
  BOOST_TEST(heard.empty());
  timers.fire(); // still none
  BOOST_TEST(timers.waiting.size() == 1U);
  context.scarce = false;
  timers.fire();
  context.run();
  BOOST_TEST((heard == one));
  BOOST_TEST(timers.waiting.empty());
}

BOOST_FIXTURE_TEST_CASE(an_actor_whose_first_turn_had_no_memory_starts_later, stage) {
  context.scarce = true;
  [[maybe_unused]] const auto kept = make();
  context.scarce = false;
  timers.fire();
  context.run();
  BOOST_TEST(starts == 1U);
}

BOOST_FIXTURE_TEST_CASE(a_send_to_another_actor_brings_what_is_owed, stage) {
  auto first = make(), second = make(), third = make();
  context.run();
  context.scarce = timers.scarce = true;
  (void)first.tell(word{1});
  (void)second.tell(word{2});
  context.run();
  BOOST_TEST(heard.empty());
  context.scarce = false;
  (void)third.tell(word{3});
  context.run();
  std::sort(heard.begin(), heard.end());
  BOOST_TEST((heard == one_two_three));
}

BOOST_FIXTURE_TEST_CASE(a_turn_that_could_not_post_the_next_goes_on_later, stage) {
  auto r = make(1);
  (void)r.tell(word{1});
  (void)r.tell(word{2});
  context.scarce = true; // the turn that is posted already hears one word and wants another turn
  context.run();
  BOOST_TEST((heard == one));
  context.scarce = false;
  timers.fire();
  context.run();
  BOOST_TEST((heard == one_two));
}

BOOST_FIXTURE_TEST_CASE(a_stop_is_not_lost_either, stage) {
  auto r = make();
  context.run();
  context.scarce = true;
  r.stop();
  context.scarce = false;
  timers.fire();
  context.run();
  BOOST_TEST(system->live_actors() == 0U);
}

BOOST_FIXTURE_TEST_CASE(actors_whose_turns_are_owed_can_be_ended_where_they_stand, stage) {
  auto first = make(), second = make();
  context.run();
  context.scarce = true;
  (void)first.tell(word{1});
  (void)second.tell(word{2});
  system.reset(); // the leak checker watches
  context.scarce = false;
  timers.fire();
  context.run();
  BOOST_TEST(heard.empty());
  BOOST_TEST((first.tell(word{3}) == enqueue_result::closed));
}

BOOST_AUTO_TEST_SUITE_END()
