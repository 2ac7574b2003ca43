// SPDX-License-Identifier: Apache-2.0
#include "actors/cache_core.hpp"

#include "tests/sim/alloc_fault.hpp"

#include <boost/test/unit_test.hpp>

#include <set>

using namespace troupe::actors;

namespace {

request_id rid(std::uint64_t number) {
  return {1, 1, number};
}

struct ledger {
  cache_core core{{1, 0, 0}, 10, 4};
  template<class Message>
  cache_effects tell(Message m) {
    cache_effects out;
    core.on(std::move(m), time_point{}, out);
    BOOST_TEST(core.pool().audit());
    return out;
  }
  blocks_reserved reserve(std::uint64_t step, std::vector<block_demand> demands) {
    return std::get<blocks_reserved>(tell(reserve_blocks{step, std::move(demands)}).at(0));
  }
};

/// A pool whose owners compute and find prefixes; block size 4.
struct known_blocks {
  explicit known_blocks(std::uint32_t blocks) : pool({1, 0, 0}, blocks, 4) {}
  /// Leases blocks for all tokens to `n` and makes the full ones known.
  std::vector<block_id> compute(std::uint64_t n, const std::vector<std::int32_t>& tokens) {
    std::vector<block_id> blocks;
    BOOST_TEST(pool.lease(rid(n), pool.blocks_for(static_cast<std::uint32_t>(tokens.size())), blocks));
    pool.publish(rid(n), 0, 0, std::span(tokens).first(tokens.size() - tokens.size() % 4));
    return blocks;
  }
  /// Lets `n` hold what is known of the tokens; how many blocks that is.
  std::size_t find(std::uint64_t n, const std::vector<std::int32_t>& tokens, std::uint64_t salt = 0) {
    std::vector<block_id> found;
    pool.match(salt, tokens, found);
    pool.adopt(rid(n), found);
    return found.size();
  }
  kv_pool pool;
};

} // namespace

BOOST_AUTO_TEST_SUITE(cache_manager)

BOOST_AUTO_TEST_CASE(demands_are_in_positions_and_granted_once) {
  ledger l;
  auto a = l.reserve(1, {{rid(1), 5}, {rid(2), 4}});
  BOOST_TEST(a.grants.size() == 2U);
  BOOST_TEST(a.grants[0].blocks.size() == 2U);
  BOOST_TEST(a.grants[1].blocks.size() == 1U);
  a = l.reserve(2, {{rid(1), 8}, {rid(2), 5}});
  BOOST_TEST(a.grants.size() == 1U);
  BOOST_TEST((a.grants[0].id == rid(2)));
  BOOST_TEST(l.core.level().leased == 4U);
}

BOOST_AUTO_TEST_CASE(no_two_owners_hold_a_block) {
  ledger l;
  const auto a = l.reserve(1, {{rid(1), 20}, {rid(2), 20}});
  std::set<block_id> seen;
  for (const auto& g : a.grants)
    for (const auto b : g.blocks) BOOST_TEST(seen.insert(b).second);
  BOOST_TEST(seen.size() == 10U);
  BOOST_TEST(l.core.level().free == 0U);
}

BOOST_AUTO_TEST_CASE(a_demand_is_met_wholly_or_not_at_all) {
  ledger l;
  auto a = l.reserve(1, {{rid(1), 28}, {rid(2), 16}, {rid(3), 12}});
  BOOST_TEST(a.grants.size() == 2U); // the third still fits
  BOOST_REQUIRE(a.shortages.size() == 1U);
  BOOST_TEST((a.shortages[0].id == rid(2)));
  BOOST_TEST(a.shortages[0].missing == 1U);
  BOOST_TEST(l.core.pool().held(rid(2)) == 0U);
}

BOOST_AUTO_TEST_CASE(a_release_between_steps_is_free_at_once) {
  ledger l;
  l.reserve(1, {{rid(1), 8}});
  l.tell(step_finished{1});
  const auto out = l.tell(release_blocks{rid(1), 0});
  BOOST_TEST(std::get<blocks_released>(out.at(0)).blocks == 2U);
  BOOST_TEST(std::get<kv_level>(out.at(1)).free == 10U);
}

