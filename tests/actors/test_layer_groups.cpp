// SPDX-License-Identifier: Apache-2.0
// Layer groups and windows in the ledger and in the scheduler: what is given back, what is found again, and
// how much a sequence is counted for.
#include "stage.hpp"

#include <boost/test/unit_test.hpp>

#include <numeric>

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::test;
using std::chrono::microseconds;

namespace {

std::vector<std::int32_t> counting(std::uint32_t count, std::int32_t from = 1) {
  std::vector<std::int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

/// A ledger with one group of window 8 and one that keeps everything; blocks of 4 positions.
struct two_groups {
  explicit two_groups(std::uint32_t blocks, std::vector<std::uint32_t> windows = {8, 0}) :
      core({1, 0, 0}, blocks, kv_groups(4, std::move(windows))) {}

  template<class Message>
  cache_effects tell(Message m) {
    cache_effects out;
    core.on(std::move(m), time_point{}, out);
    BOOST_TEST(core.pool().audit());
    return out;
  }
  blocks_reserved
  reserve(std::uint64_t n, std::uint32_t positions, std::uint32_t first, token_list prefix = {}) {
    return std::get<blocks_reserved>(
        tell(reserve_blocks{++step, {{rid(n), positions, std::move(prefix), 0, first}}}).at(0));
  }
  /// Computes `tokens` in steps of four and makes them known.
  void compute(std::uint64_t n, const std::vector<std::int32_t>& tokens) {
    for (std::uint32_t first = 0; first < tokens.size(); first += 4) {
      const auto end = std::min<std::uint32_t>(first + 4, static_cast<std::uint32_t>(tokens.size()));
      BOOST_REQUIRE(reserve(n, end, first).shortages.empty());
      if (end % 4 == 0)
        tell(publish_blocks{{{rid(n), first / 4, 0, {tokens.begin() + first, tokens.begin() + end}}}});
    }
  }
  void release(std::uint64_t n) { tell(release_blocks{rid(n), 0}); }
  /// Positions that `n` finds of these tokens.
  std::uint32_t find(std::uint64_t n, std::vector<std::int32_t> tokens) {
    const auto list = std::make_shared<const std::vector<std::int32_t>>(std::move(tokens));
    const auto answer = reserve(n, 1, 0, list);
    BOOST_REQUIRE(answer.grants.size() == 1U);
    return answer.grants[0].cached;
  }
  std::uint32_t held(std::uint64_t n) const { return core.pool().held(rid(n)); }

  cache_core core;
  std::uint64_t step = 0;
};

/// A scheduler of a model with windows.
struct windowed : stage {
  windowed(
      scheduler_options o, std::uint32_t blocks, std::vector<std::uint32_t> windows,
      std::uint32_t context = 200, const park_room& park = {}) :
      stage(o, model_ready{blocks, 4, context, {eos}, 0, park.memory, park, std::move(windows)}) {}
};

scheduler_options generous(scheduler_options o = {}) {
  o.kv_high_watermark = o.kv_low_watermark = 100;
  return o;
}

} // namespace

BOOST_AUTO_TEST_SUITE(layer_groups)

BOOST_AUTO_TEST_CASE(a_block_is_given_back_when_no_row_to_come_reads_it_and_not_before) {
  two_groups l(40);
  BOOST_TEST(l.reserve(1, 4, 0).grants[0].blocks.size() == 2U);
  l.reserve(1, 8, 4);
  BOOST_TEST(l.held(1) == 4U);
  l.reserve(1, 12, 8); // the row at 8 reads 1 to 8
  BOOST_TEST(l.held(1) == 6U);
  l.reserve(1, 13, 10);
  BOOST_TEST(l.held(1) == 8U);
  l.reserve(1, 17, 11); // 4 to 11
  BOOST_TEST(l.held(1) == 9U);
  BOOST_TEST((l.core.pool().table(rid(1))[0] == no_block));
  BOOST_TEST((l.core.pool().table(rid(1))[1] != no_block));
  BOOST_TEST(l.core.level().leased == 9U);
  BOOST_TEST(l.core.level().free == 31U);
  l.tell(release_blocks{rid(1), 100});
  BOOST_TEST(l.core.level().limbo == 9U);
  l.tell(step_finished{100});
  BOOST_TEST(l.core.level().free == 40U);
}

BOOST_AUTO_TEST_CASE(what_is_passed_goes_back_even_if_the_rest_of_a_demand_is_short) {
  two_groups l(10);
  l.reserve(1, 16, 0);
  BOOST_TEST(l.held(1) == 8U);
  const auto answer = l.reserve(1, 100, 16);
  BOOST_REQUIRE(answer.shortages.size() == 1U);
  BOOST_TEST(l.held(1) == 6U);
  BOOST_TEST(answer.level.leased == 6U);
  BOOST_TEST(answer.shortages[0].missing == 2U * 21 - 4);
}

BOOST_AUTO_TEST_CASE(a_prefix_longer_than_the_window_is_found_with_its_last_local_blocks_only) {
  two_groups l(64);
  l.compute(1, counting(32));
  // Of the first group the row at 28 reads 21 to 28; the table goes on at 28, as its last demand said.
  BOOST_TEST(l.held(1) == 8U + 3U);
  BOOST_TEST(l.core.level().cached == 5U); // what it gave back is known
  l.release(1);
  BOOST_TEST(l.core.level().cached == 16U);
  auto longer = counting(32);
  longer.push_back(99);
  BOOST_TEST(l.find(2, longer) == 32U);
  const auto table = l.core.pool().table(rid(2));
  BOOST_REQUIRE(table.size() == 18U);
  for (std::uint32_t i = 0; i < 9; ++i) {
    BOOST_TEST((table[2 * i] == no_block) == (i < 6)); // the row at 32 reads 25 to 32
    BOOST_TEST((table[2 * i + 1] != no_block));
  }
  BOOST_TEST(l.held(2) == 9U + 3U);
}

BOOST_AUTO_TEST_CASE(a_prefix_is_found_up_to_where_everything_is_there_that_its_next_row_reads) {
  two_groups l(18); // eight indices of both groups, and one more
  l.compute(1, counting(32));
  l.release(1);
  // Another one takes the two free ones, then what was given back first: the first group's first blocks.
  l.compute(2, counting(11, 500));
  l.release(2);
  BOOST_TEST(l.core.level().cached + l.core.level().free == 18U);
  auto shorter = counting(9);
  BOOST_TEST(l.find(3, shorter) < 8U); // its window is gone
  l.release(3);
  auto longer = counting(32);
  longer.push_back(99);
  BOOST_TEST(l.find(4, longer) == 32U);
}

BOOST_AUTO_TEST_CASE(blocks_beside_one_that_is_forgotten_are_forgotten_with_it) {
  two_groups l(16);
  l.compute(1, counting(16));
  l.release(1);
  BOOST_TEST(l.core.level().cached == 8U);
  l.tell(spare_memory{true});
  BOOST_TEST(l.core.level().cached == 0U);
  BOOST_TEST(l.core.level().free == 16U);
  l.tell(spare_memory{false});
  l.compute(2, counting(16));
  BOOST_TEST(l.core.level().cached == 1U); // given back at its last demand
  std::vector<std::uint64_t> takers;
  l.release(2);
  for (std::uint64_t n = 10; l.core.pool().available() > 0; ++n) l.reserve(n, 1, 0);
  BOOST_TEST(l.core.level().leased == 16U);
}

BOOST_AUTO_TEST_CASE(a_local_block_that_was_lost_is_known_again_from_the_next_who_computes_it) {
  two_groups l(64);
  l.compute(1, counting(16));
  l.compute(2, counting(16)); // the same once more, in blocks of its own
  l.release(1);
  l.release(2);
  auto more = counting(16);
  more.push_back(7);
  BOOST_TEST(l.find(3, more) == 16U);
}

BOOST_AUTO_TEST_CASE(where_all_layers_have_a_window_a_sequence_may_be_longer_than_the_pool) {
  two_groups l(6, {8});
  l.compute(1, counting(400));
  BOOST_TEST(l.held(1) <= 4U);
  l.release(1);
  BOOST_TEST(l.core.pool().available() == 6U);
}

BOOST_AUTO_TEST_CASE(the_scheduler_counts_what_the_ledger_does_at_every_step) {
  for (const auto& windows : std::vector<std::vector<std::uint32_t>>{{8}, {8, 0}, {6, 6, 6, 6, 6, 0}}) {
    scheduler_options o = generous();
    o.max_step_tokens = 8;
    const kv_groups groups(4, windows);
    windowed s(o, 400, windows);
    for (std::uint64_t n = 1; n <= 3; ++n) s.submit(n, 30 + static_cast<std::uint32_t>(n), 60);
    std::uint32_t most = 0;
    while (s.running()) {
      for (std::uint64_t n = 1; n <= 3; ++n) {
        BOOST_TEST(s.view(n).held == s.held(n));
        BOOST_TEST(s.held(n) <= groups.most(0, 93, 8));
        most = std::max(most, s.held(n));
      }
      s.finish_step();
    }
    BOOST_TEST(s.ended.size() == 3U);
    BOOST_TEST(most > groups.whole() * 22);
    BOOST_TEST(s.cache.pool().available() == 400U);
    BOOST_TEST(s.core.committed_blocks() == 0U);
  }
}

BOOST_AUTO_TEST_CASE(a_prompt_fits_as_long_as_its_windows_and_what_is_kept_do) {
  scheduler_options o;
  o.max_step_tokens = 4;
  // Four rows and the seven before them touch four blocks of four: twelve are left, 48 positions.
  windowed s(o, 16, {8, 0});
  s.knock(1, 5, 48, 1);
  s.hand_in(1, 48, 1);
  BOOST_TEST(s.refusals.contains(1)); // and no token
  s.submit(2, 47, 1);
  BOOST_TEST(!s.refusals.contains(2));
  s.run_until_end(2);
  BOOST_TEST(s.ended.at(2).completion_tokens == 1U);
  windowed endless(o, 4, {8});
  endless.submit(1, 150, 40);
  endless.run_until_end(1);
  BOOST_TEST(endless.ended.at(1).completion_tokens == 40U);
}

BOOST_AUTO_TEST_CASE(an_answer_is_foreseen_with_its_window_and_its_prompt_with_a_whole_step) {
  scheduler_options o = generous();
  o.max_step_tokens = 16;
  windowed s(o, 400, {8, 0});
  s.submit(1, 40, 41);
  BOOST_TEST(s.view(1).whole == 21U + 7U); // 81 positions; sixteen rows and seven before them
  for (int i = 0; i < 20; ++i) s.finish_step();
  BOOST_TEST(s.view(1).whole == 21U + 3U);
  s.run_until_end(1);
}

BOOST_AUTO_TEST_CASE(a_parked_sequence_comes_back_into_a_table_with_the_same_holes) {
  scheduler_options o = generous();
  o.park = park_choice::always;
  o.preempt_every = 12;
  o.prefix_cache = false; // which would find what it gave back
  const park_room room{64, 64, {microseconds(1), microseconds(1), microseconds(1), microseconds(1)}};
  for (const bool kept : {true, false}) {
    windowed s(o, 64, {8, 0}, 200, room);
    s.submit(1, 30, 30);
    while (s.running() && s.parks.empty()) s.finish_step();
    BOOST_REQUIRE(!s.parks.empty());
    const auto parked = s.parks[0].blocks;
    for (const block_id b : parked) BOOST_TEST(b != no_block);
    BOOST_TEST(parked.size() < s.cache.pool().table(rid(1)).size());
    s.tell(sequence_parked{rid(1), true, room});
    BOOST_REQUIRE(s.restores.size() == 1U);
    BOOST_TEST(s.restores[0].first == 0U);
    BOOST_TEST(s.restores[0].blocks.size() == parked.size());
    BOOST_TEST(s.view(1).held == s.held(1));
    s.tell(sequence_restored{rid(1), kept, room});
    BOOST_REQUIRE(s.running());
    if (!kept) BOOST_TEST(s.entry(1)->first == 0U); // its table had holes where it begins anew
    if (kept) BOOST_TEST(s.entry(1)->count == 1U);
    BOOST_TEST(s.view(1).held == s.held(1));
    for (int steps = 0; s.running() && steps < 100; ++steps) {
      s.finish_step();
      if (s.parks.size() > 1) break;
    }
    BOOST_TEST(s.core.stats().resumes_failed == (kept ? 0U : 1U));
  }
}

BOOST_AUTO_TEST_CASE(a_preempted_sequence_is_computed_again_from_what_is_known_of_it) {
  scheduler_options o = generous();
  o.preempt_every = 9;
  o.max_step_tokens = 8;
  windowed s(o, 64, {8, 0});
  s.submit(1, 30, 30);
  s.run_until_end(1, 1000);
  BOOST_TEST(s.ended.at(1).completion_tokens == 30U);
  BOOST_TEST(s.core.stats().preemptions > 2U);
  BOOST_TEST(s.core.stats().prefix_found_tokens > 50U);
  BOOST_TEST(s.cache.pool().available() == 64U);
}

BOOST_AUTO_TEST_SUITE_END()
