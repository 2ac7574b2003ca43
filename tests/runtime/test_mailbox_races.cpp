// SPDX-License-Identifier: Apache-2.0
// Litmus tests of the mailbox under real threads, and an exhaustive walk through a small model of its wake-up
// protocol.
#include "runtime/mailbox.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/test/unit_test.hpp>

#include <array>
#include <atomic>
#include <latch>
#include <set>
#include <thread>
#include <vector>

using namespace troupe::runtime;

namespace {

struct item {
  unsigned producer = 0;
  unsigned number = 0;
};
struct urgent {
  unsigned producer = 0;
  unsigned number = 0;
};
struct latest {
  unsigned producer = 0;
  unsigned number = 0;
};
struct bulky {
  std::vector<char> bytes;
  std::size_t payload_bytes() const noexcept { return bytes.size(); }
};

struct race_protocol : protocol<stream<item>, control<urgent>, state<latest>, admission<bulky>> {
  [[maybe_unused]] static constexpr std::string_view name = "race";
};

// A consumer that runs its drain task on a thread pool, exactly as an actor does.
class consumer {
 public:
  consumer(boost::asio::thread_pool& pool, const mailbox_limits& limits) : box(limits), pool_(pool) {}

  void wake() {
    if (box.signal()) boost::asio::post(pool_, [this] { drain(); });
  }

  mailbox<race_protocol> box;
  std::array<unsigned, 8> next_item{}; // per producer, as seen by the consumer
  std::array<unsigned, 8> next_urgent{};
  std::array<unsigned, 8> last_latest{};
  unsigned handled = 0;
  unsigned bulky_handled = 0;
  unsigned out_of_order = 0;
  unsigned overlaps = 0;
  latest newest{};
  unsigned close_after = 0; // handle that many, then close
  unsigned dead = 0;
  bool is_closed = false;

 private:
  void drain() {
    box.begin_run();
    if (inside_.exchange(true)) ++overlaps;
    bool more = false;
    for (int budget = 0;; ++budget) {
      if (budget == 7) { // small and odd, so that turns end in the middle of bursts
        more = true;
        break;
      }
      auto* node = box.next();
      if (node == nullptr) break;
      std::visit([this](auto& m) { see(m); }, *node->message);
      box.recycle(node);
      ++handled;
      if (close_after != 0 && handled == close_after && !is_closed) {
        is_closed = true;
        box.close([this](auto&) { ++dead; });
      }
    }
    inside_.store(false);
    if (box.end_run(more)) boost::asio::post(pool_, [this] { drain(); });
  }
  void see(const item& m) {
    if (m.number != next_item[m.producer]) ++out_of_order;
    next_item[m.producer] = m.number + 1;
  }
  void see(const urgent& m) {
    if (m.number != next_urgent[m.producer]) ++out_of_order;
    next_urgent[m.producer] = m.number + 1;
  }
  void see(const latest& m) {
    if (m.number < last_latest[m.producer]) ++out_of_order;
    last_latest[m.producer] = m.number;
    newest = m;
  }
  void see(const bulky&) { ++bulky_handled; }

  boost::asio::thread_pool& pool_;
  std::atomic<bool> inside_{false};
};

mailbox_limits roomy() {
  mailbox_limits limits;
  limits.stream = {64, 1 << 20};
  limits.control = {64, 1 << 20};
  limits.admission = {64, 4096};
  limits.control_burst = 4;
  return limits;
}

template<class Act>
void in_parallel(unsigned threads, const Act& act) {
  std::latch start(threads);
  std::vector<std::thread> all;
  for (unsigned t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      start.arrive_and_wait();
      act(t);
    });
  for (auto& t : all) t.join();
}

constexpr unsigned per_producer = 5000;

} // namespace

BOOST_AUTO_TEST_SUITE(mailbox_races)

