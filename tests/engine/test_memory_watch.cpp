// SPDX-License-Identifier: Apache-2.0
// What is given up as memory runs short, and in which order it comes back.
#include "engine/memory_watch.hpp"
#include "engine_fixture.hpp"

#include <filesystem>
#include <fstream>
#include <new>
#include <unistd.h>

using namespace troupe;
using detail::memory_level;
using detail::memory_sample;
using detail::memory_watch;
using test::answer;

namespace {

memory_sample at(double use) {
  return {static_cast<std::uint64_t>(1e6 * use), static_cast<std::uint64_t>(1e6 - 1e6 * use), 0};
}

/// 0.9 and 0.8 of the limit, a batch of 16.
memory_watch watch() {
  return memory_watch({16, 0.9, 0.8});
}

} // namespace

BOOST_AUTO_TEST_SUITE(memory_watching)

BOOST_AUTO_TEST_CASE(the_batch_shrinks_before_the_cache_goes) {
  memory_watch w = watch();
  BOOST_TEST(!w.observe(at(0.89)));
  BOOST_TEST((w.level() == memory_level::normal));
  BOOST_TEST(w.batch() == 16U);
  std::vector<std::uint32_t> batches;
  std::vector<memory_level> levels;
  for (int i = 0; i < 6; ++i) {
    w.observe(at(0.95));
    batches.push_back(w.batch());
    levels.push_back(w.level());
  }
  BOOST_TEST(batches == (std::vector<std::uint32_t>{8, 4, 4, 1, 1, 1}), boost::test_tools::per_element());
  BOOST_TEST((levels[1] == memory_level::batch));
  BOOST_TEST((levels[2] == memory_level::cache));
  BOOST_TEST(w.batch_shrinks() == 3U);
  BOOST_TEST(w.cache_shrinks() == 1U);
}

BOOST_AUTO_TEST_CASE(between_the_watermarks_nothing_changes) {
  memory_watch w = watch();
  w.observe(at(0.9));
  for (std::uint32_t i = 0; i < 10 * memory_watch::calm_samples; ++i) BOOST_TEST(!w.observe(at(0.85)));
  BOOST_TEST(w.step() == 1U);
}

BOOST_AUTO_TEST_CASE(things_come_back_one_by_one_after_calm_in_a_row) {
  memory_watch w = watch();
  for (int i = 0; i < 4; ++i) w.observe(at(1.0));
  for (std::uint32_t i = 0; i + 1 < memory_watch::calm_samples; ++i) BOOST_TEST(!w.observe(at(0.5)));
  BOOST_TEST(!w.observe(at(0.85))); // not in a row
  for (std::uint32_t i = 0; i + 1 < memory_watch::calm_samples; ++i) BOOST_TEST(!w.observe(at(0.5)));
  BOOST_TEST(w.observe(at(0.5)));
  BOOST_TEST(w.step() == 3U);
  for (std::uint32_t i = 0; i < 3 * memory_watch::calm_samples; ++i) w.observe(at(0.5));
  BOOST_TEST((w.level() == memory_level::normal));
  BOOST_TEST(w.batch() == 16U);
  BOOST_TEST(w.recoveries() == 4U);
  BOOST_TEST(!w.observe(at(0.5)));
}

BOOST_AUTO_TEST_CASE(a_sample_that_could_not_be_read_changes_nothing) {
  memory_watch w = watch();
  w.observe(at(1.0));
  for (int i = 0; i < 20; ++i) BOOST_TEST(!w.observe({}));
  BOOST_TEST(w.step() == 1U);
}

BOOST_AUTO_TEST_CASE(a_batch_of_one_stays_one) {
  memory_watch w({1, 0.9, 0.8});
  for (int i = 0; i < 4; ++i) {
    w.observe(at(1.0));
    BOOST_TEST(w.batch() == 1U);
  }
}

