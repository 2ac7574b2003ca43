// SPDX-License-Identifier: Apache-2.0
#include "runtime/compute_pool.hpp"
#include "runtime/fp_state.hpp"
#include "runtime/rng.hpp"
#include "tests/memory_limit.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/test/unit_test.hpp>

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

using namespace troupe::runtime;

namespace {

// A chain of phases: phase p writes row p from row p - 1, so that any tile run early, late, twice or not at
// all shows.
struct chain {
  chain(std::size_t phases, std::uint32_t tiles) :
      width(tiles), rows(phases + 1, std::vector<std::uint64_t>(tiles)), runs(phases) {
    std::iota(rows[0].begin(), rows[0].end(), 1);
    for (std::size_t p = 0; p < phases; ++p) {
      runs[p] = {this, p};
      program.push_back(
          {tiles, static_cast<std::uint32_t>(1 + p % 3), &tile, &runs[p], p % 2 ? "odd" : "even"});
    }
  }
  struct op {
    chain* owner;
    std::size_t index;
  };
  static void tile(void* context, const void* opaque, std::uint32_t t, std::uint32_t slot) noexcept {
    const auto& self = *static_cast<const op*>(opaque);
    auto& c = *self.owner;
    if (context != &c) c.wrong_context = true;
    const auto& in = c.rows[self.index];
    // Reads a far tile of the phase before: a barrier that leaks would give another number.
    c.rows[self.index + 1][t] += in[t] * 3 + in[(t + c.width / 2) % c.width] + 1;
    c.slots_seen.fetch_or(1ULL << slot, std::memory_order_relaxed);
    if (c.disturb != 0 && random_bits(c.disturb, self.index, t) % 16 == 0) std::this_thread::yield();
  }
  std::vector<std::uint64_t> expected() const {
    auto row = rows[0];
    for (std::size_t p = 0; p < runs.size(); ++p) {
      auto next = row;
      for (std::size_t t = 0; t < width; ++t) next[t] = row[t] * 3 + row[(t + width / 2) % width] + 1;
      row = next;
    }
    return row;
  }
  void clear() {
    for (std::size_t p = 1; p < rows.size(); ++p) std::fill(rows[p].begin(), rows[p].end(), 0);
  }

  std::size_t width;
  std::vector<std::vector<std::uint64_t>> rows;
  std::vector<op> runs;
  std::vector<phase> program;
  std::atomic<std::uint64_t> slots_seen{0};
  std::atomic<bool> wrong_context{false};
  std::uint64_t disturb = 0;
};

compute_pool_options with_threads(unsigned n) {
  compute_pool_options options;
  options.threads = n;
  return options;
}

} // namespace

BOOST_AUTO_TEST_SUITE(compute)

BOOST_AUTO_TEST_CASE(phases_run_in_order_with_every_tile_once) {
  for (unsigned threads = 1; threads <= 4; ++threads) {
    compute_pool pool(with_threads(threads));
    for (const std::uint32_t tiles : {1U, 2U, 7U, 64U, 1000U}) {
      chain c(50, tiles);
      const auto expected = c.expected();
      for (int round = 0; round < 20; ++round) {
        c.clear();
        pool.sync([&](compute_pool& p) { p.run(c.program, &c); });
        BOOST_TEST_REQUIRE((c.rows.back() == expected));
      }
      BOOST_TEST(!c.wrong_context);
      BOOST_TEST((c.slots_seen >> threads) == 0U);
    }
  }
}

BOOST_AUTO_TEST_CASE(random_yields_inside_tiles_change_nothing) {
  for (unsigned threads = 1; threads <= 4; ++threads) {
    compute_pool pool(with_threads(threads));
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      chain c(40, 33);
      c.disturb = seed;
      pool.sync([&](compute_pool& p) { p.run(c.program, &c); });
      BOOST_TEST_REQUIRE((c.rows.back() == c.expected()));
    }
  }
}

namespace {

// Holds every worker in its start-up hook until told.
struct late_workers {
  compute_pool_options options(unsigned threads) {
    auto o = with_threads(threads);
    o.on_thread_start = [this](std::uint32_t slot) {
      if (slot != 0) release.wait(false);
    };
    return o;
  }
  void let_in() {
    release = true;
    release.notify_all();
  }
  std::atomic<bool> release{false};
};

struct two_tiles {
  late_workers* workers;
  std::atomic<bool> other_ran{false};
  static void tile(void* context, const void*, std::uint32_t, std::uint32_t slot) noexcept {
    auto& self = *static_cast<two_tiles*>(context);
    if (slot == 0) {
      self.workers->let_in(); // in the middle of the region
      self.other_ran.wait(false);
    } else {
      self.other_ran = true;
      self.other_ran.notify_all();
    }
  }
};

struct blocked_worker {
  std::uint32_t tiles;
  std::atomic<std::uint32_t> ran{0};
  std::atomic<std::uint32_t> by_worker{0};
  static void tile(void* context, const void*, std::uint32_t, std::uint32_t slot) noexcept {
    auto& self = *static_cast<blocked_worker*>(context);
    if (slot == 0) {
      self.by_worker.wait(0);
    } else if (self.by_worker.fetch_add(1) == 0) {
      self.by_worker.notify_all();
      // As if preempted: does not go on before everyone else has finished all other tiles.
      for (auto n = self.ran.load(); n != self.tiles - 1; n = self.ran.load()) self.ran.wait(n);
    }
    self.ran.fetch_add(1);
    self.ran.notify_all();
  }
};

} // namespace