BOOST_AUTO_TEST_CASE(a_release_in_a_step_waits_in_limbo_for_its_end) {
  ledger l;
  l.reserve(3, {{rid(1), 8}, {rid(2), 4}});
  auto out = l.tell(release_blocks{rid(1), 3});
  BOOST_TEST(out.size() == 1U); // the level; the answer comes later
  BOOST_TEST(std::get<kv_level>(out[0]).limbo == 2U);
  BOOST_TEST(l.core.level().free == 7U);
  BOOST_TEST(l.tell(step_finished{2}).empty());
  out = l.tell(step_finished{3});
  BOOST_TEST((std::get<blocks_released>(out.at(0)).id == rid(1)));
  BOOST_TEST(l.core.level().limbo == 0U);
  BOOST_TEST(l.core.level().leased == 1U);
}

BOOST_AUTO_TEST_CASE(late_and_unknown_messages_are_no_ops) {
  ledger l;
  l.reserve(5, {{rid(1), 4}});
  l.tell(step_finished{5});
  BOOST_TEST(l.tell(step_finished{4}).empty());
  BOOST_TEST(l.tell(step_finished{5}).empty());
  const auto out = l.tell(release_blocks{rid(9), 5}); // answered all the same: somebody waits for it
  BOOST_TEST(std::get<blocks_released>(out.at(0)).blocks == 0U);
  // A step that is over holds nothing back.
  BOOST_TEST(std::get<blocks_released>(l.tell(release_blocks{rid(1), 5}).at(0)).blocks == 1U);
}

BOOST_AUTO_TEST_CASE(a_shared_block_counts_once_and_is_idle_after_its_last_owner) {
  known_blocks k(8);
  const auto blocks = k.compute(1, {1, 1, 1, 1, 2, 2, 2, 2, 3});
  BOOST_TEST(k.find(2, {1, 1, 1, 1, 2, 2, 2, 2, 9}) == 2U);
  BOOST_TEST(k.pool.level().leased == 3U);
  BOOST_TEST(k.pool.holders(blocks[1]) == 2U);
  BOOST_TEST(k.pool.table(rid(2))[1] == blocks[1]);
  BOOST_TEST(k.pool.release(rid(1), 0) == 3U);
  BOOST_TEST(k.pool.level().leased == 2U);
  BOOST_TEST(k.pool.audit());
  BOOST_TEST(k.pool.release(rid(2), 4) == 2U);
  BOOST_TEST(k.pool.level().limbo == 2U);
  k.pool.settle(4);
  BOOST_TEST(k.pool.level().cached == 2U);
  BOOST_TEST(k.pool.level().free == 6U);
  BOOST_TEST(k.pool.available() == 8U);
  BOOST_TEST(k.pool.audit());
}

BOOST_AUTO_TEST_CASE(a_block_in_limbo_that_another_still_leases_stays_leased) {
  known_blocks k(8);
  k.compute(1, {1, 1, 1, 1, 2});
  k.find(2, {1, 1, 1, 1, 3});
  k.pool.release(rid(1), 7);
  BOOST_TEST(k.pool.level().leased == 1U);
  BOOST_TEST(k.pool.level().limbo == 1U);
  k.pool.settle(7);
  BOOST_TEST(k.pool.level().leased == 1U);
  BOOST_TEST(k.pool.level().free == 7U);
  BOOST_TEST(k.pool.audit());
}

BOOST_AUTO_TEST_CASE(a_block_in_limbo_can_be_found_again) {
  known_blocks k(8);
  k.compute(1, {1, 1, 1, 1, 2});
  k.pool.release(rid(1), 7);
  BOOST_TEST(k.find(2, {1, 1, 1, 1, 3}) == 1U);
  BOOST_TEST(k.pool.level().leased == 1U);
  BOOST_TEST(k.pool.level().limbo == 1U);
  k.pool.release(rid(2), 0);
  k.pool.settle(7);
  BOOST_TEST(k.pool.level().cached == 1U);
  BOOST_TEST(k.pool.audit());
}

BOOST_AUTO_TEST_CASE(a_prefix_is_found_by_its_tokens_in_its_own_tree_only) {
  known_blocks k(16);
  k.compute(1, {1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9});
  k.pool.release(rid(1), 0);
  BOOST_TEST(k.find(2, {1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9}) == 2U); // a token is left to compute
  BOOST_TEST(k.find(3, {1, 2, 3, 4, 5, 6, 7, 7, 9}) == 1U);
  BOOST_TEST(k.find(4, {5, 6, 7, 8, 9}) == 0U); // the same block, but at another place
  BOOST_TEST(k.find(5, {1, 2, 3}) == 0U);
  BOOST_TEST(k.find(6, {1, 2, 3, 4, 5, 6, 7, 8, 9}, 77) == 0U);
  BOOST_TEST(k.pool.audit());
}