BOOST_AUTO_TEST_CASE(no_limit_is_no_use) {
  const memory_sample free{1 << 20, std::numeric_limits<std::uint64_t>::max(), 0};
  BOOST_TEST(free.use() < 1e-6);
  BOOST_TEST(at(0.25).use() == 0.25);
  BOOST_TEST(memory_sample{}.use() == 0);
}

BOOST_AUTO_TEST_CASE(a_control_groups_limit_counts_what_it_leaves) {
  const auto root = std::filesystem::temp_directory_path() / ("troupe-memory-" + std::to_string(getpid()));
  const auto put = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  };
  put("proc/self/statm", "5000 100 10 2 0 400 0\n");
  put("proc/self/cgroup", "0::/job\n");
  put("proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 900000 kB\n");
  put("sys/fs/cgroup/job/memory.max", "4194304\n");
  put("sys/fs/cgroup/job/memory.current", "3145728\n");
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const memory_sample sample = detail::read_memory_sample(root.string());
  BOOST_TEST(sample.resident == 100 * page);
  BOOST_TEST(sample.mapped == 400 * page);
  BOOST_TEST(sample.left == 1U << 20);
  std::filesystem::remove_all(root);
}

BOOST_AUTO_TEST_CASE(this_process_can_be_read) {
  const memory_sample sample = detail::read_memory_sample();
  BOOST_TEST(sample.resident > 1U << 20);
  BOOST_TEST(sample.mapped > 0U);
}

BOOST_AUTO_TEST_SUITE_END()

namespace {

/// An engine whose memory is what the test says; each look is asked for by a request that comes.
struct squeezed_engine : test::engine_fixture {
  memory_sample now = at(0.5);
  std::uint32_t looks = 0;

  void begin() {
    options.memory_interval_ms = 1;
    options.memory_high_watermark = 0.9;
    options.memory_low_watermark = 0.8;
    auto around = environment();
    around.read_memory = [this] {
      ++looks;
      return now;
    };
    start(std::move(around));
  }
  /// Until the engine has looked so many more times; a request that takes nothing keeps it at work.
  void look(std::uint32_t times) {
    const std::uint32_t until = looks + times;
    while (looks < until) (void)finish(ask({1, 2, 3}, 1));
  }
};

} // namespace

BOOST_FIXTURE_TEST_SUITE(an_engine_short_of_memory, squeezed_engine)

