// SPDX-License-Identifier: Apache-2.0
// Blocks that are known in part, or go on otherwise than a prompt: who finds what, and what is copied.
#include "actors/cache_core.hpp"
#include "stage.hpp"

#include "tests/sim/alloc_fault.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <random>

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::test;

namespace {

using ids = std::vector<std::int32_t>;

token_list list(ids tokens) {
  return std::make_shared<const ids>(std::move(tokens));
}

/// Ten blocks of 4 positions.
struct ledger {
  explicit ledger(std::uint32_t blocks = 10) : core({1, 0, 0}, blocks, 4) {}
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
  /// Computes the tokens as a sequence of its own and makes them known, the end in part.
  std::vector<block_id> know(std::uint64_t number, const ids& tokens, std::uint64_t salt = 0) {
    auto a = reserve(number, {{rid(number), static_cast<std::uint32_t>(tokens.size())}});
    tell(publish_blocks{{{rid(number), 0, salt, tokens}}});
    tell(step_finished{number});
    return a.grants.at(0).blocks;
  }
  cache_core core;
};

/// What `longest` is defined to be, by looking at all.
std::uint32_t most_in_common(const std::vector<ids>& all, std::span<const std::int32_t> tokens) {
  std::uint32_t most = 0;
  for (const ids& one : all) {
    std::uint32_t n = 0;
    while (n < one.size() && n < tokens.size() && one[n] == tokens[n]) ++n;
    most = std::max(most, n);
  }
  return most;
}

/// Blocks of 4 positions and prompts that tests choose.
struct choosing : stage {
  explicit choosing(const scheduler_options& o = {}, std::uint32_t blocks = 64) : stage(o, blocks) {}
  void begin(std::uint64_t number, ids prompt, std::uint32_t max_tokens = 4) {
    tell(admission_request{
        rid(number), 5, static_cast<std::uint32_t>(prompt.size()), max_tokens, time_point::max(), {}, 0});
    enqueue m;
    m.id = rid(number);
    m.prompt = list(std::move(prompt));
    m.max_tokens = max_tokens;
    tell(std::move(m));
  }
  std::pair<std::uint32_t, std::uint32_t> rows_of(std::uint64_t number) const {
    const auto* e = entry(number);
    return e == nullptr ? std::pair(0U, 0U) : std::pair(e->first, e->count);
  }
  block_id block_of(std::uint64_t number, std::size_t at) const {
    return cache.pool().table(rid(number))[at];
  }
  /// Nobody holds anything, and nothing is copied.
  bool all_is_over() const {
    return core.idle() && cache.pool().available() == cache.level().total && cache.pool().audit() &&
           core.committed_blocks() == 0;
  }
};

const ids eleven{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

} // namespace

BOOST_AUTO_TEST_SUITE(copy_on_write)

BOOST_AUTO_TEST_CASE(the_longest_beginning_is_that_of_looking_at_all) {
  std::mt19937 chance(1);
  const auto below = [&](std::uint32_t n) { return static_cast<std::int32_t>(chance() % n); };
  for (const std::uint32_t letters : {2U, 5U}) {
    constexpr std::uint32_t blocks = 300, block_tokens = 6;
    prefix_index index(blocks, block_tokens);
    std::vector<ids> inside(blocks); // [block]
    for (int turn = 0; turn < 4000; ++turn) {
      ids tokens(1 + below(block_tokens));
      for (auto& t : tokens) t = below(letters);
      const std::uint32_t block = below(blocks);
      if (below(3) == 0) {
        index.remove(block);
        inside[block].clear();
      } else if (!index.holds(block)) {
        const bool there = tokens.size() == block_tokens
                               ? std::find(inside.begin(), inside.end(), tokens) != inside.end()
                               : most_in_common(inside, tokens) == tokens.size();
        BOOST_REQUIRE(index.add(block, prefix_index::root(7), tokens) == !there);
        if (!there) inside[block] = tokens;
      } else if (inside[block].size() < block_tokens) { // it is filled up
        ids more = inside[block];
        while (more.size() < block_tokens) more.push_back(below(letters));
        const bool there = std::find(inside.begin(), inside.end(), more) != inside.end();
        const auto node = index.node(block);
        BOOST_REQUIRE(index.add(block, prefix_index::root(7), more) == !there);
        BOOST_REQUIRE(index.node(block) == node);
        if (!there) inside[block] = more;
      }
      for (auto& t : tokens) t = below(letters);
      const auto found = index.longest(prefix_index::root(7), tokens);
      BOOST_REQUIRE(found.tokens == most_in_common(inside, tokens));
      if (found.tokens > 0)
        BOOST_REQUIRE(std::equal(
            tokens.begin(), tokens.begin() + found.tokens, inside[found.block].begin(),
            inside[found.block].begin() + found.tokens));
      BOOST_REQUIRE(index.longest(prefix_index::root(8), tokens).tokens == 0U);
    }
    BOOST_TEST(index.size() == static_cast<std::size_t>(std::ranges::count_if(inside, [](const ids& one) {
                 return !one.empty();
               })));
  }
}

BOOST_AUTO_TEST_CASE(an_index_without_memory_is_as_it_was) {
  for (const std::size_t count : {3U, 4U})
    for (std::uint32_t nth = 1; nth < 4; ++nth) {
      prefix_index index(8, 4);
      const ids first{1, 2, 3, 4}, second(count, 5);
      index.add(0, prefix_index::root(0), first);
      bool failed = false;
      {
        const sim::alloc_fault fault(nth);
        try {
          index.add(1, prefix_index::root(0), second);
        } catch (const std::bad_alloc&) {
          failed = true;
        }
      }
      BOOST_TEST(index.holds(1) == !failed);
      BOOST_TEST(index.size() == (failed ? 1U : 2U));
      BOOST_TEST(index.find(prefix_index::root(0), first) == 0U);
      BOOST_TEST(index.longest(prefix_index::root(0), second).tokens == (failed ? 0U : count));
      BOOST_TEST(index.add(1, prefix_index::root(0), second) == failed);
    }
}

BOOST_AUTO_TEST_CASE(an_index_can_move) {
  prefix_index a(4, 4);
  a.add(2, prefix_index::root(0), ids{1, 2, 3});
  prefix_index b(std::move(a));
  BOOST_TEST(b.add(1, prefix_index::root(0), ids{1, 2, 9, 9}));
  BOOST_TEST(b.longest(prefix_index::root(0), ids{1, 2, 3}).block == 2U);
  BOOST_TEST(b.longest(prefix_index::root(0), ids{1, 2, 9}).block == 1U);
}

BOOST_AUTO_TEST_CASE(the_end_of_a_prompt_is_known_and_copied_by_who_begins_so) {
  ledger l;
  const auto blocks = l.know(1, eleven); // two full ones, and three positions of the third
  const auto a = l.reserve(2, {{rid(2), 1, list(eleven)}});
  BOOST_REQUIRE(a.grants.size() == 1U);
  const auto& g = a.grants[0];
  BOOST_TEST(g.cached == 10U); // one is left to compute
  BOOST_REQUIRE(g.blocks.size() == 3U);
  BOOST_TEST(g.blocks[0] == blocks[0]);
  BOOST_TEST(g.blocks[1] == blocks[1]);
  BOOST_TEST(g.blocks[2] != blocks[2]);
  BOOST_REQUIRE(g.copy);
  BOOST_TEST((*g.copy == kernels::kv_copy{blocks[2], g.blocks[2], 2}));
  BOOST_TEST(l.core.pool().holders(blocks[2]) == 1U);
  BOOST_TEST(l.core.level().sources == 0U); // its owner holds it, too
  BOOST_TEST(l.core.level().leased == 4U);
}

BOOST_AUTO_TEST_CASE(a_prompt_that_parts_inside_a_full_block_copies_what_it_shares) {
  ledger l;
  const auto blocks = l.know(1, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  const auto a = l.reserve(2, {{rid(2), 2, list({1, 2, 3, 4, 5, 6, 70, 80, 90})}});
  BOOST_TEST(a.grants.at(0).cached == 6U);
  BOOST_TEST((*a.grants[0].copy == kernels::kv_copy{blocks[1], a.grants[0].blocks[1], 2}));
  BOOST_TEST(a.grants[0].blocks.size() == 2U); // six positions and two more
  // All but the last token of a prompt that is known whole, to the end of a block.
  const auto b = l.reserve(3, {{rid(3), 1, list({1, 2, 3, 4, 5, 6, 7, 8})}});
  BOOST_TEST(b.grants.at(0).cached == 7U);
  BOOST_TEST(b.grants[0].copy->positions == 3U);
  BOOST_TEST(b.grants[0].copy->from == blocks[1]);
}

BOOST_AUTO_TEST_CASE(another_tree_and_a_demand_for_whole_blocks_get_no_copy) {
  ledger l;
  l.know(1, eleven, 5);
  const auto a = l.reserve(2, {{rid(2), 1, list(eleven), 6}, {rid(3), 11, list(eleven), 5, 0, true}});
  BOOST_TEST(a.grants.at(0).cached == 0U);
  BOOST_TEST(!a.grants[0].copy);
  BOOST_TEST(a.grants.at(1).cached == 8U);
  BOOST_TEST(!a.grants[1].copy);
}

BOOST_AUTO_TEST_CASE(what_is_copied_stays_until_the_step_is_over) {
  ledger l;
  const auto blocks = l.know(1, eleven);
  l.tell(release_blocks{rid(1), 0});
  BOOST_TEST(l.core.level().cached == 3U);
  auto a = l.reserve(2, {{rid(2), 1, list(eleven)}});
  BOOST_TEST(a.grants.at(0).copy->from == blocks[2]);
  BOOST_TEST(a.level.leased == 4U);
  BOOST_TEST(a.level.sources == 1U);
  BOOST_TEST(a.level.cached == 0U);
  a = l.reserve(2, {{rid(3), 24}}); // all that is left
  BOOST_REQUIRE(a.grants.size() == 1U);
  BOOST_TEST(std::ranges::count(a.grants[0].blocks, blocks[2]) == 0);
  BOOST_TEST(l.core.pool().available() == 0U);
  l.tell(release_blocks{rid(2), 2}); // its sequence ends in the step
  BOOST_TEST(l.core.level().sources == 1U);
  BOOST_TEST(l.core.level().limbo == 3U);
  l.tell(step_finished{2});
  BOOST_TEST(l.core.level().sources == 0U);
  BOOST_TEST(l.core.level().cached == 3U);
}

BOOST_AUTO_TEST_CASE(what_is_copied_is_let_go_of_with_one_that_leaves_before_the_step) {
  ledger l;
  l.know(1, eleven);
  l.tell(release_blocks{rid(1), 0});
  l.reserve(2, {{rid(2), 1, list(eleven)}, {rid(3), 1, list(eleven)}});
  BOOST_TEST(l.core.level().sources == 1U);
  l.tell(release_blocks{rid(2), 0});
  BOOST_TEST(l.core.level().sources == 1U);
  l.tell(release_blocks{rid(3), 0});
  BOOST_TEST(l.core.level().sources == 0U);
  BOOST_TEST(l.core.pool().available() == 10U);
}

BOOST_AUTO_TEST_CASE(a_copy_makes_nobody_short_of_blocks) {
  ledger l(4);
  l.know(1, eleven); // three blocks
  l.tell(release_blocks{rid(1), 0});
  // Four are there: the two that are shared, and two for the one that begins and the other one.
  auto a = l.reserve(2, {{rid(2), 1, list(eleven)}, {rid(3), 4}});
  BOOST_REQUIRE(a.grants.size() == 2U);
  BOOST_TEST(a.grants[0].cached == 8U);
  BOOST_TEST(!a.grants[0].copy);
  l.tell(release_blocks{rid(3), 0});
  l.tell(release_blocks{rid(2), 0});

  ledger m(4);
  m.know(1, eleven);
  m.tell(release_blocks{rid(1), 0});
  a = m.reserve(2, {{rid(2), 1, list(eleven)}});
  BOOST_TEST(a.grants.at(0).copy.has_value());
  // Nor itself: all that the pool has is its own.
  ledger n(3);
  n.know(1, eleven);
  n.tell(release_blocks{rid(1), 0});
  a = n.reserve(2, {{rid(2), 1, list(eleven)}});
  BOOST_TEST(a.grants.at(0).cached == 8U);
}

BOOST_AUTO_TEST_CASE(a_block_that_fills_up_stays_known_and_has_others_behind_it) {
  ledger l;
  l.know(1, {1, 2, 3, 4, 5, 6});
  l.reserve(2, {{rid(1), 9}});
  l.tell(publish_blocks{{{rid(1), 1, 0, {5, 6, 70, 80}}}}); // with what was drawn
  l.tell(step_finished{2});
  auto a = l.reserve(3, {{rid(2), 1, list({1, 2, 3, 4, 5, 6, 70, 80, 90})}});
  BOOST_TEST(a.grants.at(0).cached == 8U);
  a = l.reserve(4, {{rid(3), 1, list({1, 2, 3, 4, 5, 6, 7})}});
  BOOST_TEST(a.grants.at(0).cached == 6U);
  BOOST_TEST(a.grants[0].copy->positions == 2U);
  l.tell(step_finished{4});
  for (const std::uint64_t n : {1, 2, 3}) l.tell(release_blocks{rid(n), 0});
  BOOST_TEST(l.core.level().cached == 2U);
}

BOOST_AUTO_TEST_CASE(a_block_that_turns_out_to_be_known_already_is_known_once) {
  ledger l(20);
  l.know(1, {1, 2, 3});
  l.know(2, {1, 9, 3});
  for (const std::uint64_t n : {1, 2}) {
    l.reserve(10 + n, {{rid(n), 5}});
    l.tell(publish_blocks{{{rid(n), 0, 0, {1, 2, 3, 4}}}}); // as if it had been so: its own place is given up
  }
  for (const std::uint64_t n : {1, 2}) l.tell(release_blocks{rid(n), 0});
  BOOST_TEST(l.core.level().cached == 1U);
}

BOOST_AUTO_TEST_CASE(short_of_memory_what_is_copied_is_given_up_after_the_step) {
  ledger l;
  l.know(1, eleven);
  l.tell(release_blocks{rid(1), 0});
  l.reserve(2, {{rid(2), 1, list(eleven)}});
  l.tell(spare_memory{true});
  BOOST_TEST(l.core.level().leased == 4U);
  l.tell(step_finished{2});
  BOOST_TEST(l.core.level().leased == 3U);
  BOOST_TEST(l.core.level().cached == 0U);
  l.tell(release_blocks{rid(2), 0});
  BOOST_TEST(l.core.level().free == 10U);
}

BOOST_AUTO_TEST_CASE(no_failed_allocation_breaks_the_ledger) {
  int without = 0;
  for (std::uint32_t nth = 1; nth < 16; ++nth) {
    ledger l;
    l.know(1, eleven);
    l.tell(release_blocks{rid(1), 0});
    reserve_blocks ask{2, {{rid(2), 1, list(eleven)}}};
    cache_effects out;
    out.reserve(8);
    {
      const sim::alloc_fault fault(nth);
      l.core.on(std::move(ask), time_point{}, out);
    }
    const auto& answer = std::get<blocks_reserved>(out.at(0));
    BOOST_TEST(l.core.pool().held(rid(2)) == (answer.grants.empty() ? 0U : 3U));
    BOOST_TEST(l.core.level().sources == (answer.grants.empty() ? 0U : 1U));
    BOOST_TEST(l.core.pool().audit());
    without += answer.grants.empty();
    l.tell(step_finished{2});
    l.tell(release_blocks{rid(2), 0});
    BOOST_TEST(l.core.pool().available() == 10U);
  }
  BOOST_TEST(without >= 4);
  for (std::uint32_t nth = 1; nth < 8; ++nth) { // what is not noted is not found
    ledger l;
    l.reserve(1, {{rid(1), 11}});
    publish_blocks news{{{rid(1), 0, 0, eleven}}};
    cache_effects out;
    {
      const sim::alloc_fault fault(nth);
      l.core.on(std::move(news), time_point{}, out);
    }
    const auto a = l.reserve(2, {{rid(2), 1, list(eleven)}});
    BOOST_TEST(a.grants.at(0).cached <= 10U);
    for (const std::uint64_t n : {1, 2}) l.tell(release_blocks{rid(n), 0});
    BOOST_TEST(l.core.pool().available() == 10U);
  }
}

// ---- the scheduler

BOOST_AUTO_TEST_CASE(choices_of_one_prompt_compute_it_once_and_a_row_each) {
  choosing s({.max_wait = milliseconds(5)});
  for (const std::uint64_t n : {1, 2, 3, 4}) s.begin(n, eleven);
  s.now += milliseconds(6);
  s.tell(alarm_rang{});
  BOOST_TEST((s.rows_of(1) == std::pair(0U, 11U)));
  BOOST_TEST(s.rows() == 11U);
  s.finish_step();
  for (const std::uint64_t n : {2, 3, 4}) {
    BOOST_TEST((s.rows_of(n) == std::pair(10U, 1U)));
    BOOST_TEST(s.entry(n)->want_token);
    BOOST_REQUIRE(s.entry(n)->copy);
    BOOST_TEST((*s.entry(n)->copy == kernels::kv_copy{s.block_of(1, 2), s.block_of(n, 2), 2}));
  }
  s.finish_step();
  for (const std::uint64_t n : {2, 3, 4}) BOOST_TEST(!s.entry(n)->copy);
  BOOST_TEST(s.core.stats().prefix_copied_blocks == 3U);
  BOOST_TEST(s.core.stats().prefix_found_tokens == 30U);
  while (s.running()) s.finish_step();
  BOOST_TEST(s.ended.size() == 4U);
  BOOST_TEST(s.all_is_over());
}

BOOST_AUTO_TEST_CASE(nobody_waits_for_the_end_of_a_prompt_that_is_a_row_or_two) {
  for (const std::size_t length : {1U, 2U, 3U, 4U}) {
    choosing s({.max_wait = milliseconds(5)});
    const ids prompt(eleven.begin(), eleven.begin() + static_cast<std::ptrdiff_t>(length));
    for (const std::uint64_t n : {1, 2}) s.begin(n, prompt);
    s.now += milliseconds(6);
    s.tell(alarm_rang{});
    BOOST_TEST(s.rows_of(1).second == length);
    BOOST_TEST(s.rows_of(2).second == (length <= 2 ? length : 0U));
    s.finish_step();
    if (length > 2) BOOST_TEST((s.rows_of(2) == std::pair(static_cast<std::uint32_t>(length) - 1, 1U)));
  }
}

BOOST_AUTO_TEST_CASE(one_waits_for_the_end_of_a_prompt_that_is_computed_in_parts) {
  choosing s({.max_step_tokens = 9});
  s.begin(1, eleven);
  s.begin(2, eleven);
  BOOST_TEST((s.rows_of(1) == std::pair(0U, 9U)));
  s.finish_step();
  BOOST_TEST((s.rows_of(1) == std::pair(9U, 2U))); // its full blocks are known
  BOOST_TEST(s.entry(2) == nullptr);
  s.finish_step();
  BOOST_TEST((s.rows_of(2) == std::pair(10U, 1U)));
}

BOOST_AUTO_TEST_CASE(a_prompt_that_parts_inside_a_block_begins_there) {
  choosing s;
  s.begin(1, eleven);
  s.finish_step();
  s.begin(2, {1, 2, 3, 4, 5, 6, 70});
  s.finish_step(); // of the first alone: the second came while it ran
  BOOST_TEST((s.rows_of(2) == std::pair(6U, 1U)));
  BOOST_TEST((*s.entry(2)->copy == kernels::kv_copy{s.block_of(1, 1), s.block_of(2, 1), 2}));
  while (s.running()) s.finish_step();
  BOOST_TEST(s.all_is_over());
}

BOOST_AUTO_TEST_CASE(without_the_cache_nothing_is_copied) {
  choosing s({.prefix_cache = false});
  s.begin(1, eleven);
  s.run_until_end(1);
  s.begin(2, eleven);
  BOOST_TEST((s.rows_of(2) == std::pair(0U, 11U)));
  BOOST_TEST(!s.entry(2)->copy);
}

BOOST_AUTO_TEST_CASE(the_copy_of_a_failed_step_is_asked_for_again) {
  choosing s;
  s.begin(1, eleven);
  s.run_until_end(1);
  s.begin(2, eleven);
  const auto first = s.entry(2)->copy;
  BOOST_REQUIRE(first);
  BOOST_TEST(s.cache.level().sources == 1U);
  s.fail_step();
  BOOST_TEST(s.closed_ids.back() == 2U);
  BOOST_TEST((s.rows_of(2) == std::pair(10U, 1U)));
  BOOST_REQUIRE(s.entry(2)->copy);
  BOOST_TEST(s.entry(2)->open.has_value());
  BOOST_TEST(s.entry(2)->copy->from == first->from);
  s.run_until_end(2);
  BOOST_TEST(s.all_is_over());
}

BOOST_AUTO_TEST_CASE(a_cancel_in_the_step_that_copies_keeps_the_source_until_its_end) {
  choosing s;
  s.begin(1, eleven);
  s.run_until_end(1);
  s.begin(2, eleven);
  const block_id from = s.entry(2)->copy->from;
  s.tell(cancel{rid(2), error{errc::cancelled, "left", {}, 0}});
  BOOST_TEST(!s.cache.pool().is_free(from));
  BOOST_TEST(s.cache.level().sources == 1U);
  s.finish_step();
  BOOST_TEST(s.cache.pool().is_free(from));
  BOOST_TEST(s.all_is_over());
}

BOOST_AUTO_TEST_CASE(a_cancel_before_the_step_lets_the_source_go) {
  choosing s;
  s.begin(1, eleven);
  s.run_until_end(1);
  s.answers = false;
  s.begin(2, eleven);
  s.tell(cancel{rid(2), error{errc::cancelled, "left", {}, 0}});
  s.deliver_cache_mail();
  BOOST_TEST(!s.running());
  BOOST_TEST(s.ended.contains(2));
  BOOST_TEST(s.cache.level().sources == 0U);
  BOOST_TEST(s.all_is_over());
}

BOOST_AUTO_TEST_CASE(what_only_a_step_copies_from_counts_as_free) {
  choosing s({}, 8);
  s.begin(1, eleven);
  s.run_until_end(1);
  s.begin(2, eleven, 1);
  BOOST_TEST(s.cache.level().leased == 4U);
  BOOST_TEST(s.core.committed_blocks() == 3U);
  s.run_until_end(2);
  BOOST_TEST(s.all_is_over());
}

BOOST_AUTO_TEST_SUITE_END()
