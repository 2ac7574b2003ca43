// SPDX-License-Identifier: Apache-2.0
#include "engine/memory_plan.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using detail::memory_demand;

namespace {

constexpr std::uint64_t mib = 1ULL << 20;

memory_demand small_model() {
  memory_demand d;
  d.weights = 100 * mib;
  d.kv_block = mib;
  d.kv_block_tokens = 32;
  d.activations = 10 * mib;
  d.buffers = 5 * mib;
  d.context = 100; // 4 blocks
  d.max_batch = 8;
  return d;
}

} // namespace

BOOST_AUTO_TEST_SUITE(memory_planning)

BOOST_AUTO_TEST_CASE(ample_memory_gives_every_sequence_its_full_context) {
  const auto plan = detail::plan_memory(small_model(), 10'000 * mib);
  BOOST_REQUIRE(plan.has_value());
  BOOST_TEST(plan->kv_blocks == 32U);
  BOOST_TEST(plan->total() == (100 + 10 + 5 + 32) * mib);
}

BOOST_AUTO_TEST_CASE(a_long_context_does_not_swallow_the_memory_but_one_sequence_fits) {
  memory_demand d = small_model();
  d.context = 16'384; // 512 blocks
  const auto plan = detail::plan_memory(d, 10'000 * mib);
  BOOST_REQUIRE(plan.has_value());
  BOOST_TEST(plan->kv_blocks == 512U); // 8 sequences of 32 blocks are fewer
  d.max_batch = 100;
  BOOST_TEST(detail::plan_memory(d, 10'000 * mib)->kv_blocks == 3200U);
}

BOOST_AUTO_TEST_CASE(layers_with_a_window_need_blocks_for_it_and_for_a_step_only) {
  memory_demand d = small_model();
  d.context = 32'768; // 1024 blocks of each group
  d.kv_windows = {512, 512, 512, 512, 512, 0};
  d.max_step_tokens = 256;
  const auto plan = detail::plan_memory(d, 10'000 * mib);
  BOOST_REQUIRE(plan.has_value());
  // 767 positions touch 25 blocks at most; sequences of 1024 positions take 32 of the last group.
  BOOST_TEST(plan->kv_sequence_blocks == 1024U + 5 * 25);
  BOOST_TEST(plan->kv_blocks == 8U * (32 + 5 * 25));
  const std::string line = describe(*plan);
  BOOST_TEST(
      line.find(
          "blocks of 32 tokens in one of 6 layer groups, at most 1149 blocks for a sequence of 32768") !=
      std::string::npos);
  d.kv_windows = {512};
  BOOST_TEST(detail::plan_memory(d, 10'000 * mib)->kv_sequence_blocks == 25U);
  d.kv_windows = {0};
  const auto plain = detail::plan_memory(d, 10'000 * mib);
  BOOST_TEST(plain->kv_sequence_blocks == 1024U);
  BOOST_TEST(describe(*plain).find("blocks of 32 tokens), activations") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(scarce_memory_gives_the_cache_half_of_what_is_left) {
  const auto plan = detail::plan_memory(small_model(), 135 * mib);
  BOOST_REQUIRE(plan.has_value());
  BOOST_TEST(plan->kv_blocks == 10U);
}

BOOST_AUTO_TEST_CASE(a_given_budget_is_rounded_down_to_whole_blocks) {
  memory_demand d = small_model();
  d.kv_memory = 20 * mib + 5;
  const auto plan = detail::plan_memory(d, 10'000 * mib);
  BOOST_REQUIRE(plan.has_value());
  BOOST_TEST(plan->kv_blocks == 20U);
  BOOST_TEST(plan->kv == 20 * mib);
}

BOOST_AUTO_TEST_CASE(a_model_larger_than_memory_is_refused_with_the_shortage) {
  const auto plan = detail::plan_memory(small_model(), 110 * mib);
  BOOST_REQUIRE(!plan);
  BOOST_TEST((plan.error().code == errc::no_memory));
  BOOST_TEST(plan.error().message.find("9.0 MiB too few") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_budget_below_one_block_is_a_configuration_error) {
  memory_demand d = small_model();
  d.kv_memory = 1000;
  const auto plan = detail::plan_memory(d, 10'000 * mib);
  BOOST_REQUIRE(!plan);
  BOOST_TEST(plan.error().param == "kv_memory");
}

BOOST_AUTO_TEST_CASE(what_is_resident_already_and_the_ledger_count_too) {
  memory_demand d = small_model();
  d.program = 20 * mib;
  d.data = 150 * mib;
  d.kv_block_ledger = 1000;
  const auto plan = detail::plan_memory(d, 10'000 * mib);
  BOOST_REQUIRE(plan.has_value());
  BOOST_TEST(plan->program == 20 * mib);
  BOOST_TEST(plan->buffers == 5 * mib + 32 * 1000U);
  BOOST_TEST(plan->total() == (100 + 10 + 5 + 32 + 20) * mib + 32 * 1000U);
  BOOST_TEST(plan->data == (150 + 10 + 5 + 32) * mib + 32 * 1000U);
}

BOOST_AUTO_TEST_CASE(the_pools_last_huge_page_is_taken_whole) {
  memory_demand d = small_model();
  d.kv_memory = 3 * mib;
  const auto plan = detail::plan_memory(d, 10'000 * mib);
  BOOST_REQUIRE(plan.has_value());
  BOOST_TEST(plan->kv == 3 * mib);
  BOOST_TEST(plan->buffers == 6 * mib);
}

BOOST_AUTO_TEST_CASE(buffers_that_are_too_large_name_the_queue) {
  memory_demand d = small_model();
  d.buffers = 500 * mib;
  const auto plan = detail::plan_memory(d, 300 * mib);
  BOOST_REQUIRE(!plan);
  BOOST_TEST(plan.error().param == "max_queue");
  BOOST_TEST(plan.error().message.find("max-queue") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_memory_for_parked_blocks_counts_and_is_named_when_it_is_what_does_not_fit) {
  memory_demand d = small_model();
  d.park = 50 * mib;
  const auto plan = detail::plan_memory(d, 10'000 * mib);
  BOOST_REQUIRE(plan.has_value());
  BOOST_TEST(plan->total() == (100 + 10 + 5 + 50 + 32) * mib);
  BOOST_TEST(describe(*plan).find("parked 50.0 MiB") != std::string::npos);
  const auto too_much = detail::plan_memory(d, 150 * mib);
  BOOST_REQUIRE(!too_much);
  BOOST_TEST(too_much.error().param == "park_ram_bytes");
  BOOST_TEST(describe(*detail::plan_memory(small_model(), 10'000 * mib)).find("parked") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(what_is_to_be_lowered_of_parking_is_named) {
  const auto lower = [](std::uint64_t ram, std::uint64_t disk, std::uint64_t available) {
    memory_demand d = small_model();
    d.park = ram + disk;
    d.park_disk = disk;
    const auto plan = detail::plan_memory(d, available); // 119 MiB beside what is parked
    BOOST_REQUIRE(!plan);
    const std::size_t at = plan.error().message.find("lower ");
    return plan.error().message.substr(at + 6) + ", " + plan.error().param;
  };
  BOOST_TEST(lower(50 * mib, 50 * mib, 180 * mib) == "park-ram, park_ram_bytes");
  BOOST_TEST(lower(10 * mib, 90 * mib, 180 * mib) == "park-disk, park_disk_bytes");
  BOOST_TEST(lower(50 * mib, 50 * mib, 140 * mib) == "park-ram and park-disk, park_disk_bytes");
}

BOOST_AUTO_TEST_CASE(the_machine_reports_available_memory) {
  BOOST_TEST(detail::available_memory() > mib);
}

BOOST_AUTO_TEST_CASE(a_limit_on_data_is_held_against_what_the_plan_will_have_mapped) {
  memory_demand d = small_model();
  d.data = 128 * mib; // 175 MiB with KV, activations and buffers
  const auto plan = detail::plan_memory(d, 10'000 * mib);
  BOOST_REQUIRE(plan.has_value());
  BOOST_TEST(detail::check_data_limit(*plan, plan->data).has_value());
  BOOST_TEST(detail::check_data_limit(*plan, plan->data - 2 * mib).has_value());
  const auto refused = detail::check_data_limit(*plan, plan->data - 4 * mib);
  BOOST_REQUIRE(refused.has_error());
  BOOST_TEST((refused.error().code == errc::no_memory));
  BOOST_TEST(refused.error().message.find("ulimit -d") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
