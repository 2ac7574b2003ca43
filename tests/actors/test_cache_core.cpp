// SPDX-License-Identifier: Apache-2.0
#include "actors/cache_core.hpp"

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

BOOST_AUTO_TEST_CASE(a_shared_block_counts_once_and_is_free_after_its_last_owner) {
  kv_pool pool({1, 0, 0}, 8, 4);
  std::vector<block_id> blocks;
  BOOST_TEST(pool.lease(rid(1), 3, blocks));
  BOOST_TEST(pool.share(rid(1), rid(2), 2));
  BOOST_TEST(!pool.share(rid(1), rid(2), 2)); // it has blocks
  BOOST_TEST(!pool.share(rid(1), rid(3), 4)); // more than there are
  BOOST_TEST(pool.level().leased == 3U);
  BOOST_TEST(pool.table(rid(2))[1] == blocks[1]);
  BOOST_TEST(pool.release(rid(1), 0) == 3U);
  BOOST_TEST(pool.level().leased == 2U);
  BOOST_TEST(pool.audit());
  BOOST_TEST(pool.release(rid(2), 4) == 2U);
  BOOST_TEST(pool.level().limbo == 2U);
  pool.settle(4);
  BOOST_TEST(pool.level().free == 8U);
  BOOST_TEST(pool.audit());
}

BOOST_AUTO_TEST_CASE(a_block_in_limbo_that_another_still_leases_stays_leased) {
  kv_pool pool({1, 0, 0}, 8, 4);
  std::vector<block_id> blocks;
  pool.lease(rid(1), 2, blocks);
  pool.share(rid(1), rid(2), 1);
  pool.release(rid(1), 7);
  BOOST_TEST(pool.level().leased == 1U);
  BOOST_TEST(pool.level().limbo == 1U);
  pool.settle(7);
  BOOST_TEST(pool.level().leased == 1U);
  BOOST_TEST(pool.level().free == 7U);
  BOOST_TEST(pool.audit());
}

BOOST_AUTO_TEST_SUITE_END()
