// SPDX-License-Identifier: Apache-2.0
// Requests that come back after a crash of the scheduler that had let them in.
#include "stage.hpp"

#include <boost/test/unit_test.hpp>

#include <memory>

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::test;

namespace {

held_place place_of(
    std::uint64_t number, std::size_t prompt, std::vector<std::int32_t> drawn = {},
    std::uint32_t max_tokens = 8) {
  held_place p;
  p.prompt_tokens = static_cast<std::uint32_t>(prompt);
  p.wish.prompt = prompt_of(prompt, number);
  p.wish.max_tokens = max_tokens;
  p.begun = p.started = !drawn.empty();
  p.drawn = std::move(drawn);
  p.arrival = time_point(seconds(90));
  p.last_token = time_point(seconds(95));
  return p;
}

void come_back(stage& s, std::uint64_t number, held_place p) {
  s.tell(readmission{rid(number), std::make_shared<const held_place>(std::move(p))});
}

scheduler_options small() {
  scheduler_options o;
  o.max_batch = 2;
  o.max_queue = 0;
  return o;
}

} // namespace

BOOST_AUTO_TEST_SUITE(scheduler_return)

BOOST_AUTO_TEST_CASE(it_is_opened_with_what_was_drawn_and_goes_on_behind_it) {
  stage s(scheduler_options{});
  held_place p = place_of(1, 5, {20, 21, 22});
  p.wish.min_tokens = 4;
  p.wish.sampling.seed = 99;
  come_back(s, 1, std::move(p));
  BOOST_REQUIRE(s.entry(1) != nullptr);
  BOOST_TEST(s.entry(1)->count == 8U);
  BOOST_TEST(s.entry(1)->want_token);
  BOOST_REQUIRE(s.entry(1)->open.has_value());
  BOOST_TEST(
      s.entry(1)->open->generated == (std::vector<std::int32_t>{20, 21, 22}),
      boost::test_tools::per_element());
  BOOST_TEST(s.entry(1)->open->sampling.seed == 99U);
  BOOST_TEST(s.entry(1)->open->reach == 8U);
  BOOST_TEST(s.admitted_ids.empty()); // it knows
  BOOST_TEST(s.started_ids.empty());
  s.finish_step();
  BOOST_TEST(s.tokens[1].size() == 1U);
  BOOST_TEST(s.tokens[1][0].position == 8U);
  s.run_until_end(1);
  BOOST_TEST(s.tokens[1].size() == 5U);
  BOOST_TEST(s.ended[1].completion_tokens == 8U);
  BOOST_TEST(s.ended[1].prompt_tokens == 5U);
  BOOST_TEST(s.core.stats().readmitted == 1U);
  BOOST_TEST(s.core.stats().time_to_first_token.sum == 0); // it had that before
  BOOST_TEST(s.core.stats().time_per_output_token.counts.back() == 0U);
}

BOOST_AUTO_TEST_CASE(what_was_the_whole_answer_ends_at_once) {
  const auto end_of = [](held_place p) {
    stage s(scheduler_options{});
    come_back(s, 1, std::move(p));
    BOOST_TEST(!s.running());
    BOOST_REQUIRE(s.ended.contains(1));
    BOOST_TEST(s.tokens[1].empty());
    BOOST_TEST(s.core.idle());
    return s.ended[1];
  };
  BOOST_TEST((end_of(place_of(1, 4, {5, 6, 7}, 3)).reason == finish_reason::length));
  const auto by_eos = end_of(place_of(1, 4, {5, stage::eos}));
  BOOST_TEST((by_eos.reason == finish_reason::stop));
  BOOST_TEST(by_eos.completion_tokens == 2U);
  held_place by_id = place_of(1, 4, {5, 6});
  by_id.wish.stop_ids = {6};
  BOOST_TEST((end_of(by_id).reason == finish_reason::stop));
  BOOST_TEST((end_of(place_of(1, 60, {1, 2, 3, 4}, no_limit)).reason == finish_reason::length));
  held_place scored = place_of(1, 4, {}, 0);
  scored.wish.score_prompt = true;
  scored.scored = 3;
  BOOST_TEST((end_of(scored).reason == finish_reason::length));
  BOOST_TEST(end_of(scored).scored_tokens == 3U);
}

