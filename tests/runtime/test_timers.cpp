// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/virtual_timers.hpp"
#include "runtime/timers.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/test/unit_test.hpp>

#include <atomic>
#include <thread>
#include <vector>

using namespace troupe;
using namespace troupe::runtime;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(timing)

BOOST_AUTO_TEST_CASE(virtual_timers_fire_in_order_of_due_time_then_of_start) {
  virtual_clock clock;
  sim::virtual_timers timers(clock);
  std::vector<int> fired;
  timers.start(20ms, [&] { fired.push_back(3); });
  timers.start(10ms, [&] { fired.push_back(1); });
  timers.start(10ms, [&] {
    fired.push_back(2);
    timers.start(-5ms, [&] { fired.push_back(20); }); // due at once
  });
  BOOST_TEST((timers.next_due() == time_point(10ms)));
  while (timers.fire_next()) {
  }
  BOOST_TEST((fired == std::vector<int>{1, 2, 20, 3}));
  BOOST_TEST((clock.now() == time_point(20ms)));
  BOOST_TEST(!timers.next_due());
}

BOOST_AUTO_TEST_CASE(a_cancelled_virtual_timer_never_fires) {
  virtual_clock clock;
  sim::virtual_timers timers(clock);
  int fired = 0;
  const auto a = timers.start(1ms, [&] { ++fired; });
  BOOST_TEST(timers.cancel(a));
  BOOST_TEST(!timers.cancel(a));
  BOOST_TEST(!timers.cancel({}));
  BOOST_TEST(!timers.fire_next());
  BOOST_TEST(fired == 0);
}

BOOST_AUTO_TEST_CASE(lateness_is_a_fault_point) {
  virtual_clock clock;
  sim::virtual_timers timers(clock);
  timers.lateness = [] { return duration(7ms); };
  timers.start(3ms, [] {});
  BOOST_TEST((timers.next_due() == time_point(10ms)));
}

BOOST_AUTO_TEST_CASE(virtual_time_never_goes_back) {
  virtual_clock clock;
  clock.advance(5ms);
  clock.advance_to(time_point(3ms));
  clock.advance(-1ms);
  BOOST_TEST((clock.now() == time_point(5ms)));
}

BOOST_AUTO_TEST_CASE(asio_timers_fire_in_order_and_not_before_they_are_due) {
  boost::asio::io_context context;
  asio_timers timers(context.get_executor());
  std::vector<int> fired;
  const auto begin = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last;
  timers.start(4ms, [&] {
    fired.push_back(2);
    last = std::chrono::steady_clock::now();
    timers.start(0ms, [&] { fired.push_back(3); });
  });
  timers.start(1ms, [&] { fired.push_back(1); });
  const auto cancelled = timers.start(2ms, [&] { fired.push_back(99); });
  const auto far = timers.start(1h, [&] { fired.push_back(100); });
  BOOST_TEST(timers.cancel(cancelled));
  timers.start(5ms, [&] { BOOST_TEST(timers.cancel(far)); });
  BOOST_TEST(fired.empty()); // never inside start
  context.run();             // returns: nothing waits any more
  BOOST_TEST((fired == std::vector<int>{1, 2, 3}));
  BOOST_TEST((last - begin >= 4ms));
}

BOOST_AUTO_TEST_CASE(destroying_asio_timers_cancels_what_waits) {
  boost::asio::io_context context;
  auto token = std::make_shared<int>(1);
  {
    asio_timers timers(context.get_executor());
    timers.start(1h, [token] { BOOST_ERROR("must not fire"); });
    BOOST_TEST(token.use_count() == 2);
  }
  BOOST_TEST(token.use_count() == 1);
  context.run();
}

BOOST_AUTO_TEST_CASE(a_context_may_be_destroyed_while_timers_wait) {
  auto token = std::make_shared<int>(1);
  std::optional<boost::asio::io_context> context(std::in_place);
  std::optional<asio_timers> timers(std::in_place, context->get_executor());
  timers->start(1h, [token] {});
  timers.reset();
  context.reset();
  BOOST_TEST(token.use_count() == 1);
}

BOOST_AUTO_TEST_CASE(each_asio_timer_is_either_fired_or_cancelled_whoever_races) {
  boost::asio::thread_pool pool(2);
  asio_timers timers(pool.get_executor());
  constexpr int per_thread = 500;
  std::atomic<int> fired{0};
  std::atomic<int> cancelled{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < per_thread; ++i) {
        const auto h = timers.start(std::chrono::microseconds((i * 7 + t) % 50), [&] { fired.fetch_add(1); });
        if (i % 3 == 0) std::this_thread::yield();
        if (i % 2 == 0 && timers.cancel(h)) cancelled.fetch_add(1);
      }
    });
  for (auto& t : threads) t.join();
  pool.join(); // returns when no timer waits
  BOOST_TEST(fired + cancelled == 4 * per_thread);
}

BOOST_AUTO_TEST_SUITE_END()