BOOST_AUTO_TEST_CASE(what_two_compute_at_once_is_known_once) {
  known_blocks k(16);
  const auto first = k.compute(1, {1, 1, 1, 1, 2, 2, 2, 2, 3});
  const auto second = k.compute(2, {1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 5});
  BOOST_TEST(first[0] != second[0]);
  BOOST_TEST(k.find(3, {1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 6}) == 3U);
  BOOST_TEST(k.pool.table(rid(3))[0] == first[0]);
  BOOST_TEST(k.pool.table(rid(3))[2] == second[2]);
  for (const std::uint64_t n : {1, 2, 3}) k.pool.release(rid(n), 0);
  BOOST_TEST(k.pool.level().cached == 3U);
  BOOST_TEST(k.pool.audit());
}

BOOST_AUTO_TEST_CASE(cached_blocks_give_way_the_longest_unused_and_the_end_of_a_prefix_first) {
  known_blocks k(6);
  k.compute(1, {1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 9});
  k.pool.release(rid(1), 0);
  k.compute(2, {5, 5, 5, 5, 6});
  k.pool.release(rid(2), 0);
  BOOST_TEST(k.pool.level().cached == 4U);
  std::vector<block_id> blocks;
  BOOST_TEST(k.pool.lease(rid(3), 4, blocks)); // two free ones, then the end of the first prefix
  BOOST_TEST(k.find(4, {1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 9}) == 1U);
  BOOST_TEST(k.find(5, {5, 5, 5, 5, 6}) == 1U);
  BOOST_TEST(k.pool.audit());
  BOOST_TEST(!k.pool.lease(rid(6), 1, blocks));
}

BOOST_AUTO_TEST_CASE(a_prefix_that_was_found_again_outlives_one_that_was_not) {
  known_blocks k(4);
  k.compute(1, {1, 1, 1, 1, 2});
  k.pool.release(rid(1), 0);
  k.find(2, {1, 1, 1, 1, 3});
  k.pool.release(rid(2), 0);
  k.compute(3, {5, 5, 5, 5, 6}); // younger, never found
  k.pool.release(rid(3), 0);
  std::vector<block_id> blocks;
  BOOST_TEST(k.pool.lease(rid(4), 3, blocks));
  BOOST_TEST(k.find(5, {1, 1, 1, 1, 9}) == 1U);
  k.pool.release(rid(5), 0);
  BOOST_TEST(k.pool.lease(rid(6), 1, blocks)); // nothing is spared for ever
  BOOST_TEST(k.pool.audit());
}

BOOST_AUTO_TEST_CASE(blocks_behind_a_gap_are_not_known) {
  known_blocks k(8);
  std::vector<block_id> blocks;
  k.pool.lease(rid(1), 3, blocks);
  k.pool.publish(rid(1), 1, 0, std::vector<std::int32_t>{2, 2, 2, 2});
  k.pool.publish(rid(2), 0, 0, std::vector<std::int32_t>{2, 2, 2, 2}); // holds nothing
  k.pool.release(rid(1), 0);
  BOOST_TEST(k.pool.level().free == 8U);
}

BOOST_AUTO_TEST_CASE(a_demand_gets_what_is_known_and_blocks_for_the_rows_behind_it) {
  ledger l;
  const auto prompt = std::make_shared<const std::vector<std::int32_t>>(std::vector<std::int32_t>(13, 7));
  auto a = l.reserve(1, {{rid(1), 13, prompt, 5}});
  BOOST_TEST(a.grants.at(0).cached == 0U);
  BOOST_TEST(a.grants.at(0).blocks.size() == 4U);
  l.tell(publish_blocks{{{rid(1), 0, 5, std::vector<std::int32_t>(12, 7)}}});
  a = l.reserve(2, {{rid(2), 1, prompt, 5}, {rid(3), 8, prompt, 6}});
  BOOST_TEST(a.grants.at(0).cached == 12U);
  BOOST_TEST(a.grants.at(0).blocks.size() == 4U);
  BOOST_TEST(a.grants.at(1).cached == 0U); // another tree
  BOOST_TEST(a.level.leased == 7U);
  BOOST_TEST(a.level.free == 3U);
  // Known blocks that nobody holds are no room for others once they are found.
  l.tell(release_blocks{rid(1), 0});
  l.tell(release_blocks{rid(2), 0});
  BOOST_TEST(l.core.level().cached == 3U);
  a = l.reserve(3, {{rid(4), 1, prompt, 5}, {rid(5), 20, nullptr, 0}});
  BOOST_TEST(a.grants.size() == 1U);
  BOOST_TEST(a.shortages.at(0).missing == 1U);
}

