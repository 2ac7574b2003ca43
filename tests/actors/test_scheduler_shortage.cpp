// SPDX-License-Identifier: Apache-2.0
#include "stage.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::test;

namespace {

/// Small blocks, forecasts too small on purpose: what runs is short of blocks sooner or later.
struct tight : stage {
  explicit tight(std::uint32_t blocks, std::uint32_t block_tokens = 1, scheduler_options o = {}) :
      stage(hurried(o), blocks, block_tokens, 64) {}
  static scheduler_options hurried(scheduler_options o) {
    o.kv_high_watermark = 100; // admission is not what these cases are about
    o.kv_low_watermark = 100;
    o.prefix_cache = false; // nor what is computed anew
    return o;
  }
  bool preempted(std::uint64_t number) const {
    return std::find(closed_ids.begin(), closed_ids.end(), number) != closed_ids.end() &&
           view(number).held == 0;
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(scheduler_shortage)

BOOST_AUTO_TEST_CASE(the_younger_of_the_lower_class_yields) {
  tight s(12);
  s.submit(1, 3, 40, 0);
  s.submit(2, 3, 40, 9);
  s.submit(3, 3, 40, 9);
  while (s.running() && s.closed_ids.empty()) s.finish_step();
  BOOST_TEST(s.closed_ids == (std::vector<std::uint64_t>{3}), boost::test_tools::per_element());
  BOOST_TEST(s.preempted(3));
  BOOST_TEST(s.core.stats().preemptions == 1U);
  BOOST_TEST(s.view(3).seated);
}

BOOST_AUTO_TEST_CASE(in_one_class_the_least_computed_yields_but_never_the_oldest) {
  tight s(18);
  s.submit(1, 2, 40);
  s.submit(2, 8, 40);
  s.submit(3, 4, 40);
  while (s.running() && s.closed_ids.empty()) s.finish_step();
  BOOST_TEST(s.closed_ids.at(0) == 3U);
}

BOOST_AUTO_TEST_CASE(a_paused_sequence_yields_first_even_an_elder) {
  tight s(12);
  s.submit(1, 3, 40, 0);
  s.submit(2, 3, 40, 5);
  s.submit(3, 3, 40, 9);
  s.finish_step();
  s.tell(stream_paused{rid(1)});
  while (s.running() && s.closed_ids.empty()) s.finish_step();
  BOOST_TEST(s.closed_ids.at(0) == 1U);
  s.tell(stream_resumed{rid(1)});
  s.run_until_end(2, 500);
  s.run_until_end(3, 500);
  s.run_until_end(1, 500);
  BOOST_TEST(s.ends == 3);
}

BOOST_AUTO_TEST_CASE(the_oldest_of_a_class_yields_only_when_nothing_could_run_otherwise) {
  // Two classes of one: each is the oldest of its own.
  tight s(8);
  s.submit(1, 3, 10, 0);
  s.submit(2, 3, 4, 9);
  s.finish_step();
  while (s.closed_ids.empty() && s.running()) s.finish_step();
  // Both needed a block, there was none: the elder went on, so that somebody does.
  BOOST_TEST(s.closed_ids.at(0) == 2U);
  BOOST_TEST(s.entry(1) != nullptr);
  s.run_until_end(1, 500);
  s.run_until_end(2, 500);
  BOOST_TEST(s.ends == 2);
}

BOOST_AUTO_TEST_CASE(the_oldest_of_a_class_is_spared_while_it_can_run) {
  tight s(6, 2);
  s.submit(1, 4, 20, 0);
  s.submit(2, 4, 20, 9);
  for (int i = 0; i < 3; ++i) s.finish_step();
  BOOST_TEST(s.cache.level().free == 0U);
  // 1 needs a block, 2 has room for one more position: the elder waits for a step.
  BOOST_TEST(s.entry(1) == nullptr);
  BOOST_TEST(s.entry(2) != nullptr);
  BOOST_TEST(s.core.stats().preemptions == 0U);
  s.finish_step();
  BOOST_TEST(s.preempted(2)); // now both need one
  BOOST_TEST(s.entry(1) != nullptr);
}

BOOST_AUTO_TEST_CASE(the_preempted_is_next_when_there_is_room_and_draws_the_same_tokens_on) {
  tight s(12);
  s.submit(1, 3, 8, 0);
  s.submit(2, 3, 8, 5);
  while (s.running() && s.closed_ids.empty()) s.finish_step();
  const auto drawn = s.tokens[2].size();
  s.submit(3, 3, 8, 5); // came later: it may not go first
  while (!s.ended.contains(1)) {
    BOOST_TEST(s.entry(2) == nullptr);
    BOOST_TEST(s.entry(3) == nullptr);
    s.finish_step();
  }
  BOOST_REQUIRE(s.entry(2) != nullptr);
  BOOST_TEST(s.entry(2)->first == 0U);
  BOOST_TEST(s.entry(2)->count == 3 + drawn);
  BOOST_TEST(s.entry(2)->open->generated.size() == drawn);
  s.run_until_end(2);
  BOOST_TEST(s.tokens[2].size() == 8U);
  BOOST_TEST(s.core.stats().recomputed_tokens > 0U);
}

BOOST_AUTO_TEST_CASE(nobody_is_taken_back_only_to_be_preempted_again) {
  tight s(12);
  s.submit(1, 3, 30, 0);
  s.submit(2, 3, 30, 5);
  while (s.running() && s.closed_ids.empty()) s.finish_step();
  // 1 goes on towards the end of the pool; 2 would fit for a step or two, but not with a block to spare.
  while (s.running() && !s.ended.contains(1)) {
    const bool room = s.core.requests()[1].held != 0;
    BOOST_TEST((!room || s.cache.level().free >= 1U));
    s.finish_step();
    BOOST_TEST(s.core.stats().preemptions <= 2U);
  }
}

BOOST_AUTO_TEST_CASE(everyone_ends_under_forced_preemption) {
  scheduler_options o;
  o.preempt_every = 1;
  o.max_step_tokens = 4;
  stage s(o);
  for (std::uint64_t i = 1; i <= 4; ++i) s.submit(i, 11, 6);
  for (std::uint64_t i = 1; i <= 4; ++i) s.run_until_end(i, 2000);
  BOOST_TEST(s.ends == 4);
  BOOST_TEST(s.core.stats().preemptions > 10U);
  for (std::uint64_t i = 1; i <= 4; ++i) BOOST_TEST(s.tokens[i].size() == 6U);
  BOOST_TEST(s.cache.pool().available() == 64U);
}

BOOST_AUTO_TEST_CASE(a_demand_that_the_ledger_left_out_fails_that_request_only) {
  stage s(scheduler_options{});
  s.answers = false;
  s.submit(1, 4, 8);
  s.deliver_cache_mail();
  s.finish_step();
  s.submit(2, 4, 8);
  s.cache_mail.clear();
  s.tell(blocks_reserved{2, {{rid(1), {9}}}, {}}); // 2 is not mentioned
  BOOST_TEST(s.entry(1) != nullptr);
  BOOST_TEST(s.entry(2) == nullptr);
  s.answers = true;
  s.deliver_cache_mail();
  const bool failed_or_waiting =
      s.ended.contains(2) ? s.ended.at(2).failed->code == errc::no_memory : s.view(2).id.number == 2;
  BOOST_TEST(failed_or_waiting);
}

BOOST_AUTO_TEST_CASE(a_sequence_paused_while_short_takes_from_nobody) {
  tight s(8);
  s.submit(1, 3, 40, 0);
  s.submit(2, 3, 40, 5);
  while (s.core.stats().preemptions == 0 && s.held(1) + s.held(2) < 8) s.finish_step();
  s.answers = false;
  s.finish_step();
  s.tell(stream_paused{rid(1)});
  s.answers = true;
  s.deliver_cache_mail();
  BOOST_TEST(!s.preempted(2));
}

BOOST_AUTO_TEST_SUITE_END()