BOOST_AUTO_TEST_CASE(no_message_or_wake_up_is_lost_and_each_producers_order_holds) {
  for (const unsigned producers : {1U, 2U, 4U}) {
    boost::asio::thread_pool pool(2);
    consumer c(pool, roomy());
    in_parallel(producers, [&](unsigned p) {
      for (unsigned i = 0; i < per_producer;) {
        if (c.box.push(item{p, i}, {}) != enqueue_result::ok) {
          std::this_thread::yield(); // full: the consumer is behind
          continue;
        }
        c.wake();
        ++i;
      }
    });
    pool.join(); // returns when no drain task is left: what is unhandled now has lost its wake-up
    BOOST_TEST(c.handled == producers * per_producer);
    BOOST_TEST(c.out_of_order == 0U);
    BOOST_TEST(c.overlaps == 0U);
    BOOST_TEST(c.box.depth() == 0U);
    BOOST_TEST((c.box.current_run_state() == mailbox_core::run_state::idle));
    BOOST_TEST(c.box.load(message_class::stream).messages == 0U);
    BOOST_TEST(c.box.load(message_class::stream).bytes == 0U);
  }
}

BOOST_AUTO_TEST_CASE(reserved_control_gets_through_whatever_else_is_full) {
  boost::asio::thread_pool pool(2);
  auto limits = roomy();
  limits.stream = {2, 1024};
  consumer c(pool, limits);
  unsigned refused = 0;
  in_parallel(4, [&](unsigned p) {
    for (unsigned i = 0; i < per_producer; ++i) {
      while (!c.box.reserve(1, sizeof(urgent))) std::this_thread::yield();
      (void)c.box.push(item{p, i}, {}); // noise; may be refused
      c.wake();
      if (c.box.push_reserved(urgent{p, i}, sizeof(urgent), {}) != enqueue_result::ok) ++refused;
      c.wake();
    }
  });
  pool.join();
  BOOST_TEST(refused == 0U);
  for (unsigned p = 0; p < 4; ++p) BOOST_TEST(c.next_urgent[p] == per_producer);
  BOOST_TEST(c.box.load(message_class::control).messages == 0U);
}

BOOST_AUTO_TEST_CASE(the_last_state_wins_whoever_sends_it) {
  for (const unsigned producers : {1U, 2U, 4U}) {
    boost::asio::thread_pool pool(2);
    consumer c(pool, roomy());
    in_parallel(producers, [&](unsigned p) {
      for (unsigned i = 1; i <= per_producer; ++i) {
        if (c.box.push(latest{p, i}, {}) != enqueue_result::ok) BOOST_ERROR("state is never refused");
        c.wake();
      }
    });
    pool.join();
    BOOST_TEST(c.newest.number == per_producer);
    BOOST_TEST(c.out_of_order == 0U);
    BOOST_TEST(c.handled + c.box.conflated() == producers * per_producer);
  }
}

BOOST_AUTO_TEST_CASE(a_close_leaves_every_accepted_message_handled_or_dead_exactly_once) {
  for (const unsigned when : {1U, 10U, 100U, 1000U}) {
    boost::asio::thread_pool pool(2);
    consumer c(pool, roomy());
    c.close_after = when;
    std::atomic<unsigned> accepted{0};
    in_parallel(4, [&](unsigned p) {
      for (unsigned i = 0;; ++i) { // until closed
        const auto r = i % 3 == 0 ? c.box.push(urgent{p, i / 3}, {}) : c.box.push(item{p, i}, {});
        if (r == enqueue_result::ok) accepted.fetch_add(1);
        if (r == enqueue_result::closed) return;
        if (r == enqueue_result::full) std::this_thread::yield();
        if (c.box.push(latest{p, i + 1}, {}) == enqueue_result::ok) accepted.fetch_add(1);
        c.wake();
      }
    });
    pool.join();
    BOOST_TEST(c.is_closed);
    BOOST_TEST(c.handled + c.dead + c.box.conflated() == accepted.load());
    BOOST_TEST(c.box.depth() == 0U);
    BOOST_TEST(c.box.load(message_class::stream).messages == 0U);
    BOOST_TEST(c.box.load(message_class::control).messages == 0U);
  }
}

