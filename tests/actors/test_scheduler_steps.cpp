// SPDX-License-Identifier: Apache-2.0
#include "stage.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstdio>

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::test;

BOOST_AUTO_TEST_SUITE(scheduler_steps)

BOOST_AUTO_TEST_CASE(a_step_mixes_decode_rows_with_a_prompt_chunk_under_the_budget) {
  scheduler_options o;
  o.max_step_tokens = 8;
  stage s(o);
  s.submit(1, 4, 20);
  s.submit(2, 20, 20);
  s.finish_step(); // 1's prompt
  BOOST_TEST(s.rows() == 8U);
  BOOST_TEST(s.entry(1)->count == 1U);
  BOOST_TEST(s.entry(2)->count == 7U);
  BOOST_TEST(!s.entry(2)->want_token);
  s.finish_step();
  s.finish_step();
  BOOST_TEST(s.entry(2)->first == 14U);
  BOOST_TEST(s.entry(2)->count == 6U);
  BOOST_TEST(s.entry(2)->want_token);
  BOOST_TEST(s.tokens[2].empty());
  s.finish_step();
  BOOST_TEST(s.tokens[2].size() == 1U);
  BOOST_TEST(s.tokens[2][0].position == 20U);
}

BOOST_AUTO_TEST_CASE(prompts_keep_a_quarter_of_a_crowded_step) {
  scheduler_options o;
  o.max_step_tokens = 4;
  stage s(o);
  for (std::uint64_t i = 1; i <= 4; ++i) {
    s.submit(i, 1, 20);
    while (s.tokens[i].empty()) s.finish_step();
  }
  s.submit(5, 2, 2);
  s.finish_step();
  BOOST_TEST(s.entry(5) != nullptr);
  BOOST_TEST(s.rows() == 4U);
  // Whoever was passed over comes first the next time: nobody misses two steps.
  std::map<std::uint64_t, int> missed;
  for (int n = 0; n < 6; ++n) {
    for (std::uint64_t i = 1; i <= 4; ++i) missed[i] = s.entry(i) != nullptr ? 0 : missed[i] + 1;
    for (std::uint64_t i = 1; i <= 4; ++i) BOOST_TEST(missed[i] <= 1);
    s.finish_step();
  }
}

