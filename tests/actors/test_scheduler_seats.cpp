// SPDX-License-Identifier: Apache-2.0
#include "stage.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::test;

namespace {

/// Until `number` has drawn so many tokens.
void run_until_drawn(stage& s, std::uint64_t number, std::size_t tokens) {
  for (int most = 200; s.tokens[number].size() < tokens && s.running() && most > 0; --most) s.finish_step();
}

} // namespace

BOOST_AUTO_TEST_SUITE(scheduler_seats)

BOOST_AUTO_TEST_CASE(small_ones_pass_one_that_waits_for_memory_but_not_for_ever) {
  stage s(with(8, 8), 20, 4, 80);
  s.submit(1, 20, 20);  // 10 of 20 blocks
  s.knock(2, 5, 40, 4); // 11: waits
  BOOST_TEST(!s.view(2).seated);
  s.knock(3, 5, 4, 4); // 2 of the 9 that are left
  BOOST_TEST(s.view(3).seated);
  s.knock(4, 5, 12, 4); // 4: more than a quarter of what the large one wants
  BOOST_TEST(!s.view(4).seated);
  // Once it has waited a quantum longer than its rank says nobody passes it.
  s.now += 6 * s.options().ageing_quantum + milliseconds(1);
  s.knock(5, 0, 4, 4);
  BOOST_TEST(!s.view(5).seated);
  s.tell(cancel{rid(1), {errc::cancelled, "", {}, 0}});
  s.tell(cancel{rid(3), {errc::cancelled, "", {}, 0}});
  BOOST_TEST(s.view(2).seated);
}

BOOST_AUTO_TEST_CASE(a_request_takes_the_seat_of_one_of_low_priority_between_two_steps) {
  stage s(with(2, 8));
  s.submit(1, 4, 60, 9);
  s.submit(2, 4, 60, 9);
  run_until_drawn(s, 2, 20);
  const auto drawn = s.tokens[2].size();
  s.submit(3, 4, 4, 5);
  BOOST_TEST(!s.view(3).seated); // a step runs
  s.finish_step();
  BOOST_TEST(s.view(3).seated);
  BOOST_TEST(s.view(1).seated); // the oldest of its priority
  BOOST_TEST(!s.view(2).seated);
  BOOST_TEST(s.view(2).seats_lost == 1U);
  BOOST_TEST(s.core.stats().seats_yielded == 1U);
  s.run_until_end(3);
  s.run_until_end(2);
  BOOST_TEST(s.tokens[2].size() == 60U);
  BOOST_TEST(s.tokens[2][drawn].position == 4 + drawn); // it goes on where it was
}

BOOST_AUTO_TEST_CASE(of_those_above_low_priority_a_seat_is_taken_only_when_the_goal_would_be_missed) {
  auto o = with(2, 8);
  o.ttft_goal = seconds(2);
  stage s(o);
  s.submit(1, 4, 60, 6);
  s.submit(2, 4, 60, 6);
  run_until_drawn(s, 2, 20);
  s.submit(3, 4, 4, 1);
  s.finish_step();
  BOOST_TEST(!s.view(3).seated);
  s.now += seconds(2);
  s.finish_step();
  BOOST_TEST(s.view(3).seated);
  BOOST_TEST(!s.view(2).seated);
}

BOOST_AUTO_TEST_CASE(equals_and_betters_keep_their_seats) {
  for (const std::uint32_t priority : {5U, 6U, 9U}) {
    stage s(with(2, 8));
    s.submit(1, 4, 60, 5);
    s.submit(2, 4, 60, 5);
    run_until_drawn(s, 2, 20);
    s.submit(3, 4, 4, priority);
    s.now += seconds(20);
    s.finish_step();
    BOOST_TEST(!s.view(3).seated);
    BOOST_TEST(s.core.stats().seats_yielded == 0U);
  }
}

BOOST_AUTO_TEST_CASE(one_that_drew_little_keeps_its_seat_for_now) {
  stage s(with(2, 8));
  s.submit(1, 4, 60, 9);
  s.submit(2, 4, 60, 9);
  run_until_drawn(s, 2, 3);
  s.submit(3, 4, 4, 0);
  s.finish_step();
  BOOST_TEST(!s.view(3).seated);
  run_until_drawn(s, 2, 16);
  BOOST_TEST(s.view(3).seated);
}

BOOST_AUTO_TEST_CASE(a_seat_is_taken_from_the_same_one_three_times_at_most) {
  stage s(with(2, 8), 256, 4, 256);
  s.submit(1, 4, 200, 9);
  s.submit(2, 4, 200, 9);
  std::uint64_t next = 3;
  for (int n = 0; n < 5; ++n) {
    run_until_drawn(s, 2, s.tokens[2].size() + 20);
    s.submit(next, 4, 2, 0);
    s.finish_step();
    if (s.view(next).seated) s.run_until_end(next);
    s.tell(cancel{rid(next), {errc::cancelled, "", {}, 0}});
    ++next;
  }
  BOOST_TEST(s.view(2).seats_lost == 3U);
}