BOOST_AUTO_TEST_CASE(the_byte_bound_holds_at_every_instant) {
  boost::asio::thread_pool pool(2);
  consumer c(pool, roomy());
  std::atomic<unsigned> accepted{0};
  std::atomic<unsigned> over{0};
  in_parallel(4, [&](unsigned p) {
    for (unsigned i = 0; i < per_producer; ++i) {
      bulky m{std::vector<char>(100 + (i * 37 + p * 101) % 1500)};
      if (c.box.push(std::move(m), {}) == enqueue_result::ok) accepted.fetch_add(1);
      if (c.box.load(message_class::admission).bytes > 4096) over.fetch_add(1);
      c.wake();
    }
  });
  pool.join();
  BOOST_TEST(over.load() == 0U);
  BOOST_TEST(accepted.load() == c.bulky_handled);
  BOOST_TEST(accepted.load() > 0U);
  BOOST_TEST(c.box.load(message_class::admission).bytes == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

namespace {

// The wake-up protocol with one atomic access per step. Producers: link a message; try idle -> scheduled;
// post when that worked. Consumer task: running; take all; look again; idle; look again; try idle ->
// scheduled; post. `looks_again` is what the real code does; without it the walk must find a lost wake-up.
struct model {
  static constexpr int producers = 2;
  static constexpr int messages = 2; // per producer
  enum class flag : std::uint8_t { idle, scheduled, running };
  enum class task : std::uint8_t { none, posted, took, looked, idled, rechecks, swaps };

  struct state {
    std::array<std::uint8_t, producers> at{}; // 2 * message + (0: link, 1: signal)
    std::uint8_t queued = 0;
    std::uint8_t handled = 0;
    flag run = flag::idle;
    std::array<task, 6> tasks{}; // at most one of them before its `idled` step is done
    auto operator<=>(const state&) const = default;
  };

  bool looks_again = true;
  bool lost = false;
  bool overlapped = false;
  std::size_t states = 0;
  std::set<state> seen;

  void post(state& s) {
    for (auto& t : s.tasks)
      if (t == task::none) {
        t = task::posted;
        return;
      }
    overlapped = true;
  }

  void walk(const state& s) {
    if (!seen.insert(s).second) return;
    ++states;
    bool moved = false;
    for (std::size_t p = 0; p < producers; ++p) {
      if (s.at[p] == 2 * messages) continue;
      moved = true;
      state n = s;
      ++n.at[p];
      if (s.at[p] % 2 == 0) {
        ++n.queued;
      } else if (n.run == flag::idle) {
        n.run = flag::scheduled;
        post(n);
      }
      walk(n);
    }
    int inside = 0;
    for (std::size_t t = 0; t < s.tasks.size(); ++t) {
      if (s.tasks[t] == task::none) continue;
      if (s.tasks[t] < task::rechecks) ++inside;
      moved = true;
      walk(step(s, t));
    }
    if (inside > 1) overlapped = true;
    if (!moved && s.handled != producers * messages) lost = true;
  }

  state step(state n, std::size_t t) {
    auto& at = n.tasks[t];
    switch (at) {
    case task::posted:
      n.run = flag::running;
      at = task::took;
      break;
    case task::took:
      n.handled = static_cast<std::uint8_t>(n.handled + n.queued);
      n.queued = 0;
      at = task::looked;
      break;
    case task::looked:
      if (n.queued != 0) {
        n.run = flag::scheduled;
        at = task::posted;
      } else {
        at = task::idled;
      }
      break;
    case task::idled:
      n.run = flag::idle;
      at = looks_again ? task::rechecks : task::none;
      break;
    case task::rechecks:
      at = n.queued != 0 ? task::swaps : task::none;
      break;
    case task::swaps:
      at = task::none;
      if (n.run == flag::idle) {
        n.run = flag::scheduled;
        at = task::posted;
      }
      break;
    case task::none:
      break;
    }
    return n;
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(mailbox_model)

BOOST_AUTO_TEST_CASE(no_interleaving_loses_a_wake_up) {
  model m;
  m.walk({});
  BOOST_TEST(!m.lost);
  BOOST_TEST(!m.overlapped);
  BOOST_TEST(m.states > 100U);
}

BOOST_AUTO_TEST_CASE(the_walk_finds_the_lost_wake_up_of_a_consumer_that_does_not_look_again) {
  model m;
  m.looks_again = false;
  m.walk({});
  BOOST_TEST(m.lost);
}

BOOST_AUTO_TEST_SUITE_END()