BOOST_AUTO_TEST_CASE(plans_ascend_by_id_whatever_came_first) {
  stage s(scheduler_options{});
  s.submit(9, 4, 20, 9);
  for (std::uint64_t i : {7U, 3U, 5U}) s.submit(i, 4, 20, static_cast<std::uint32_t>(i));
  s.finish_step();
  s.finish_step();
  std::vector<std::uint64_t> ids;
  for (const auto& e : s.step->entries) ids.push_back(e.id.number);
  BOOST_TEST(ids == (std::vector<std::uint64_t>{3, 5, 7, 9}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_sequence_ends_for_the_right_reason) {
  struct row {
    const char* what;
    std::vector<std::int32_t> drawn;
    std::uint32_t max_tokens, min_tokens;
    std::vector<std::int32_t> stop_ids;
    bool ignore_eos;
    finish_reason reason;
    std::size_t tokens;
  };
  const auto eos = stage::eos;
  const row rows[] = {
      {"end of sequence", {9, eos}, 8, 0, {}, false, finish_reason::stop, 2},
      {"end of sequence first", {eos}, 8, 0, {}, false, finish_reason::stop, 1},
      {"ignored", {eos, eos, eos}, 3, 0, {}, true, finish_reason::length, 3},
      {"drawn although held back", {eos, eos, eos, eos}, 8, 3, {}, false, finish_reason::stop, 4},
      {"stop id", {9, 11}, 8, 0, {10, 11}, false, finish_reason::stop, 2},
      {"stop id drawn although held back", {11, 11, 9, 11}, 8, 2, {11}, false, finish_reason::stop, 4},
      {"stop id though eos is ignored", {eos, 11}, 8, 0, {11}, true, finish_reason::stop, 2},
      {"length", {9, 9}, 2, 0, {}, false, finish_reason::length, 2},
      {"stop as the last token", {9, eos}, 2, 0, {}, false, finish_reason::stop, 2},
  };
  for (const auto& r : rows) {
    BOOST_TEST_CONTEXT(r.what) {
      stage s(scheduler_options{});
      s.knock(1);
      enqueue m;
      m.id = rid(1);
      m.prompt = prompt_of(4);
      m.max_tokens = r.max_tokens;
      m.min_tokens = r.min_tokens;
      m.stop_ids = r.stop_ids;
      m.ignore_eos = r.ignore_eos;
      s.tell(std::move(m));
      for (const auto t : r.drawn)
        if (s.running()) s.finish_step(t);
      BOOST_REQUIRE(s.ended.contains(1));
      BOOST_TEST((s.ended[1].reason == r.reason));
      BOOST_TEST(s.ended[1].completion_tokens == r.tokens);
      BOOST_TEST(s.tokens[1].size() == r.tokens);
      BOOST_TEST(s.tokens[1].back().ends == (r.reason == finish_reason::stop));
      BOOST_TEST(s.cache.pool().available() == 64U);
    }
  }
}

BOOST_AUTO_TEST_CASE(what_ends_a_sequence_is_held_back_until_min_tokens) {
  struct row {
    std::uint32_t min_tokens;
    bool ignore_eos;
    std::vector<std::int32_t> stop_ids, held_back;
  };
  const row rows[] = {
      {0, false, {11}, {}},
      {2, false, {}, {stage::eos}},
      {2, false, {11, 12}, {11, 12, stage::eos}},
      {2, true, {11}, {11}},
      {2, true, {}, {}},
  };
  for (const auto& r : rows) {
    stage s(scheduler_options{});
    s.knock(1);
    enqueue m;
    m.id = rid(1);
    m.prompt = prompt_of(4);
    m.max_tokens = 8;
    m.min_tokens = r.min_tokens;
    m.stop_ids = r.stop_ids;
    m.ignore_eos = r.ignore_eos;
    s.tell(std::move(m));
    BOOST_REQUIRE(s.running());
    const auto& open = s.step->entries.at(0).open;
    BOOST_REQUIRE(open.has_value());
    const auto mask = open->filter ? open->filter->after({}) : shared_mask();
    for (const std::int32_t id : {stage::eos, 11, 12, 13}) {
      const bool held = std::find(r.held_back.begin(), r.held_back.end(), id) != r.held_back.end();
      BOOST_TEST((mask && mask->forbids(id)) == held);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_prompt_is_scored_a_bounded_number_of_rows_at_a_time_and_once) {
  for (const bool preempted : {false, true}) {
    scheduler_options o;
    o.max_scored_rows = 3;
    if (preempted) o.preempt_every = 1;
    stage s(o);
    s.scored_end = 10;
    s.knock(1);
    enqueue m;
    m.id = rid(1);
    m.prompt = prompt_of(10);
    m.max_tokens = 3;
    m.score_prompt = true;
    s.tell(std::move(m));
    for (int steps = 0; s.running() && steps < 50; ++steps) {
      const plan_entry& e = *s.entry(1);
      std::uint32_t scored = 0;
      for (std::uint32_t p = std::max(e.first, e.score_from); p < e.first + e.count && p + 1 < 10; ++p)
        ++scored;
      BOOST_TEST(scored <= 3U);
      s.finish_step();
    }
    BOOST_REQUIRE(s.ended.contains(1));
    BOOST_TEST(s.ended[1].completion_tokens == 3U);
    BOOST_TEST(s.ended[1].scored_tokens == 9U);
    BOOST_TEST(!s.gaps);
    BOOST_REQUIRE_EQUAL(s.scores[1].size(), 9U);
    for (std::size_t i = 0; i < 9; ++i) BOOST_TEST(s.scores[1][i] == -static_cast<float>(i));
    BOOST_TEST(s.cache.pool().available() == 64U);
  }
}

BOOST_AUTO_TEST_CASE(without_tokens_to_draw_a_prompt_may_fill_the_context_and_ends_by_its_length) {
  for (const bool scored : {false, true}) {
    stage s(scheduler_options{}, 64, 4, 8);
    s.scored_end = scored ? 8 : 0;
    s.knock(1, 5, 8, 0);
    enqueue m;
    m.id = rid(1);
    m.prompt = prompt_of(8);
    m.max_tokens = 0;
    m.score_prompt = scored;
    s.tell(std::move(m));
    BOOST_TEST(s.running() == scored);
    if (scored) BOOST_TEST(!s.entry(1)->want_token);
    s.run_until_end(1);
    BOOST_REQUIRE(s.ended.contains(1));
    BOOST_TEST((s.ended[1].reason == finish_reason::length));
    BOOST_TEST(s.ended[1].completion_tokens == 0U);
    BOOST_TEST(s.ended[1].scored_tokens == (scored ? 7U : 0U));
    BOOST_TEST(s.refusals.empty());
    BOOST_TEST(s.cache.pool().available() == 64U);
  }
}

BOOST_AUTO_TEST_CASE(a_prompt_as_long_as_the_context_has_no_room_for_a_token) {
  stage s(scheduler_options{}, 64, 4, 8);
  s.submit(1, 8, 1);
  BOOST_TEST((s.refusals.at(1).code == errc::context_length_exceeded));
  s.submit(2, 7, no_limit);
  s.run_until_end(2);
  BOOST_TEST((s.ended.at(2).reason == finish_reason::length));
  BOOST_TEST(s.ended.at(2).completion_tokens == 1U);
}

BOOST_AUTO_TEST_CASE(a_scored_row_that_is_not_finite_ends_its_sequence) {
  stage s(scheduler_options{});
  s.scored_end = 4;
  s.not_finite = 1;
  s.knock(1);
  enqueue m;
  m.id = rid(1);
  m.prompt = prompt_of(4);
  m.max_tokens = 0;
  m.score_prompt = true;
  s.tell(std::move(m));
  s.finish_step();
  BOOST_REQUIRE(s.ended.contains(1));
  BOOST_TEST((s.ended[1].failed.value().code == errc::not_finite));
  BOOST_TEST(s.scores[1].empty());
}

BOOST_AUTO_TEST_CASE(choices_of_a_request_that_has_begun_do_not_time_out_in_the_queue) {
  for (const bool together : {true, false}) {
    scheduler_options o;
    o.max_batch = 1;
    o.queue_timeout = seconds(1);
    stage s(o);
    for (const std::uint64_t number : {1U, 2U})
      s.tell(admission_request{rid(number), 5, 4, 4, time_point::max(), {}, together ? 1U : 0U});
    s.hand_in(1);
    s.hand_in(2);
    s.finish_step();
    s.now += seconds(2);
    s.tell(alarm_rang{});
    BOOST_TEST(s.ended.contains(2) == !together);
    s.run_until_end(1);
    s.run_until_end(2);
    BOOST_TEST(s.ended[2].failed.has_value() == !together);
  }
}

BOOST_AUTO_TEST_CASE(choices_that_wait_time_out_together) {
  scheduler_options o;
  o.max_batch = 1;
  o.queue_timeout = seconds(1);
  stage s(o);
  s.submit(1, 4, 50);
  s.tell(admission_request{rid(2), 5, 4, 4, time_point::max(), {}, 7});
  s.now += milliseconds(500);
  s.tell(admission_request{rid(3), 5, 4, 4, time_point::max(), {}, 7});
  s.tell(admission_request{rid(4), 5, 4, 4, time_point::max(), {}, 8});
  s.now += milliseconds(600);
  s.tell(alarm_rang{});
  for (const std::uint64_t number : {2U, 3U})
    BOOST_TEST((s.ended.at(number).failed.value().code == errc::queue_timeout));
  BOOST_TEST(!s.ended.contains(4));
}

BOOST_AUTO_TEST_CASE(the_context_ends_a_sequence_too) {
  stage s(scheduler_options{}, 64, 4, 8);
  s.submit(1, 5, no_limit);
  s.run_until_end(1);
  BOOST_TEST((s.ended[1].reason == finish_reason::length));
  BOOST_TEST(s.tokens[1].size() == 3U);
  BOOST_TEST(s.tokens[1].back().position == 7U);
}

BOOST_AUTO_TEST_CASE(an_idle_scheduler_waits_for_company_no_longer_than_asked) {
  scheduler_options o;
  o.max_wait = milliseconds(10);
  o.max_batch = 3;
  stage s(o);
  s.submit(1);
  BOOST_TEST(!s.running());
  BOOST_TEST((s.alarm == s.now + milliseconds(10)));
  s.now += milliseconds(10);
  s.tell(alarm_rang{});
  BOOST_TEST(s.running());
  s.submit(2); // a running batch is joined without waiting
  s.finish_step();
  BOOST_TEST(s.entry(2) != nullptr);
}

BOOST_AUTO_TEST_CASE(a_stream_under_way_does_not_wait_for_company) {
  scheduler_options o;
  o.max_wait = milliseconds(10);
  o.preempt_every = 1;
  o.kv_low_watermark = o.kv_high_watermark = 100;
  stage s(o, 8, 1, 64);
  s.submit(1, 3, 20, 9);
  s.now += milliseconds(10);
  s.tell(alarm_rang{});
  s.submit(2, 5, 20, 0);
  s.finish_step(); // 1 is preempted, and there is room for 2 only, who has just come
  BOOST_TEST(s.running());
  BOOST_TEST(s.entry(1) == nullptr);
}

BOOST_AUTO_TEST_CASE(a_full_batch_does_not_wait) {
  scheduler_options o;
  o.max_wait = milliseconds(10);
  o.max_batch = 2;
  stage s(o);
  s.submit(1);
  BOOST_TEST(!s.running());
  s.submit(2);
  BOOST_TEST(s.running());
  BOOST_TEST(s.step->entries.size() == 2U);
}

BOOST_AUTO_TEST_CASE(a_paused_sequence_keeps_its_blocks_and_gives_up_its_place) {
  scheduler_options o;
  o.max_batch = 1;
  stage s(o);
  s.submit(1, 4, 20);
  s.submit(2, 4, 20);
  s.finish_step();
  BOOST_TEST(s.entry(1) != nullptr);
  s.tell(stream_paused{rid(1)});
  s.tell(stream_paused{rid(1)}); // idempotent
  s.finish_step();
  BOOST_TEST(s.entry(1) == nullptr);
  BOOST_TEST(s.entry(2) != nullptr);
  BOOST_TEST(s.held(1) > 0U);
  BOOST_TEST(s.core.stats().paused == 1U);
  s.tell(stream_resumed{rid(1)});
  s.finish_step();
  s.finish_step();
  BOOST_TEST(s.step->entries.size() == 1U); // two seats now, one row at a time, in turn
  const bool first = s.entry(1) != nullptr;
  s.finish_step();
  BOOST_TEST((s.entry(1) != nullptr) != first);
}

BOOST_AUTO_TEST_CASE(a_row_that_is_not_finite_fails_alone) {
  stage s(scheduler_options{});
  s.submit(1, 4, 8);
  s.submit(2, 4, 8);
  s.finish_step();
  s.finish_step();
  s.not_finite = 1;
  s.finish_step();
  BOOST_TEST((s.ended.at(1).failed->code == errc::not_finite));
  BOOST_TEST(!s.ended.contains(2));
  BOOST_TEST(s.held(1) == 0U);
}

BOOST_AUTO_TEST_CASE(a_failed_step_is_computed_anew_and_its_culprit_found_alone) {
  stage s({.prefix_cache = false});
  for (std::uint64_t i = 1; i <= 3; ++i) s.submit(i, 4, 6);
  s.finish_step();
  while (s.tokens[3].size() < 2) s.finish_step();
  const auto before = s.tokens[1].size();
  s.fail_step();
  // One by one: 2 is to blame.
  std::vector<std::uint64_t> alone;
  while (s.running() && alone.size() < 3) {
    BOOST_TEST(s.step->entries.size() == 1U);
    const auto& e = s.step->entries[0];
    alone.push_back(e.id.number);
    BOOST_TEST(e.first == 0U);
    BOOST_REQUIRE(e.open.has_value());
    BOOST_TEST(e.open->generated.size() == s.tokens[e.id.number].size());
    if (e.id.number == 2)
      s.fail_step();
    else
      s.finish_step();
  }
  BOOST_TEST(alone == (std::vector<std::uint64_t>{1, 2, 3}), boost::test_tools::per_element());
  BOOST_TEST((s.ended.at(2).failed->code == errc::poison_request));
  BOOST_TEST(s.tokens[1].size() == before + 1);
  s.run_until_end(1);
  s.run_until_end(3);
  BOOST_TEST((s.ended.at(1).reason == finish_reason::length));
  BOOST_TEST((s.ended.at(3).reason == finish_reason::length));
  BOOST_TEST(s.cache.pool().available() == 64U);
}

BOOST_AUTO_TEST_CASE(late_and_doubled_results_are_no_ops) {
  stage s(scheduler_options{});
  s.submit(1, 4, 8);
  const auto seq = s.step->step_seq;
  s.finish_step();
  s.tell(step_done{seq, {{rid(1), 5}}, {}});
  s.tell(step_failed{seq, "late"});
  s.tell(step_done{seq + 7, {{rid(1), 5}}, {}});
  s.tell(blocks_released{rid(77), 3});
  s.tell(cancel{rid(77), {errc::cancelled, "", {}, 0}});
  BOOST_TEST(s.tokens[1].size() == 1U);
  BOOST_TEST(s.running());
}

BOOST_AUTO_TEST_CASE(a_cancel_at_any_point_frees_everything_and_ends_once) {
  enum point { at_door, queued, ready, reserving, in_step, between_steps, closing };
  for (const auto p : {at_door, queued, ready, reserving, in_step, between_steps, closing}) {
    BOOST_TEST_CONTEXT("point " << p) {
      scheduler_options o;
      o.max_batch = p == queued ? 1 : 4;
      if (p == ready) o.max_wait = seconds(1);
      stage s(o);
      if (p == queued) s.submit(9, 4, 20);
      s.knock(1, 5, 6, 20);
      if (p == reserving) s.answers = false;
      if (p != at_door) s.hand_in(1, 6, 20);
      if (p == between_steps) { // it is paused, the other runs
        s.submit(9, 4, 20);
        s.finish_step();
        s.tell(stream_paused{rid(1)});
        s.finish_step();
        BOOST_TEST(s.entry(1) == nullptr);
      }
      const cancel c{rid(1), {errc::cancelled, "", {}, 0}};
      s.tell(cancel(c));
      if (p == closing) s.tell(cancel(c));
      const bool limbo = p == in_step || p == closing;
      BOOST_TEST(s.ended.contains(1) == (!limbo && p != reserving));
      if (limbo) {
        BOOST_TEST(s.cache.level().limbo == 2U);
        s.finish_step();
      }
      s.answers = true;
      s.deliver_cache_mail();
      BOOST_TEST((s.ended.at(1).reason == finish_reason::cancelled));
      BOOST_TEST(s.ends == 1);
      BOOST_TEST(s.held(1) == 0U);
      BOOST_TEST(s.cache.level().limbo == 0U);
      BOOST_TEST(s.view(1).id.number == 0U);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_drain_lets_running_work_end_and_a_cut_does_not) {
  stage s(scheduler_options{});
  s.submit(1, 4, 3);
  s.tell(drain{});
  BOOST_TEST(s.drains == 0);
  s.run_until_end(1);
  BOOST_TEST((s.ended[1].reason == finish_reason::length));
  BOOST_TEST(s.drains == 1);

  stage t(scheduler_options{});
  t.submit(1, 4, 30);
  t.submit(2, 4, 30);
  t.tell(cut{{errc::shutdown, "over", {}, 0}});
  BOOST_TEST(t.drains == 0); // a step still writes
  t.finish_step();
  BOOST_TEST((t.ended.at(1).failed->code == errc::shutdown));
  BOOST_TEST((t.ended.at(2).failed->code == errc::shutdown));
  BOOST_TEST(t.drains == 1);
}

/// The best time of a scheduler's turn that ends a step of `rows` decoding sequences.
std::chrono::nanoseconds turn_time(std::uint32_t rows) {
  scheduler_options o;
  o.max_batch = rows;
  o.ageing_quantum = seconds(5);
  stage s(o, 64 * rows, 32, 1024);
  for (std::uint64_t i = 1; i <= rows; ++i) s.submit(i, 16, 1000);
  for (int i = 0; i < 100 && s.step->entries.size() < rows; ++i) s.finish_step();
  BOOST_TEST(s.step->entries.size() == rows);
  auto best = std::chrono::nanoseconds::max();
  for (int i = 0; i < 200; ++i) {
    step_done done{s.step->step_seq, {}, milliseconds(1)};
    for (const auto& e : s.step->entries) done.results.push_back({e.id, 9});
    scheduler_effects out;
    out.reserve(4 * rows);
    const auto begin = std::chrono::steady_clock::now();
    s.core.on(std::move(done), s.now, out);
    best = std::min<std::chrono::nanoseconds>(best, std::chrono::steady_clock::now() - begin);
    s.step.reset();
    for (auto& e : out) {
      if (auto* r = std::get_if<run_step>(&e)) s.step = std::move(*r);
      if (auto* r = std::get_if<reserve_blocks>(&e)) s.cache_mail.emplace_back(std::move(*r));
      if (auto* r = std::get_if<step_finished>(&e)) s.cache_mail.emplace_back(*r);
    }
    s.deliver_cache_mail();
  }
  return best;
}

BOOST_AUTO_TEST_CASE(a_turn_takes_a_time_in_proportion_to_its_sequences) {
  const auto few = turn_time(16), many = turn_time(128);
  std::printf(
      "a scheduler turn takes %.1f us for 16 sequences and %.1f us for 128\n",
      static_cast<double>(few.count()) / 1000, static_cast<double>(many.count()) / 1000);
  BOOST_TEST(many.count() < 24 * few.count()); // 8 is proportional, 64 is each with each
}

BOOST_AUTO_TEST_CASE(short_prompts_are_not_held_up_by_a_long_one) {
  scheduler_options o;
  o.max_step_tokens = 128;
  stage s(o, 512, 4, 1024);
  s.submit(1, 900, 4);
  s.finish_step();
  BOOST_TEST(s.entry(1)->count == 128U);
  s.submit(2, 40, 4);
  s.submit(3, 40, 4);
  s.finish_step();
  BOOST_TEST(s.entry(2)->count == 40U);
  BOOST_TEST(s.entry(3)->count == 40U);
  BOOST_TEST(s.entry(1)->count == 48U); // what is left, and a quarter of all whoever else came
  for (std::uint64_t i = 4; i <= 9; ++i) s.submit(i, 60, 4);
  s.finish_step();
  BOOST_TEST(s.entry(1)->count >= 31U);
}

BOOST_AUTO_TEST_CASE(beside_streams_prompts_are_cut_to_twice_the_time_of_the_streams_alone) {
  scheduler_options o;
  o.least_prefill_rows = 4;
  stage s(o, 512, 4, 1024);
  // 4 ms and one for each row.
  const auto finish = [&] { s.finish_step_after(milliseconds(4 + s.rows())); };
  for (std::uint64_t i = 1; i <= 4; ++i) s.submit(i, 4 + static_cast<std::uint32_t>(i), 200);
  for (int i = 0; i < 40; ++i) finish();
  s.submit(5, 100, 4);
  finish();
  for (int i = 0; i < 5; ++i) {
    BOOST_TEST(s.entry(5)->count <= 9U); // 8 ms of rows to the 8 ms that the streams take
    BOOST_TEST(s.entry(5)->count >= 4U);
    finish();
  }
  BOOST_TEST(s.core.stats().cut_steps > 0U);
}

BOOST_AUTO_TEST_CASE(a_goal_says_how_long_a_step_with_streams_may_take) {
  scheduler_options o;
  o.tpot_goals.fill(milliseconds(40));
  stage s(o, 512, 4, 1024);
  const auto finish = [&] { s.finish_step_after(milliseconds(4 + s.rows())); };
  s.submit(1, 8, 200);
  for (int i = 0; i < 40; ++i) finish();
  s.submit(2, 300, 4);
  finish();
  for (int i = 0; i < 3; ++i) {
    const auto rows = s.rows();
    BOOST_TEST(rows >= 32U); // the least
    BOOST_TEST(rows <= 41U); // 36 rows take 40 ms; what a prompt's row costs is known from eight of them only
    finish();
  }
}

BOOST_AUTO_TEST_SUITE_END()