BOOST_AUTO_TEST_CASE(one_that_waited_long_for_its_seat_is_no_longer_of_low_class) {
  auto o = with(2, 8);
  o.ageing_quantum = seconds(1);
  o.queue_timeout = seconds(100);
  stage s(o);
  s.submit(1, 4, 60, 9);
  s.submit(2, 4, 8, 9);
  s.submit(4, 4, 60, 9); // waits nine quanta
  s.now += seconds(10);
  s.run_until_end(2);
  BOOST_TEST(s.view(4).seated);
  run_until_drawn(s, 4, 20);
  s.submit(5, 4, 4, 0);
  s.finish_step();
  BOOST_TEST(!s.view(5).seated);
}

BOOST_AUTO_TEST_CASE(who_loses_a_seat_is_first_of_its_class) {
  stage s(with(2, 8));
  s.submit(1, 4, 60, 9);
  s.submit(2, 4, 60, 9);
  run_until_drawn(s, 2, 20);
  s.submit(3, 4, 4, 9); // waits
  s.submit(4, 4, 4, 0);
  s.finish_step();
  BOOST_TEST(s.view(4).seated);
  BOOST_TEST(!s.view(2).seated);
  s.run_until_end(4);
  BOOST_TEST(s.view(2).seated);
  BOOST_TEST(!s.view(3).seated);
}

BOOST_AUTO_TEST_CASE(memory_is_taken_from_low_priority_too) {
  stage s(with(8, 8), 20, 4, 80);
  s.submit(1, 4, 20, 9); // 6 blocks
  s.submit(2, 4, 20, 9); // 6
  run_until_drawn(s, 2, 17);
  s.submit(3, 28, 4, 5); // 8 of the 7 that are left to the watermark
  s.finish_step();
  BOOST_TEST(s.view(3).seated);
  BOOST_TEST(!s.view(2).seated);
}

BOOST_AUTO_TEST_CASE(in_a_full_queue_low_priority_makes_room) {
  stage s(with(1, 2));
  s.submit(1, 4, 60, 5);
  s.submit(2, 4, 4, 8);
  s.submit(3, 4, 4, 9);
  BOOST_TEST(!s.knock(4, 9));
  BOOST_TEST((s.refusals.at(4).code == errc::queue_full));
  BOOST_TEST(s.knock(5, 5));
  BOOST_TEST((s.ended.at(3).failed.value().code == errc::shed_low_priority));
  BOOST_TEST(s.ended.at(3).failed->retry_after_ms > 0U);
  BOOST_TEST(s.knock(6, 5));
  BOOST_TEST((s.ended.at(2).failed.value().code == errc::shed_low_priority));
  BOOST_TEST(!s.knock(7, 5)); // nobody of low priority is left
  BOOST_TEST((s.refusals.at(7).code == errc::queue_full));
  BOOST_TEST(s.core.stats().displaced == 2U);
}

BOOST_AUTO_TEST_CASE(the_queue_is_bounded_in_bytes) {
  auto o = with(1, 100);
  o.max_queue_bytes = 100;
  stage s(o);
  s.submit(1, 4, 60);
  BOOST_TEST(s.knock(2, 5, 20)); // 80 bytes of ids
  BOOST_TEST(!s.knock(3, 5, 20));
  BOOST_TEST((s.refusals.at(3).code == errc::queue_full));
  BOOST_TEST(s.core.queued_bytes() == 80U);
  s.tell(cancel{rid(2), {errc::cancelled, "", {}, 0}});
  BOOST_TEST(s.core.queued_bytes() == 0U);
  BOOST_TEST(s.knock(4, 5, 20));
}

BOOST_AUTO_TEST_CASE(a_long_request_takes_the_places_of_as_many_low_ones_as_its_bytes_need_or_of_none) {
  auto o = with(1, 100);
  o.max_queue_bytes = 100;
  stage s(o);
  s.submit(1, 4, 60);
  for (std::uint64_t n = 2; n <= 4; ++n) BOOST_TEST(s.knock(n, 9, 8)); // 32 bytes of ids each
  BOOST_TEST(!s.knock(5, 5, 26));
  BOOST_TEST((s.refusals.at(5).code == errc::queue_full)); // 104 fit in no queue
  BOOST_TEST(s.core.stats().displaced == 0U);
  BOOST_TEST(s.knock(6, 5, 16)); // 64: two of them
  BOOST_TEST(s.core.stats().displaced == 2U);
  BOOST_TEST(s.core.queued_bytes() == 96U);
  for (const std::uint64_t n : {3U, 4U})
    BOOST_TEST((s.ended.at(n).failed.value().code == errc::shed_low_priority));
}