BOOST_AUTO_TEST_CASE(an_end_that_min_tokens_held_back_is_none) {
  stage s(scheduler_options{});
  held_place p = place_of(1, 4, {5, stage::eos});
  p.wish.min_tokens = 3;
  come_back(s, 1, std::move(p));
  BOOST_TEST(s.running());
}

BOOST_AUTO_TEST_CASE(a_prompt_that_no_scheduler_had_seen_is_looked_at) {
  stage s(scheduler_options{});
  come_back(s, 1, place_of(1, 0));
  come_back(s, 2, place_of(2, 64));
  come_back(s, 3, place_of(3, 64, {}, 0));
  BOOST_TEST((s.refusals.at(1).code == errc::bad_request));
  BOOST_TEST((s.refusals.at(2).code == errc::context_length_exceeded));
  BOOST_TEST(!s.refusals.contains(3));
  BOOST_TEST(s.core.idle());
}

BOOST_AUTO_TEST_CASE(load_refuses_nobody_who_was_let_in) {
  scheduler_options o = small();
  o.tenants.max_live = 1;
  o.tenants.requests_per_second = 1;
  o.tenants.tokens_per_second = 1;
  o.tenants.token_burst = 1;
  stage s(o, 4);
  for (std::uint64_t i = 1; i <= 6; ++i) come_back(s, i, place_of(i, 6, {}, 4));
  BOOST_TEST(s.refusals.empty());
  BOOST_TEST(s.core.requests().size() == 6U);
  BOOST_TEST(!s.knock(7));
  for (std::uint64_t i = 1; i <= 6; ++i) s.run_until_end(i);
  for (std::uint64_t i = 1; i <= 6; ++i) BOOST_TEST(s.tokens[i].size() == 4U);
  BOOST_TEST(s.cache.pool().available() == 4U);
}

BOOST_AUTO_TEST_CASE(a_tenant_is_not_charged_again_and_its_requests_count_as_in_hand) {
  scheduler_options o;
  o.tenants.requests_per_second = 0.001;
  o.tenants.request_burst = 1;
  o.tenants.max_live = 2;
  stage s(o);
  come_back(s, 1, place_of(1, 4, {5, 6}));
  BOOST_TEST(s.knock(2)); // its burst is untouched
  BOOST_TEST(!s.knock(3));
  BOOST_TEST((s.refusals[3].code == errc::tenant_busy));
}

BOOST_AUTO_TEST_CASE(places_go_by_age_whoever_comes_back_first) {
  stage s(small());
  for (std::uint64_t i : {4U, 3U, 2U, 1U}) {
    held_place p = place_of(i, 4, {9}, 20);
    p.arrival = time_point(seconds(90 + i));
    p.paused = i < 3;
    come_back(s, i, std::move(p));
  }
  for (std::uint64_t i = 1; i <= 4; ++i) {
    const auto v = s.view(i);
    BOOST_TEST(v.rank == (time_point(seconds(90 + i)).time_since_epoch() + 5 * seconds(5)).count());
    BOOST_TEST(v.paused == (i < 3));
  }
  for (std::uint64_t i : {1U, 2U}) BOOST_TEST(s.entry(i) == nullptr); // nobody reads
  s.tell(stream_resumed{rid(2)});
  s.tell(stream_resumed{rid(1)});
  s.tell(cancel{rid(4), error{errc::cancelled, "", {}, 0}});
  s.finish_step();
  BOOST_TEST(s.view(1).seated); // the eldest of those who wait
  BOOST_TEST(!s.view(2).seated);
}