BOOST_AUTO_TEST_CASE(gives_up_batch_and_cache_and_answers_all_the_same) {
  begin();
  const auto calm = finish(ask({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 12));
  BOOST_TEST(engine->stats().kv_cached > 0U);
  now = at(0.95);
  look(4);
  engine_stats stats = engine->stats();
  BOOST_TEST(stats.memory.level == "cache");
  BOOST_TEST(stats.memory.batch == 1U);
  BOOST_TEST(stats.memory.resident == now.resident);
  BOOST_TEST(stats.memory.limit == 1'000'000U);
  BOOST_TEST(stats.kv_cached == 0U);
  BOOST_TEST(stats.memory.forgotten_blocks > 0U);
  BOOST_TEST(stats.memory.discarded > 0U);
  const auto squeezed = finish(ask({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 12));
  BOOST_TEST(squeezed->ids == calm->ids, boost::test_tools::per_element());
  BOOST_TEST(engine->stats().kv_cached == 0U);
  now = at(0.5);
  look(4 * memory_watch::calm_samples);
  stats = engine->stats();
  BOOST_TEST(stats.memory.level == "normal");
  BOOST_TEST(stats.memory.batch == options.max_batch);
  BOOST_TEST(stats.memory.recoveries == 4U);
  (void)finish(ask({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 12));
  BOOST_TEST(engine->stats().kv_cached > 0U);
  BOOST_TEST(stats.kv_free + stats.kv_cached == stats.kv_total);
}

BOOST_AUTO_TEST_CASE(gets_back_what_it_gave_up_when_the_watch_is_turned_off) {
  begin();
  now = at(0.95);
  look(4);
  BOOST_TEST(engine->stats().memory.batch == 1U);
  engine_options wanted = options;
  wanted.memory_interval_ms = 0;
  BOOST_REQUIRE(engine->reconfigure(wanted).has_value());
  BOOST_TEST(engine->stats().memory.batch == options.max_batch);
  BOOST_TEST(engine->stats().memory.level == "normal");
  const std::uint32_t seen = looks;
  host->backend_of_test->most_sequences = 0;
  std::vector<stream> streams;
  std::vector<std::shared_ptr<answer>> answers;
  streams.reserve(4);
  for (std::int32_t i = 0; i < 4; ++i) {
    streams.push_back(engine->submit(ask({i, 2, 3}, 6)));
    answers.push_back(std::make_shared<answer>());
    collect(streams.back(), answers.back());
  }
  run_until([&] { return std::ranges::all_of(answers, [](auto& a) { return a->terminal > 0; }); });
  BOOST_TEST(host->backend_of_test->most_sequences > 1U);
  BOOST_TEST(engine->stats().kv_cached > 0U);
  BOOST_TEST(looks == seen);
}

BOOST_AUTO_TEST_CASE(goes_on_when_there_is_no_memory_to_look_at_memory) {
  options.memory_interval_ms = 1;
  auto around = environment();
  around.read_memory = [this]() -> memory_sample {
    ++looks;
    throw std::bad_alloc();
  };
  start(std::move(around));
  look(3);
  BOOST_TEST(engine->stats().memory.level == "normal");
}

BOOST_AUTO_TEST_CASE(runs_one_sequence_at_a_time_when_there_is_no_more) {
  begin();
  now = at(0.95);
  look(4);
  std::vector<stream> streams;
  std::vector<std::shared_ptr<answer>> answers;
  streams.reserve(6);
  host->backend_of_test->most_sequences = 0;
  for (std::int32_t i = 0; i < 6; ++i) {
    streams.push_back(engine->submit(ask({i, 2, 3}, 6)));
    answers.push_back(std::make_shared<answer>());
    collect(streams.back(), answers.back());
  }
  run_until([&] { return std::ranges::all_of(answers, [](auto& a) { return a->terminal > 0; }); });
  for (const auto& a : answers) BOOST_TEST(a->ids.size() == 6U);
  BOOST_TEST(host->backend_of_test->most_sequences == 1U);
}

BOOST_AUTO_TEST_CASE(keeps_no_timer_while_nothing_is_in_hand) {
  begin();
  look(1);
  turn();
  const std::uint32_t seen = looks;
  io.restart();
  io.run(); // comes back: nothing is waited for
  BOOST_TEST(looks == seen);
}

BOOST_AUTO_TEST_CASE(new_options_reach_requests_that_come_after_them) {
  begin();
  engine_options wanted = options;
  wanted.tenant_max_live = 1;
  wanted.max_queue = options.max_queue + 1;
  BOOST_TEST(!engine->reconfigure(wanted)); // the mailboxes have no room for it
  wanted.max_queue = options.max_queue;
  BOOST_TEST(engine->reconfigure(wanted).has_value());
  host->backend_of_test->held = true;
  stream first = engine->submit(ask({1, 2}, 4));
  auto one = std::make_shared<answer>();
  collect(first, one);
  run_until([&] { return host->backend_of_test->steps > 0; });
  const auto two = finish(ask({1, 2}, 4));
  BOOST_REQUIRE(two->failed);
  BOOST_TEST((two->failed->code == errc::tenant_busy));
  host->backend_of_test->held = false;
  host->backend_of_test->release();
  run_until([&] { return one->terminal > 0; });
  BOOST_TEST(one->ids.size() == 4U);
}

BOOST_AUTO_TEST_SUITE_END()