BOOST_AUTO_TEST_CASE(a_demand_with_a_prefix_survives_every_failed_allocation) {
  for (std::uint32_t nth = 1; nth < 12; ++nth) {
    ledger l;
    const auto prompt = std::make_shared<const std::vector<std::int32_t>>(std::vector<std::int32_t>(13, 7));
    l.reserve(1, {{rid(1), 13, prompt, 5}});
    l.tell(publish_blocks{{{rid(1), 0, 5, std::vector<std::int32_t>(12, 7)}}});
    reserve_blocks ask{2, {{rid(2), 1, prompt, 5}}};
    cache_effects out;
    out.reserve(8);
    {
      const troupe::sim::alloc_fault fault(nth);
      l.core.on(std::move(ask), time_point{}, out);
    }
    const auto& answer = std::get<blocks_reserved>(out.at(0));
    BOOST_TEST(l.core.pool().held(rid(2)) == (answer.grants.empty() ? 0U : 4U));
    BOOST_TEST(l.core.pool().audit());
  }
}

BOOST_AUTO_TEST_CASE(short_of_memory_unused_blocks_are_named_once_until_they_are_leased_again) {
  ledger l;
  l.reserve(1, {{rid(1), 8}}); // blocks 0 and 1
  auto out = l.tell(spare_memory{false});
  BOOST_REQUIRE(out.size() == 1U);
  const std::vector<block_id> unused{2, 3, 4, 5, 6, 7, 8, 9};
  BOOST_TEST(std::get<discard_blocks>(out[0]).blocks == unused, boost::test_tools::per_element());
  BOOST_TEST(l.tell(spare_memory{false}).empty());
  l.tell(step_finished{1});
  l.tell(release_blocks{rid(1), 0});
  out = l.tell(spare_memory{false});
  BOOST_REQUIRE(out.size() == 1U);
  BOOST_TEST(
      std::get<discard_blocks>(out[0]).blocks == (std::vector<block_id>{0, 1}),
      boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(short_of_memory_cached_blocks_become_free_and_none_is_cached_until_told) {
  ledger l;
  const std::vector<std::int32_t> tokens{1, 1, 1, 1, 2, 2, 2, 2, 3};
  const auto compute = [&](std::uint64_t n) {
    l.reserve(n, {{rid(n), 9}});
    l.tell(publish_blocks{{{rid(n), 0, 0, {tokens.begin(), tokens.begin() + 8}}}});
    l.tell(step_finished{n});
    l.tell(release_blocks{rid(n), 0});
  };
  compute(1);
  BOOST_TEST(l.core.level().cached == 2U);
  const auto out = l.tell(spare_memory{true});
  BOOST_REQUIRE(out.size() == 2U);
  BOOST_TEST(std::get<discard_blocks>(out[0]).forgotten == 2U);
  BOOST_TEST(std::get<discard_blocks>(out[0]).blocks.size() == 10U);
  BOOST_TEST(std::get<kv_level>(out[1]).free == 10U);
  compute(2);
  BOOST_TEST(l.core.level().cached == 0U);
  l.tell(spare_memory{false});
  compute(3);
  BOOST_TEST(l.core.level().cached == 2U);
}

BOOST_AUTO_TEST_CASE(an_allocation_failure_in_giving_memory_back_costs_nothing_but_time) {
  ledger l;
  l.tell(step_finished{1}); // says how many blocks there are
  cache_effects out;
  out.reserve(4);
  {
    const troupe::sim::alloc_fault fault(1);
    l.core.on(spare_memory{false}, time_point{}, out);
  }
  BOOST_TEST(out.empty());
  BOOST_TEST(l.core.pool().audit());
  BOOST_TEST(std::get<discard_blocks>(l.tell(spare_memory{false}).at(0)).blocks.size() == 10U);
}

BOOST_AUTO_TEST_SUITE_END()