BOOST_AUTO_TEST_CASE(one_that_is_being_tokenised_keeps_its_place_until_its_prompt_comes) {
  stage s(small());
  held_place p = place_of(1, 4);
  p.wish.prompt = nullptr;
  come_back(s, 1, std::move(p));
  BOOST_TEST(!s.running());
  BOOST_TEST(s.view(1).seated);
  s.hand_in(1);
  BOOST_TEST(s.entry(1) != nullptr);
  BOOST_TEST(s.started_ids == std::vector<std::uint64_t>{1}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(scores_that_were_told_are_not_told_again) {
  stage s(scheduler_options{});
  s.scored_end = 10;
  held_place p = place_of(1, 10, {}, 2);
  p.wish.score_prompt = true;
  p.scored = 4;
  p.begun = p.started = true;
  come_back(s, 1, std::move(p));
  BOOST_REQUIRE(s.entry(1) != nullptr);
  BOOST_TEST(s.entry(1)->score_from == 4U);
  s.finish_step();
  BOOST_TEST(s.scores[1].size() == 5U);
  s.run_until_end(1);
  BOOST_TEST(s.ended[1].scored_tokens == 9U);
}

BOOST_AUTO_TEST_CASE(suspects_run_alone_until_they_have_drawn_a_token) {
  stage s(scheduler_options{});
  for (std::uint64_t i = 1; i <= 3; ++i) {
    held_place p = place_of(i, 4, {9}, 20);
    p.suspect = i != 2;
    come_back(s, i, std::move(p));
  }
  std::vector<std::vector<std::uint64_t>> steps;
  for (int n = 0; n < 3; ++n) {
    auto& ids = steps.emplace_back();
    for (const auto& e : s.step->entries) ids.push_back(e.id.number);
    s.finish_step();
  }
  BOOST_TEST(steps[0] == std::vector<std::uint64_t>{1}, boost::test_tools::per_element());
  BOOST_TEST(steps[1] == std::vector<std::uint64_t>{3}, boost::test_tools::per_element());
  BOOST_TEST(steps[2] == (std::vector<std::uint64_t>{1, 2, 3}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_choice_of_a_request_that_has_begun_waits_as_long_as_it_takes) {
  scheduler_options o = small();
  o.queue_timeout = seconds(5); // long over for those that came at 90 s
  stage s(o);
  for (std::uint64_t i = 1; i <= 2; ++i) come_back(s, i, place_of(i, 4, {9}, 50)); // hold the seats
  held_place choice = place_of(3, 4);
  choice.group = 8;
  choice.begun = true; // another choice has
  come_back(s, 3, std::move(choice));
  come_back(s, 4, place_of(4, 4));
  s.now = s.alarm;
  s.tell(alarm_rang{});
  BOOST_TEST((s.ended[4].failed->code == errc::queue_timeout));
  BOOST_TEST(!s.ended.contains(3));
}

BOOST_AUTO_TEST_CASE(the_others_of_a_choice_that_comes_back_begun_do_not_time_out) {
  scheduler_options o = small();
  o.max_batch = 1;
  o.queue_timeout = seconds(5);
  stage s(o);
  held_place second = place_of(2, 4), first = place_of(1, 4, {9}, 50);
  first.group = second.group = 8;
  come_back(s, 2, std::move(second));
  come_back(s, 1, std::move(first));
  s.now += seconds(10);
  s.tell(alarm_rang{});
  BOOST_TEST(!s.ended.contains(2));
}

BOOST_AUTO_TEST_CASE(it_comes_back_once_and_while_the_scheduler_drains_too) {
  stage s(scheduler_options{});
  s.tell(drain{});
  BOOST_TEST(s.drains == 1);
  come_back(s, 1, place_of(1, 4, {9}, 3));
  come_back(s, 1, place_of(1, 4, {9}, 3));
  BOOST_TEST(s.core.requests().size() == 1U);
  s.run_until_end(1);
  BOOST_TEST(s.ends == 1);
  BOOST_TEST(s.tokens[1].size() == 2U);
}

BOOST_AUTO_TEST_CASE(a_cancel_of_one_that_came_back_frees_all) {
  stage s(scheduler_options{});
  come_back(s, 1, place_of(1, 4, {9}, 30));
  s.finish_step();
  s.tell(cancel{rid(1), error{errc::cancelled, "", {}, 0}});
  s.finish_step();
  BOOST_TEST((s.ended[1].reason == finish_reason::cancelled));
  BOOST_TEST(s.cache.pool().available() == 64U);
  BOOST_TEST(s.core.idle());
}

BOOST_AUTO_TEST_SUITE_END()
