// SPDX-License-Identifier: Apache-2.0
// Preempted requests whose KV blocks are kept in memory and on disk: over the tiny model, and step by step.
#include "engine_fixture.hpp"
#include "public_engine.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <vector>

using namespace troupe;
namespace asio = boost::asio;

namespace {

engine_options tiny_model() {
  engine_options o = test::tiny_model();
  o.park_always = true;
  return o;
}

struct served {
  std::vector<std::vector<std::int32_t>> ids;
  engine_stats stats;
};

/// Prompts of many lengths at once, and what became of their blocks.
served serve(const engine_options& o, std::size_t count = 12) {
  asio::io_context io{1};
  engine one(io.get_executor(), o);
  BOOST_REQUIRE(test::start_of(one, io).has_value());
  served all;
  all.ids.resize(count);
  std::size_t ended = 0;
  for (std::size_t i = 0; i < count; ++i) {
    request what;
    std::vector<std::int32_t> prompt;
    for (std::size_t k = 0; k < 5 + 7 * i; ++k) prompt.push_back(static_cast<std::int32_t>(3 + (k * i) % 50));
    what.prompt = std::move(prompt);
    what.max_tokens = 40;
    what.ignore_eos = true;
    what.sampling.temperature = 0;
    one.async_generate(std::move(what), [&all, &ended, i](result<completion> r) {
      BOOST_TEST(r.has_value());
      if (r) all.ids[i] = r->token_ids;
      ++ended;
    });
  }
  io.run();
  BOOST_TEST(ended == count);
  all.stats = one.stats();
  BOOST_TEST(all.stats.parked == 0U);
  BOOST_TEST(all.stats.park_memory + all.stats.park_disk == 0U);
  BOOST_TEST(all.stats.kv_leased + all.stats.kv_limbo == 0U);
  const engine_stats& s = all.stats;
  BOOST_TEST(s.parks == s.resumes + s.resumes_failed + s.parks_failed + s.parks_dropped);
  return all;
}

std::string start_failure(const engine_options& o, std::string& param) {
  asio::io_context io{1};
  engine one(io.get_executor(), o);
  const auto started = test::start_of(one, io);
  BOOST_REQUIRE(!started.has_value());
  param = started.error().param;
  return started.error().message;
}

} // namespace

BOOST_AUTO_TEST_SUITE(parking)

BOOST_AUTO_TEST_CASE(tokens_are_the_same_through_memory_and_nothing_is_computed_twice) {
  engine_options o = tiny_model();
  const served alone = serve(o);
  o.preempt_every = 2;
  o.prefix_cache = false;
  o.park_ram_bytes = 4U << 20;
  const served parked = serve(o);
  for (std::size_t i = 0; i < alone.ids.size(); ++i)
    BOOST_TEST(parked.ids[i] == alone.ids[i], boost::test_tools::per_element());
  BOOST_TEST(parked.stats.resumes > 5U);
  BOOST_TEST(parked.stats.recomputed_tokens == 0U);
  BOOST_TEST(parked.stats.park_saved_bytes > 0U);
  BOOST_TEST(parked.stats.park_saved_bytes == parked.stats.park_loaded_bytes);
  BOOST_TEST(parked.stats.park_written_bytes == 0U);
}

BOOST_AUTO_TEST_CASE(tokens_are_the_same_through_the_disk) {
  engine_options o = tiny_model();
  const served alone = serve(o);
  const std::uint64_t block = (4U << 20) / alone.stats.kv_total;
  o.preempt_every = 2;
  o.prefix_cache = false;
  o.kv_memory_bytes = 10 * block; // so that few run and many are parked
  o.kv_high_watermark = 1;
  o.park_ram_bytes = 5 * block;
  o.park_disk_bytes = 4U << 20;
  o.park_folder = std::filesystem::temp_directory_path().string();
  // What goes to the disk, and whether it is all there when it is wanted back, is up to the worker.
  std::uint64_t read = 0;
  for (int round = 0; round < 20 && read == 0; ++round) {
    const served parked = serve(o);
    for (std::size_t i = 0; i < alone.ids.size(); ++i)
      BOOST_TEST(parked.ids[i] == alone.ids[i], boost::test_tools::per_element());
    BOOST_TEST(parked.stats.resumes > 5U);
    BOOST_TEST(parked.stats.park_write_failures + parked.stats.park_read_failures == 0U);
    BOOST_TEST(parked.stats.park_corrupt == 0U);
    read = parked.stats.park_read_bytes;
  }
  BOOST_TEST(read > 0U);
}

BOOST_AUTO_TEST_CASE(the_ledger_of_the_blocks_on_disk_is_in_the_plan) {
  engine_options o = tiny_model();
  o.park_ram_bytes = 4U << 20;
  const auto plan_with = [&o](std::uint64_t disk) {
    o.park_disk_bytes = disk;
    asio::io_context io{1};
    engine one(io.get_executor(), o);
    BOOST_REQUIRE(test::start_of(one, io).has_value());
    const memory_plan plan = one.memory();
    BOOST_TEST(plan.data >= plan.kv + plan.park);
    return plan;
  };
  const memory_plan without = plan_with(0);
  const std::uint64_t block = without.kv / without.kv_blocks;
  BOOST_TEST(without.park >= o.park_ram_bytes + block);
  BOOST_TEST(plan_with(100'000 * block).park - without.park == 100'000 * 20U);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_had_is_refused_at_the_start) {
  std::string param;
  engine_options o = tiny_model();
  o.park_disk_bytes = 1U << 20;
  BOOST_TEST(start_failure(o, param).find("park-ram is 0") != std::string::npos);
  BOOST_TEST(param == "park_disk_bytes");
  o.park_ram_bytes = 1U << 20;
  o.park_folder = "/nowhere/at/all";
  BOOST_TEST(start_failure(o, param).find("/nowhere/at/all") != std::string::npos);
  BOOST_TEST(param == "park_folder");
  o.park_disk_bytes = 0;
  o.park_ram_bytes = 1;
  BOOST_TEST(start_failure(o, param).find("less than one KV block") != std::string::npos);
  BOOST_TEST(param == "park_ram_bytes");
}

BOOST_FIXTURE_TEST_CASE(
    a_request_cancelled_while_its_blocks_are_copied_frees_them_after_it, test::engine_fixture) {
  asio::io_context worker; // runs when the test says so
  worker_of_parker = worker.get_executor();
  host->park = actors::park_store::make({64, 64 * 64, 0, ""}).value();
  options.preempt_every = 2;
  options.prefix_cache = false;
  options.park_always = true;
  start();
  stream s = engine->submit(ask({1, 2, 3}, 50));
  auto a = std::make_shared<test::answer>();
  collect(s, a);
  run_until([&] { return engine->stats().parks == 1; });
  turn();
  BOOST_TEST(engine->stats().kv_leased > 0U);
  s.cancel();
  turn();
  BOOST_TEST(a->terminal == 0U);
  worker.run();
  run_until([&] { return a->terminal > 0; });
  BOOST_TEST(engine->stats().kv_leased == 0U);
  BOOST_TEST(engine->stats().parks_dropped == 1U);
  BOOST_TEST(engine->stats().park_memory == 0U);
  worker.restart();
  const auto next = finish(ask({1, 2, 3}, 1)); // the engine goes on
  BOOST_TEST(next->done.has_value());
}

BOOST_AUTO_TEST_SUITE_END()