BOOST_AUTO_TEST_CASE(the_dispatcher_finishes_a_region_whose_workers_never_joined) {
  late_workers workers;
  compute_pool pool(workers.options(3));
  chain c(30, 100);
  pool.sync([&](compute_pool& p) { p.run(c.program, &c); });
  BOOST_TEST((c.rows.back() == c.expected()));
  BOOST_TEST(c.slots_seen == 1U);
  workers.let_in();
}

BOOST_AUTO_TEST_CASE(a_worker_joins_in_the_middle_of_a_region) {
  late_workers workers;
  compute_pool pool(workers.options(2));
  two_tiles both{&workers};
  std::vector<phase> program(
      10, phase{1, 1, [](void*, const void*, std::uint32_t, std::uint32_t) noexcept {}, nullptr, "before"});
  program.push_back({2, 1, &two_tiles::tile, nullptr, "meet"});
  pool.sync([&](compute_pool& p) { p.run(program, &both); }); // ends only if the worker took the second tile
  BOOST_TEST(both.other_ran);
}

BOOST_AUTO_TEST_CASE(the_share_of_a_stuck_worker_is_finished_by_the_others) {
  compute_pool pool(with_threads(2));
  for (const std::uint32_t tiles : {2U, 5U, 64U}) {
    blocked_worker b{tiles};
    const phase program[] = {{tiles, 1, &blocked_worker::tile, nullptr, "stuck"}};
    pool.sync([&](compute_pool& p) { p.run(program, &b); });
    BOOST_TEST(b.ran == tiles);
    BOOST_TEST(b.by_worker >= 1U);
  }
}

BOOST_AUTO_TEST_CASE(empty_programs_and_empty_phases_are_passed_over) {
  compute_pool pool(with_threads(2));
  pool.sync([&](compute_pool& p) { p.run({}, nullptr); });
  chain c(3, 10);
  c.program.insert(c.program.begin(), phase{});
  c.program.insert(c.program.begin() + 2, phase{});
  c.program.push_back(phase{});
  pool.sync([&](compute_pool& p) {
    p.run(c.program, &c);
    const phase nothing[] = {{}, {}};
    p.run(nothing, nullptr);
  });
  BOOST_TEST((c.rows.back() == c.expected()));
}

BOOST_AUTO_TEST_CASE(steps_run_one_after_the_other_and_complete_on_the_callers_executor) {
  compute_pool pool(with_threads(2));
  boost::asio::io_context context;
  const auto caller = std::this_thread::get_id();
  std::vector<int> order; // written by the dispatcher, read after run()
  int completed = 0;
  for (int i = 0; i < 5; ++i)
    pool.async(
        [&, i](compute_pool& p) {
          if (p.on_dispatcher()) order.push_back(i);
        },
        context.get_executor(),
        [&] {
          BOOST_TEST((std::this_thread::get_id() == caller));
          ++completed;
        });
  context.run(); // returns only after the last completion: each step counts as work
  BOOST_TEST(completed == 5);
  BOOST_TEST((order == std::vector<int>{0, 1, 2, 3, 4}));
  BOOST_TEST(!pool.on_dispatcher());
}

BOOST_AUTO_TEST_CASE(the_destructor_runs_what_was_accepted) {
  int ran = 0;
  {
    compute_pool pool(with_threads(3));
    for (int i = 0; i < 10; ++i) pool.async([&](compute_pool&) { ++ran; }, {});
  }
  BOOST_TEST(ran == 10);
}

BOOST_AUTO_TEST_CASE(the_profile_counts_phases_by_name) {
  compute_pool pool(with_threads(2));
  chain c(10, 8);
  pool.sync([&](compute_pool& p) {
    p.run(c.program, &c);
    p.run(c.program, &c);
  });
  const auto profile = pool.profile();
  BOOST_REQUIRE(profile.size() == 2U);
  BOOST_TEST(profile[0].name == "even");
  BOOST_TEST(profile[0].calls == 10U);
  BOOST_TEST(profile[1].tiles == 80U);
  BOOST_TEST(profile[0].wall_ns > 0U);
  pool.reset_profile();
  BOOST_TEST(pool.profile().empty());
}

BOOST_AUTO_TEST_CASE(
    threads_that_cannot_all_start_are_an_exception_and_none_is_left,
    *boost::unit_test::enable_if<troupe::test::memory_can_be_limited>()) {
  const troupe::test::memory_limit limit(128U << 20);
  BOOST_CHECK_THROW(compute_pool(with_threads(1024)), std::exception);
}

#if defined(__x86_64__)
BOOST_AUTO_TEST_CASE(a_tile_that_changes_the_rounding_mode_is_caught_by_name_and_undone) {
  compute_pool pool(with_threads(2));
  const phase program[] = {
      {4, 1,
       [](void*, const void*, std::uint32_t t, std::uint32_t) noexcept {
         if (t == 2) fp_state{0x1F80 | 0x8040, 0x037F}.apply();
       },
       nullptr, "flushes to zero"},
      {4, 1,
       [](void*, const void*, std::uint32_t t, std::uint32_t) noexcept {
         if (t == 1) fp_state{0x1F80, 0x027F}.apply();
       },
       nullptr, "x87 to double"},
      {4, 1,
       [](void* ok, const void*, std::uint32_t, std::uint32_t) noexcept {
         if (!(fp_state::current() == fp_state{})) static_cast<std::atomic<bool>*>(ok)->store(false);
       },
       nullptr, "checks"}};
  std::atomic<bool> clean{true};
  pool.sync([&](compute_pool& p) { p.run(program, &clean); });
  BOOST_TEST(clean);
  BOOST_TEST(pool.fp_state_faults() == 2U);
  BOOST_TEST(pool.last_fp_fault() == "x87 to double");
}
#endif

BOOST_AUTO_TEST_SUITE_END()
