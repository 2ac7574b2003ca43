// SPDX-License-Identifier: Apache-2.0
// Sequences that begin alike: what they find, whom they wait for, what they never find.
#include "stage.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::test;

namespace {

/// Blocks of 4 positions; prompts of 13 tokens that all begin with the same 12.
struct alike : stage {
  explicit alike(scheduler_options o = {}, std::uint32_t blocks = 64) : stage(o, blocks) {}
  void begin(std::uint64_t number, std::uint32_t priority = 5, std::string tenant = {}, bool scored = false) {
    tell(admission_request{rid(number), priority, 13, 4, time_point::max(), std::move(tenant), 0});
    enqueue m;
    m.id = rid(number);
    std::vector<std::int32_t> ids(13, 7);
    ids.back() = static_cast<std::int32_t>(100 + number);
    m.prompt = std::make_shared<const std::vector<std::int32_t>>(std::move(ids));
    m.max_tokens = 4;
    m.score_prompt = scored;
    if (scored) scored_end = 13;
    tell(std::move(m));
  }
  /// The rows of `number` in the running step: first and count; none is {0, 0}.
  std::pair<std::uint32_t, std::uint32_t> rows_of(std::uint64_t number) const {
    const auto* e = entry(number);
    return e == nullptr ? std::pair(0U, 0U) : std::pair(e->first, e->count);
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(scheduler_prefix)

BOOST_AUTO_TEST_CASE(a_sequence_begins_behind_what_an_earlier_one_computed) {
  alike s;
  s.begin(1);
  s.run_until_end(1);
  s.begin(2);
  BOOST_TEST((s.rows_of(2) == std::pair(12U, 1U)));
  BOOST_TEST(s.entry(2)->want_token);
  BOOST_TEST(s.entry(2)->new_blocks.size() == 4U);
  s.run_until_end(2);
  BOOST_TEST(s.ended.at(2).completion_tokens == 4U);
  BOOST_TEST(s.core.stats().prefix_found_tokens == 12U);
  BOOST_TEST(s.core.stats().prefix_asked_tokens == 26U);
  BOOST_TEST(s.cache.pool().available() == 64U);
}

BOOST_AUTO_TEST_CASE(one_whose_prefix_is_being_computed_waits_for_it_and_holds_nobody_up) {
  alike s({.max_step_tokens = 8});
  s.begin(1);
  s.begin(2);
  s.submit(3, 5, 4); // begins otherwise
  BOOST_TEST((s.rows_of(1) == std::pair(0U, 8U)));
  s.finish_step();
  BOOST_TEST((s.rows_of(1) == std::pair(8U, 5U)));
  BOOST_TEST(s.entry(2) == nullptr);
  BOOST_TEST(s.entry(3) != nullptr);
  s.finish_step();
  BOOST_TEST((s.rows_of(2) == std::pair(12U, 1U)));
}

BOOST_AUTO_TEST_CASE(when_the_computing_one_leaves_another_goes_on_and_the_rest_wait_for_that) {
  alike s({.max_step_tokens = 8});
  for (const std::uint64_t n : {1, 2, 3}) s.begin(n);
  s.finish_step(); // two blocks are known
  s.tell(cancel{rid(1), error{errc::cancelled, "left", {}, 0}});
  s.finish_step();
  BOOST_TEST((s.rows_of(2) == std::pair(8U, 5U)));
  BOOST_TEST(s.entry(3) == nullptr);
  s.finish_step();
  BOOST_TEST((s.rows_of(3) == std::pair(12U, 1U)));
}

BOOST_AUTO_TEST_CASE(those_that_come_at_once_compute_their_prefix_once) {
  alike t({.max_wait = milliseconds(5)});
  for (const std::uint64_t n : {1, 2, 3}) t.begin(n);
  t.now += milliseconds(6);
  t.tell(alarm_rang{});
  BOOST_TEST((t.rows_of(1) == std::pair(0U, 13U)));
  BOOST_TEST(t.rows() == 13U);
  t.finish_step();
  BOOST_TEST((t.rows_of(2) == std::pair(12U, 1U)));
  BOOST_TEST((t.rows_of(3) == std::pair(12U, 1U)));
}

BOOST_AUTO_TEST_CASE(nobody_waits_for_one_of_worse_rank) {
  alike s({.max_step_tokens = 8});
  s.begin(1, 9);
  s.begin(2, 0);
  s.finish_step();
  BOOST_TEST(s.rows_of(2).second > 0U);
}

BOOST_AUTO_TEST_CASE(a_prompt_that_is_scored_is_computed_whole) {
  alike s;
  s.begin(1);
  s.run_until_end(1);
  s.begin(2, 5, {}, true);
  BOOST_TEST((s.rows_of(2) == std::pair(0U, 13U)));
  s.run_until_end(2);
  BOOST_TEST(s.scores.at(2).size() == 12U);
}

BOOST_AUTO_TEST_CASE(tenants_share_nothing) {
  alike s;
  s.begin(1, 5, "a");
  s.run_until_end(1);
  s.begin(2, 5, "b");
  BOOST_TEST((s.rows_of(2) == std::pair(0U, 13U)));
  s.run_until_end(2);
  s.begin(3, 5, "a");
  BOOST_TEST((s.rows_of(3) == std::pair(12U, 1U)));
}

BOOST_AUTO_TEST_CASE(sequences_of_other_frequencies_share_nothing) {
  stage far({}, 64, 4, 64, 20);
  const auto ask = [&](std::uint64_t n, std::uint32_t most) {
    far.tell(admission_request{rid(n), 5, 13, most, time_point::max(), {}, 0});
    enqueue m;
    m.id = rid(n);
    m.prompt = prompt_of(13);
    m.max_tokens = most;
    far.tell(std::move(m));
  };
  ask(1, 12); // thirteen and seven are still within
  for (int i = 0; i < 8; ++i) {
    BOOST_TEST(far.tokens[1].size() == static_cast<std::size_t>(i));
    BOOST_TEST(far.entry(1)->first == (i == 0 ? 0U : 12U + static_cast<std::uint32_t>(i)));
    far.finish_step();
  }
  // The twenty-first token is that of a sequence of other numbers, from its first position on.
  BOOST_TEST(far.entry(1)->first == 0U);
  BOOST_TEST(far.entry(1)->count == 21U);
  BOOST_REQUIRE(far.entry(1)->open);
  BOOST_TEST(far.entry(1)->open->reach == 21U);
  BOOST_TEST(far.entry(1)->open->generated.size() == 8U);
  far.run_until_end(1);
  BOOST_TEST(far.tokens[1].size() == 12U);
  for (std::uint32_t i = 0; i < 12; ++i) BOOST_TEST(far.tokens[1][i].position == 13 + i);
  ask(2, 4);
  BOOST_TEST(far.entry(2)->first == 12U); // what the first had within the border
}

BOOST_AUTO_TEST_CASE(what_a_sequence_may_reach_changes_nothing_until_it_does) {
  for (const std::uint32_t most : {2U, 40U}) {
    stage far({}, 64, 4, 64, 20);
    far.submit(1, 13, most);
    BOOST_TEST(far.entry(1)->open->reach == 13U);
  }
  stage beyond({}, 64, 4, 64, 20);
  beyond.submit(1, 21, 2);
  BOOST_TEST(beyond.entry(1)->open->reach == 21U);
}

BOOST_AUTO_TEST_CASE(a_preempted_sequence_finds_its_own_blocks_again) {
  alike s({.preempt_every = 2});
  s.begin(1);
  s.finish_step();
  s.finish_step(); // preempted here
  BOOST_TEST(s.core.stats().preemptions == 1U);
  BOOST_TEST((s.rows_of(1) == std::pair(13U, 2U))); // its prompt's last token, too, in a block that is copied
  s.run_until_end(1);
  BOOST_TEST(s.ended.at(1).completion_tokens == 4U);
}

BOOST_AUTO_TEST_CASE(rows_that_are_not_finite_make_nothing_known) {
  alike s;
  s.not_finite = 1;
  s.begin(1);
  s.finish_step();
  BOOST_TEST(s.ended.contains(1));
  s.begin(2);
  BOOST_TEST((s.rows_of(2) == std::pair(0U, 13U)));
}

BOOST_AUTO_TEST_CASE(without_the_cache_everything_is_computed) {
  alike s({.prefix_cache = false});
  s.begin(1);
  s.begin(2);
  s.finish_step();
  BOOST_TEST((s.rows_of(2) == std::pair(0U, 13U)));
  s.run_until_end(1);
  s.run_until_end(2);
  s.begin(3);
  BOOST_TEST((s.rows_of(3) == std::pair(0U, 13U)));
  BOOST_TEST(s.cache.level().cached == 0U);
}

BOOST_AUTO_TEST_CASE(shared_blocks_are_counted_once) {
  alike s({}, 24); // 5 blocks each: without sharing not even 5 sequences
  for (std::uint64_t n = 1; n <= 8; ++n) s.begin(n);
  std::size_t most = 0;
  while (s.running()) {
    most = std::max(most, s.step->entries.size());
    BOOST_TEST(s.core.kv_use() <= 1.0);
    s.finish_step();
  }
  BOOST_TEST(most > 5U);
  BOOST_TEST(s.ended.size() == 8U);
  BOOST_TEST(s.core.committed_blocks() == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
