// SPDX-License-Identifier: Apache-2.0
#include "actors/executor_core.hpp"
#include "actors/guard_core.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::actors;

namespace {

request_id rid(std::uint64_t number) {
  return {1, 1, number};
}

plan_entry opening(
    std::uint64_t number, std::vector<std::int32_t> prompt, std::uint32_t count,
    std::vector<block_id> blocks) {
  plan_entry e;
  e.id = rid(number);
  e.count = count;
  e.want_token = count == prompt.size();
  e.new_blocks = std::move(blocks);
  e.open =
      sequence_opening{std::make_shared<const std::vector<std::int32_t>>(std::move(prompt)), {}, {}, true, 2};
  return e;
}
plan_entry going_on(std::uint64_t number, std::uint32_t first, std::uint32_t count = 1) {
  return {rid(number), first, count, true, {}, std::nullopt, no_limit};
}

struct bench {
  executor_core core;
  template<class Message>
  executor_effects tell(Message m) {
    executor_effects out;
    core.on(std::move(m), time_point{}, out);
    return out;
  }
  kernels::step_input plan(std::uint64_t seq, std::vector<plan_entry> entries) {
    auto out = tell(run_step{seq, std::move(entries)});
    return std::move(std::get<submit_step>(out.at(0)).input);
  }
  static step_computed answer(
      std::uint64_t seq, std::vector<std::pair<std::uint32_t, std::int32_t>> rows, std::uint32_t flags = 0) {
    step_computed c;
    c.result.step_seq = seq;
    c.result.duration_ns = 42;
    for (const auto& [row, token] : rows)
      c.result.rows.push_back({row, token, flags, -0.5F, {{3, -0.5F}}, {}});
    return c;
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(executor)

BOOST_AUTO_TEST_CASE(a_plan_becomes_rows_with_block_tables) {
  bench b;
  const auto in = b.plan(1, {opening(1, {5, 6, 7}, 3, {4, 2}), opening(2, {8, 9}, 1, {0})});
  BOOST_TEST(in.step_seq == 1U);
  BOOST_REQUIRE(in.rows.size() == 4U);
  BOOST_TEST(in.rows[2].token == 7);
  BOOST_TEST(in.rows[2].position == 2U);
  BOOST_TEST((in.rows[1].want == kernels::row_output::none));
  BOOST_TEST((in.rows[2].want == kernels::row_output::token));
  BOOST_TEST((in.rows[3].want == kernels::row_output::none));
  BOOST_TEST(in.rows[3].sequence == 1U);
  BOOST_TEST(in.sequences[0].blocks == (std::vector<std::uint32_t>{4, 2}), boost::test_tools::per_element());
  BOOST_TEST(in.sequences[0].logprobs);
  BOOST_TEST(in.sequences[0].history.empty()); // nothing is penalised
}

BOOST_AUTO_TEST_CASE(ids_are_held_back_until_min_tokens_were_drawn_also_after_a_recompute) {
  bench b;
  auto first = opening(1, {5, 6}, 2, {0});
  const std::int32_t end = 96, never = 7;
  first.open->filter = make_id_filter({&never, 1}, {&end, 1}, 2);
  const auto forbids = [](const kernels::step_input& in, std::int32_t id) {
    return in.sequences[0].mask && in.sequences[0].mask->forbids(id);
  };
  auto in = b.plan(1, {first});
  BOOST_TEST(forbids(in, 96));
  BOOST_TEST(forbids(in, 7));
  BOOST_TEST(!forbids(in, 8));
  b.tell(bench::answer(1, {{1, 11}}));
  BOOST_TEST(forbids(b.plan(2, {going_on(1, 2)}), 96));
  b.tell(bench::answer(2, {{0, 12}}));
  in = b.plan(3, {going_on(1, 3)});
  BOOST_TEST(!forbids(in, 96));
  BOOST_TEST(forbids(in, 7));
  b.tell(bench::answer(3, {{0, 13}}));
  b.tell(close_sequence{rid(1)});
  first.open->generated = {11};
  first.count = 3;
  BOOST_TEST(forbids(b.plan(4, {first}), 96));
  b.tell(bench::answer(4, {{2, 12}}));
  b.tell(close_sequence{rid(1)});
  first.open->generated = {11, 12};
  first.count = 4;
  BOOST_TEST(!forbids(b.plan(5, {first}), 96));
}

BOOST_AUTO_TEST_CASE(a_filter_that_forbids_nothing_is_none) {
  const std::int32_t end = 96;
  BOOST_TEST(!make_id_filter({}, {}, 5));
  BOOST_TEST(!make_id_filter({}, {&end, 1}, 0));
  BOOST_TEST(!make_id_filter({}, {&end, 1}, 2)->after(std::vector<std::int32_t>{1, 2}));
}

BOOST_AUTO_TEST_CASE(prompt_rows_are_scored_from_where_the_plan_says_to_the_last_but_one) {
  bench b;
  auto first = opening(1, {5, 6, 7, 8}, 3, {0});
  first.score_from = 1;
  auto in = b.plan(1, {first});
  BOOST_TEST((in.rows[0].want == kernels::row_output::none));
  BOOST_TEST((in.rows[1].want == kernels::row_output::score));
  BOOST_TEST(in.rows[1].target == 7);
  BOOST_TEST(in.rows[2].target == 8);
  auto out = b.tell(bench::answer(1, {{1, 7}, {2, 8}}));
  const auto& got = std::get<step_done>(out.at(0)).results.at(0);
  BOOST_TEST(got.token == -1);
  BOOST_REQUIRE_EQUAL(got.scores.size(), 2U);
  BOOST_TEST(got.scores[0].logprob == -0.5F);
  BOOST_TEST(got.scores[0].top.at(0).token == 3);

  auto next = going_on(1, 3);
  next.score_from = 3;
  in = b.plan(2, {next});
  BOOST_TEST((in.rows[0].want == kernels::row_output::token)); // what follows is no token of the prompt
  out = b.tell(bench::answer(2, {{0, 11}}));
  BOOST_TEST(std::get<step_done>(out.at(0)).results.at(0).scores.empty());
}

BOOST_AUTO_TEST_CASE(a_scored_row_that_is_not_finite_or_missing_does_not_pass) {
  for (const bool missing : {false, true}) {
    bench b;
    auto first = opening(1, {5, 6, 7}, 3, {0});
    first.score_from = 0;
    b.plan(1, {first});
    auto answer = bench::answer(1, {{0, 6}, {1, 7}, {2, 9}});
    answer.result.rows[0].flags = kernels::row_not_finite;
    if (missing) answer.result.rows.erase(answer.result.rows.begin() + 1);
    const auto out = b.tell(std::move(answer));
    BOOST_TEST(std::holds_alternative<step_failed>(out.at(0)) == missing);
    if (!missing) BOOST_TEST(std::get<check_rows>(out.at(0)).rows.size() == 1U);
  }
}

BOOST_AUTO_TEST_CASE(drawn_tokens_are_the_next_rows_input) {
  bench b;
  b.plan(1, {opening(1, {5, 6}, 2, {0})});
  const auto out = b.tell(bench::answer(1, {{1, 11}}));
  const auto& done = std::get<step_done>(out.at(0));
  BOOST_TEST(done.results.at(0).token == 11);
  BOOST_TEST(done.results[0].top.size() == 1U);
  BOOST_TEST((done.took == std::chrono::nanoseconds(42)));
  const auto in = b.plan(2, {going_on(1, 2)});
  BOOST_TEST(in.rows.at(0).token == 11);
  BOOST_TEST(in.rows[0].position == 2U);
}

BOOST_AUTO_TEST_CASE(penalties_see_prompt_and_output) {
  bench b;
  auto e = opening(1, {5, 6}, 2, {0});
  e.open->sampling.repetition_penalty = 1.5F;
  e.open->generated = {8};
  e.count = 3;
  e.want_token = true;
  const auto in = b.plan(1, {std::move(e)});
  BOOST_TEST(
      in.sequences[0].history == (std::vector<std::int32_t>{5, 6, 8}), boost::test_tools::per_element());
  BOOST_TEST(in.sequences[0].prompt_tokens == 2U);
}

BOOST_AUTO_TEST_CASE(late_doubled_and_unknown_answers_are_no_ops) {
  bench b;
  BOOST_TEST(b.tell(bench::answer(1, {})).empty());
  b.plan(2, {opening(1, {5}, 1, {0})});
  BOOST_TEST(b.tell(bench::answer(1, {{0, 3}})).empty());
  BOOST_TEST(b.tell(bench::answer(2, {{0, 3}})).size() == 1U);
  BOOST_TEST(b.tell(bench::answer(2, {{0, 3}})).empty());
  BOOST_TEST(b.core.running_step() == 0U);
}

BOOST_AUTO_TEST_CASE(a_failed_step_counts_for_nothing) {
  bench b;
  b.plan(1, {opening(1, {5}, 1, {0})});
  auto failed = bench::answer(1, {});
  failed.result.failed = true;
  failed.result.failure = "out of luck";
  const auto out = b.tell(std::move(failed));
  BOOST_TEST(std::get<step_failed>(out.at(0)).reason == "out of luck");
  BOOST_TEST(b.core.running_step() == 0U);
  const auto in = b.plan(2, {opening(1, {5}, 1, {7})});
  BOOST_TEST(in.sequences[0].blocks.at(0) == 7U); // opened anew: the old table is gone
  BOOST_TEST(in.sequences[0].blocks.size() == 1U);
}

BOOST_AUTO_TEST_CASE(an_answer_without_a_row_that_was_asked_for_fails_the_step) {
  bench b;
  b.plan(1, {opening(1, {5}, 1, {0}), opening(2, {5}, 1, {1})});
  const auto out = b.tell(bench::answer(1, {{0, 3}}));
  BOOST_TEST(std::holds_alternative<step_failed>(out.at(0)));
}

BOOST_AUTO_TEST_CASE(a_plan_for_what_is_not_held_fails_the_step) {
  bench b;
  BOOST_TEST(std::holds_alternative<step_failed>(b.tell(run_step{1, {going_on(1, 0)}}).at(0)));
  b.plan(2, {opening(1, {5}, 1, {0})});
  const auto out = b.tell(run_step{3, {going_on(1, 1)}}); // one step at a time
  BOOST_TEST(std::get<step_failed>(out.at(0)).step_seq == 3U);
  BOOST_TEST(b.core.running_step() == 2U);
}

BOOST_AUTO_TEST_CASE(a_sequence_closed_in_a_step_leaves_nothing_behind) {
  bench b;
  b.plan(1, {opening(1, {5}, 1, {0})});
  BOOST_TEST(b.tell(close_sequence{rid(1)}).empty());
  BOOST_TEST(b.tell(bench::answer(1, {{0, 3}})).size() == 1U);
  BOOST_TEST(b.core.sequences() == 0U);
  BOOST_TEST(b.tell(close_sequence{rid(1)}).empty());
}

BOOST_AUTO_TEST_CASE(no_token_of_a_bad_row_leaves_before_the_guard_has_ruled) {
  bench b;
  guard_core guard;
  b.plan(1, {opening(1, {5}, 1, {0}), opening(2, {6}, 1, {1})});
  auto mixed = bench::answer(1, {{0, 3}, {1, 4}});
  mixed.result.rows[1].flags = kernels::row_not_finite;
  auto out = b.tell(std::move(mixed));
  BOOST_REQUIRE(std::holds_alternative<check_rows>(out.at(0)));
  BOOST_TEST(b.core.running_step() == 1U);
  BOOST_TEST(b.tell(bench::answer(1, {{0, 3}, {1, 4}})).empty()); // doubled meanwhile
  BOOST_TEST(b.tell(row_verdicts{7, {}}).empty());
  guard_effects ruled;
  guard.on(std::get<check_rows>(std::move(out[0])), time_point{}, ruled);
  const auto& verdicts = std::get<row_verdicts>(ruled.at(0));
  BOOST_TEST((verdicts.verdicts.at(0).id == rid(2)));
  out = b.tell(verdicts);
  const auto& done = std::get<step_done>(out.at(0));
  BOOST_TEST(!done.results[0].not_finite);
  BOOST_TEST(done.results[1].not_finite);
}

BOOST_AUTO_TEST_SUITE_END()