BOOST_AUTO_TEST_CASE(a_tenant_beyond_its_limits_is_refused_and_others_are_not) {
  auto o = with(8, 8);
  o.tenants.max_live = 1;
  stage s(o);
  const auto knock = [&](std::uint64_t number, const char* tenant) {
    const auto before = s.admitted_ids.size();
    s.tell(admission_request{rid(number), 5, 4, 4, time_point::max(), tenant, 0});
    return s.admitted_ids.size() > before;
  };
  BOOST_TEST(knock(1, "a"));
  BOOST_TEST(!knock(2, "a"));
  BOOST_TEST((s.refusals.at(2).code == errc::tenant_busy));
  BOOST_TEST(s.refusals.at(2).retry_after_ms > 0U);
  BOOST_TEST(knock(3, "b"));
  BOOST_TEST(s.core.stats().tenants == 2U);
  s.tell(cancel{rid(1), {errc::cancelled, "", {}, 0}});
  BOOST_TEST(knock(4, "a"));
}

BOOST_AUTO_TEST_CASE(a_refused_request_costs_its_tenant_nothing) {
  auto o = with(1, 0);
  o.tenants.requests_per_second = 0.001;
  o.tenants.request_burst = 2;
  stage s(o);
  s.submit(1, 4, 4);
  for (std::uint64_t i = 2; i < 20; ++i) {
    s.knock(i);
    BOOST_TEST((s.refusals.at(i).code == errc::queue_full));
  }
  s.run_until_end(1);
  BOOST_TEST(s.knock(30));
  s.tell(cancel{rid(30), {errc::cancelled, "", {}, 0}});
  BOOST_TEST(!s.knock(31)); // the third within the second
  BOOST_TEST((s.refusals.at(31).code == errc::rate_limited));
}

BOOST_AUTO_TEST_CASE(tenants_that_wait_take_turns) {
  stage s(with(1, 50));
  const auto submit = [&](std::uint64_t number, const char* tenant) {
    s.tell(admission_request{rid(number), 5, 4, 40, time_point::max(), tenant, 0});
    s.hand_in(number, 4, 40);
  };
  for (std::uint64_t i = 1; i <= 20; ++i) submit(i, "flood");
  submit(21, "other");
  submit(22, "other");
  s.run_until_end(22, 1000);
  BOOST_TEST(s.ended.contains(21));
  BOOST_TEST(s.ended.contains(22));
  BOOST_TEST(!s.ended.contains(8));
}

BOOST_AUTO_TEST_CASE(a_goal_bounds_how_many_run_at_once_and_sheds_low_priority) {
  auto o = with(64, 64);
  o.tpot_goals.fill(milliseconds(12));
  stage s(o, 512, 4, 64);
  // 4 ms and one for each row: eight rows meet the goal.
  const auto finish = [&] { s.finish_step_after(milliseconds(4 + s.rows())); };
  for (std::uint64_t i = 1; i <= 4; ++i) s.submit(i, 4, 60);
  for (int i = 0; i < 30; ++i) finish();
  for (std::uint64_t i = 5; i <= 12; ++i) s.submit(i, 4, 60);
  for (int i = 0; i < 4; ++i) finish();
  std::uint32_t seated = 0;
  for (const auto& v : s.core.requests()) seated += v.seated;
  BOOST_TEST(seated == 8U);
  BOOST_TEST(s.core.compute_use() > 1.3);
  BOOST_TEST(!s.knock(20, 9));
  BOOST_TEST((s.refusals.at(20).code == errc::shed_low_priority));
  BOOST_TEST(s.knock(21, 5));
}

BOOST_AUTO_TEST_CASE(a_prompt_shared_with_one_that_runs_is_not_counted_twice) {
  stage s(with(8, 8), 20, 4, 80);
  enqueue first;
  first.id = rid(1);
  first.prompt = prompt_of(41, 1);
  first.max_tokens = 8;
  s.knock(1, 5, 41, 8); // 13 of 20 blocks
  s.tell(std::move(first));
  s.finish_step();
  s.knock(2, 5, 41, 8);
  BOOST_TEST(!s.view(2).seated); // the door does not know
  enqueue second;
  second.id = rid(2);
  second.prompt = prompt_of(41, 1);
  second.max_tokens = 8;
  s.tell(std::move(second));
  BOOST_TEST(s.view(2).seated); // it needs 3 of its own
  s.run_until_end(1);
  s.run_until_end(2);
  BOOST_TEST(s.tokens[2].size() == 8U);
}

BOOST_AUTO_TEST_SUITE_END()
