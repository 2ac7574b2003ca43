// SPDX-License-Identifier: Apache-2.0
// The same actors on every kind of Asio executor, and the allocations of a hop.
#include "runtime/actor.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/execution.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/system_executor.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/test/unit_test.hpp>

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <latch>
#include <new>
#include <thread>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TROUPE_COUNT_ALLOCATIONS 0
#else
#define TROUPE_COUNT_ALLOCATIONS 1
#endif

using namespace troupe;
using namespace troupe::runtime;
namespace asio = boost::asio;

#if TROUPE_COUNT_ALLOCATIONS
namespace {
thread_local std::uint64_t allocations = 0;
thread_local std::uint64_t until_failure = 0; // allocations; 0: none fails
} // namespace
// Once inlined, g++ takes the malloc and free below for a mismatched pair.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void* operator new(std::size_t bytes) {
  ++allocations;
  if (until_failure != 0 && --until_failure == 0) throw std::bad_alloc();
  if (void* p = std::malloc(bytes != 0 ? bytes : 1)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
#endif

namespace {

struct count_up {
  unsigned sender = 0;
  unsigned number = 0;
};
struct finish {};
struct counter_protocol : protocol<stream<count_up>, control<finish>> {
  static constexpr std::string_view name = "counter";
};

struct tally {
  std::array<unsigned, 4> next{};
  unsigned wrong_order = 0;
  unsigned overlaps = 0;
  std::atomic<bool> inside{false};
  std::latch* done = nullptr;
};

// Notices every second handler at the same time and every message out of order.
class counter final : public actor<counter_protocol> {
 public:
  counter(tally* t, unsigned expected) : tally_(t), left_(expected) {}
  void on(count_up m) {
    if (tally_->inside.exchange(true)) ++tally_->overlaps;
    if (tally_->next[m.sender]++ != m.number) ++tally_->wrong_order;
    tally_->inside = false;
    if (--left_ == 0) stop();
  }
  void on(finish) { stop(); }

 private:
  void on_stop() noexcept override { tally_->done->count_down(); }
  tally* tally_;
  unsigned left_;
};

class null_timers final : public timers {
  timer_handle start(duration, unique_function<void()>) override { return {}; }
  bool cancel(timer_handle) noexcept override { return false; }
};

// The least that Asio asks of an executor: a queue, two threads, no properties but the two required ones.
class plain_context : public asio::execution_context {
 public:
  class executor_type {
   public:
    explicit executor_type(plain_context& c) noexcept : context_(&c) {}
    template<class Task>
    void execute(Task&& task) const {
      context_->push(std::forward<Task>(task));
    }
    asio::execution_context& query(asio::execution::context_t) const noexcept { return *context_; }
    static constexpr asio::execution::blocking_t::never_t query(asio::execution::blocking_t) noexcept {
      return asio::execution::blocking.never;
    }
    friend bool operator==(const executor_type&, const executor_type&) noexcept = default;

   private:
    plain_context* context_;
  };

  plain_context() {
    for (auto& t : threads_) t = std::thread([this] { work(); });
  }
  ~plain_context() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    ready_.notify_all();
    for (auto& t : threads_) t.join();
    shutdown();
    destroy();
  }
  executor_type get_executor() noexcept { return executor_type(*this); }

 private:
  void push(unique_function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    ready_.notify_one();
  }
  void work() {
    for (;;) {
      unique_function<void()> task;
      {
        std::unique_lock lock(mutex_);
        ready_.wait(lock, [this] { return closing_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<unique_function<void()>> tasks_;
  bool closing_ = false;
  std::array<std::thread, 2> threads_;
};

// Four foreign threads and four actors; every actor must see every sender's messages in order, one at a time.
void crowd(const asio::any_io_executor& executor) {
  constexpr unsigned actors = 4;
  constexpr unsigned senders = 4;
  constexpr unsigned messages = 1000;
  steady_clock clock;
  null_timers timers;
  actor_system system(clock, timers, {.stall_limit = {}});
  std::latch done(actors);
  std::array<tally, actors> tallies;
  std::array<ref<counter_protocol>, actors> refs;
  for (unsigned a = 0; a < actors; ++a) {
    tallies[a].done = &done;
    refs[a] = spawn<counter>(system, executor, {}, &tallies[a], senders * messages).value();
  }
  std::vector<std::thread> threads;
  for (unsigned s = 0; s < senders; ++s)
    threads.emplace_back([&, s] {
      for (unsigned i = 0; i < messages; ++i)
        for (const auto& r : refs)
          while (r.tell(count_up{s, i}) == enqueue_result::full) std::this_thread::yield();
    });
  for (auto& t : threads) t.join();
  done.wait();
  std::latch empty(1);
  system.when_empty([&] { empty.count_down(); });
  empty.wait();
  for (const auto& t : tallies) {
    BOOST_TEST(t.wrong_order == 0U);
    BOOST_TEST(t.overlaps == 0U);
    for (const auto n : t.next) BOOST_TEST(n == messages);
  }
  BOOST_TEST(system.live_actors() == 0U);
}

void crowd_on_context(unsigned threads) {
  asio::io_context context;
  auto guard = asio::make_work_guard(context);
  std::vector<std::thread> runners;
  for (unsigned i = 0; i < threads; ++i) runners.emplace_back([&] { context.run(); });
  crowd(context.get_executor());
  guard.reset();
  for (auto& t : runners) t.join();
}

} // namespace

BOOST_AUTO_TEST_SUITE(executors)

BOOST_AUTO_TEST_CASE(actors_run_on_an_io_context_with_one_thread) {
  crowd_on_context(1);
}
BOOST_AUTO_TEST_CASE(actors_run_on_an_io_context_with_two_threads) {
  crowd_on_context(2);
}
BOOST_AUTO_TEST_CASE(actors_run_on_a_thread_pool) {
  asio::thread_pool pool(4);
  crowd(pool.get_executor());
  pool.join();
}
BOOST_AUTO_TEST_CASE(actors_run_on_a_strand) {
  asio::thread_pool pool(2);
  crowd(asio::make_strand(pool));
  pool.join();
}
BOOST_AUTO_TEST_CASE(actors_run_on_a_type_erased_strand) {
  asio::thread_pool pool(2);
  crowd(asio::make_strand(asio::any_io_executor(pool.get_executor())));
  pool.join();
}
BOOST_AUTO_TEST_CASE(actors_run_on_a_minimal_executor_of_the_users) {
  plain_context context;
  crowd(context.get_executor());
}

BOOST_AUTO_TEST_CASE(a_context_destroyed_with_turns_still_queued_frees_the_actors) {
  steady_clock clock;
  null_timers timers;
  std::optional<actor_system> system(std::in_place, clock, timers);
  std::latch done(1);
  tally t;
  t.done = &done;
  ref<counter_protocol> r;
  {
    asio::io_context context;
    r = spawn<counter>(*system, context.get_executor(), {}, &t, 10U).value();
    BOOST_TEST((r.tell(count_up{0, 0}) == enqueue_result::ok));
  } // the queued turn dies with the context; the leak checker watches
  BOOST_TEST(t.next[0] == 0U);
  system.reset();
  BOOST_TEST((r.tell(count_up{0, 1}) == enqueue_result::closed));
}

BOOST_AUTO_TEST_CASE(a_system_destroyed_before_its_context_leaves_turns_that_do_nothing) {
  asio::io_context context;
  steady_clock clock;
  null_timers timers;
  std::latch done(1);
  tally t;
  t.done = &done;
  {
    actor_system system(clock, timers);
    auto r = spawn<counter>(system, context.get_executor(), {}, &t, 10U).value();
    BOOST_TEST((r.tell(count_up{0, 0}) == enqueue_result::ok));
  }
  context.run();
  BOOST_TEST(t.next[0] == 0U);
}

#if TROUPE_COUNT_ALLOCATIONS
namespace {

struct ball {
  std::uint64_t request = 0;
  unsigned hops_left = 0;
};
struct player_protocol : protocol<stream<ball>, state<finish>> {
  static constexpr std::string_view name = "player";
};
struct scores {
  std::uint64_t at_start = 0;
  std::uint64_t at_end = 0;
};
class player final : public actor<player_protocol> {
 public:
  player(ref<player_protocol>* other, scores* s) : other_(other), scores_(s) {}
  void on(ball m) {
    if (m.hops_left == 10'000) scores_->at_start = allocations;
    if (m.hops_left == 0) {
      scores_->at_end = allocations;
      return;
    }
    if (send(*other_, ball{m.request, m.hops_left - 1}) != enqueue_result::ok)
      throw std::runtime_error("refused");
    if (send(*other_, finish{}) != enqueue_result::ok)
      throw std::runtime_error("refused"); // a state message as well
  }
  void on(finish) {}

 private:
  ref<player_protocol>* other_;
  scores* scores_;
};

std::uint64_t allocations_of_a_rally(asio::io_context& context, const asio::any_io_executor& executor) {
  steady_clock clock;
  null_timers timers;
  actor_system system(clock, timers);
  scores s;
  ref<player_protocol> a, b;
  a = spawn<player>(system, executor, {}, &b, &s).value();
  b = spawn<player>(system, executor, {}, &a, &s).value();
  (void)a.tell(ball{1, 10'200}); // 200 hops to warm the caches up
  context.run();
  return s.at_end - s.at_start;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_hop_between_actors_allocates_nothing) {
  asio::io_context context(1);
  BOOST_TEST(allocations_of_a_rally(context, context.get_executor()) == 0U);
}
BOOST_AUTO_TEST_CASE(a_hop_on_a_strand_allocates_nothing) {
  asio::io_context context;
  BOOST_TEST(allocations_of_a_rally(context, asio::make_strand(context)) == 0U);
}
BOOST_AUTO_TEST_CASE(sends_from_a_foreign_thread_allocate_per_wake_up_at_most) {
  asio::io_context context;
  steady_clock clock;
  null_timers timers;
  actor_system system(clock, timers);
  std::latch done(1);
  tally t;
  t.done = &done;
  auto r = spawn<counter>(system, context.get_executor(), {}, &t, 1000U).value();
  const auto before = allocations;
  for (unsigned i = 0; i < 200; ++i) (void)r.tell(count_up{0, i}); // the spawn has posted the one wake-up
  BOOST_TEST(allocations == before);
  r.stop();
  context.run();
}
BOOST_AUTO_TEST_CASE(a_timer_for_which_there_was_no_memory_never_fires_and_disturbs_no_other) {
  asio::io_context context;
  asio_timers timers(context.get_executor());
  unsigned fired = 0, refused = 0;
  const auto count = [&fired] { ++fired; };
  (void)timers.start(std::chrono::milliseconds(2), count);
  for (bool failing = true; failing;) {
    until_failure = ++refused;
    try {
      (void)timers.start(std::chrono::milliseconds(1), count);
      failing = false;
      --refused;
    } catch (const std::bad_alloc&) {
    }
    until_failure = 0;
  }
  BOOST_TEST(refused > 0U);
  context.run();
  BOOST_TEST(fired == 2U);
}
#endif

BOOST_AUTO_TEST_SUITE_END()
