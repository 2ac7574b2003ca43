// SPDX-License-Identifier: Apache-2.0
// The policy changed while requests run and wait.
#include "stage.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::test;

namespace {

void change(stage& s, const scheduler_options& to) {
  s.tell(retune{std::make_shared<const scheduler_options>(to)});
}

} // namespace

BOOST_AUTO_TEST_SUITE(scheduler_policy)

BOOST_AUTO_TEST_CASE(a_smaller_batch_seats_nobody_until_enough_have_left) {
  stage s(with(4, 8));
  for (std::uint64_t n = 1; n <= 4; ++n) s.submit(n, 4, n == 1 ? 40 : 4);
  s.submit(5, 4, 4);
  s.tell(limit_batch{2});
  BOOST_TEST(s.core.active_seats() == 4U); // those seated stay
  s.run_until_end(2);
  s.run_until_end(3);
  s.run_until_end(4);
  BOOST_TEST(s.view(5).seated);
  BOOST_TEST(s.core.active_seats() == 2U);
  s.submit(6, 4, 4);
  BOOST_TEST(!s.view(6).seated);
  s.tell(limit_batch{3});
  BOOST_TEST(s.view(6).seated);
  BOOST_TEST(s.core.most_seats() == 3U);
  s.tell(limit_batch{100});
  BOOST_TEST(s.core.most_seats() == 4U);
  s.tell(limit_batch{0});
  BOOST_TEST(s.core.most_seats() == 1U); // never nobody
  for (const std::uint64_t n : {1U, 5U, 6U}) s.run_until_end(n);
  BOOST_TEST(s.ends == 6);
}

BOOST_AUTO_TEST_CASE(a_batch_that_stays_too_large_gives_the_seats_of_the_worst_ranks_up) {
  stage s(with(4, 8), 128);
  s.submit(1, 4, 60);
  s.submit(2, 4, 60, 9);
  s.submit(3, 4, 60);
  s.submit(4, 4, 60, 9);
  s.finish_step();
  s.tell(limit_batch{2});
  s.now += s.options().batch_patience - milliseconds(1);
  s.finish_step();
  BOOST_TEST(s.core.active_seats() == 4U); // not yet
  s.now += milliseconds(1);
  BOOST_TEST(s.core.active_seats() == 4U); // not in a running step
  s.finish_step();
  BOOST_TEST(s.view(1).seated);
  BOOST_TEST(s.view(3).seated);
  for (const std::uint64_t n : {2U, 4U}) {
    BOOST_TEST(!s.view(n).seated);
    BOOST_TEST(s.held(n) == 0U);
    BOOST_TEST(s.view(n).seats_lost == 0U); // nobody took it
  }
  BOOST_TEST(s.core.stats().seats_yielded == 2U);
  s.tell(limit_batch{no_limit});
  BOOST_TEST(s.view(2).seated);
  for (std::uint64_t n = 1; n <= 4; ++n) s.run_until_end(n);
  for (const auto& [n, end] : s.ended) BOOST_TEST(end.completion_tokens == 60U, "request " << n);
  BOOST_TEST(s.ends == 4);
}

BOOST_AUTO_TEST_CASE(a_batch_that_shrinks_in_time_takes_nothing) {
  stage s(with(2, 8));
  s.submit(1, 4, 4);
  s.submit(2, 4, 40);
  s.tell(limit_batch{1});
  s.run_until_end(1);
  s.now += 2 * s.options().batch_patience;
  s.finish_step();
  BOOST_TEST(s.view(2).seated);
  BOOST_TEST(s.core.stats().seats_yielded == 0U);
}

BOOST_AUTO_TEST_CASE(a_smaller_queue_turns_only_those_away_that_come_later) {
  stage s(with(1, 8));
  for (std::uint64_t n = 1; n <= 5; ++n) s.submit(n, 4, 4);
  auto to = s.options();
  to.max_queue = 2;
  change(s, to);
  BOOST_TEST(s.refusals.empty());
  BOOST_TEST(!s.knock(6));
  BOOST_TEST((s.refusals.at(6).code == errc::queue_full));
  for (std::uint64_t n = 1; n <= 5; ++n) s.run_until_end(n);
  BOOST_TEST(s.ends == 5);
  for (const auto& [n, end] : s.ended) BOOST_TEST(!end.failed, "request " << n);
}

BOOST_AUTO_TEST_CASE(a_shorter_timeout_counts_from_when_each_one_came) {
  stage s(with(1, 8));
  s.submit(1, 4, 40);
  s.submit(2, 4, 4);
  s.now += seconds(10);
  s.submit(3, 4, 4);
  auto to = s.options();
  to.queue_timeout = seconds(8);
  change(s, to);
  BOOST_REQUIRE(s.ended.contains(2));
  BOOST_TEST((s.ended.at(2).failed->code == errc::queue_timeout));
  BOOST_TEST(!s.ended.contains(3));
  BOOST_TEST((s.alarm == s.now + seconds(8)));
}

BOOST_AUTO_TEST_CASE(watermarks_move_with_their_hysteresis) {
  stage s(with(8, 8), 20, 4, 80);
  s.submit(1, 40, 4); // 11 of 20 blocks
  BOOST_TEST(s.knock(2, 9, 4, 4));
  auto to = s.options();
  to.kv_high_watermark = 0.6;
  to.kv_low_watermark = 0.5;
  change(s, to);
  BOOST_TEST(!s.knock(3, 5, 4, 4));
  BOOST_TEST((s.refusals.at(3).code == errc::kv_cache_full));
  to.kv_high_watermark = 0.95;
  to.kv_low_watermark = 0.9;
  change(s, to);
  BOOST_TEST(s.knock(4, 5, 4, 4));
}

BOOST_AUTO_TEST_CASE(tenants_get_other_limits_at_once_and_keep_their_debts) {
  auto o = with(8, 8);
  stage s(o);
  BOOST_TEST(s.knock(1));
  BOOST_TEST(s.knock(2));
  o.tenants.max_live = 2;
  change(s, o);
  BOOST_TEST(!s.knock(3));
  BOOST_TEST((s.refusals.at(3).code == errc::tenant_busy));
  o.tenants.max_live = 0;
  o.tenants.requests_per_second = 1;
  o.tenants.request_burst = 1;
  change(s, o);
  BOOST_TEST(s.knock(4)); // it begins full
  BOOST_TEST(!s.knock(5));
  o.tenants.requests_per_second = 10;
  change(s, o);
  BOOST_TEST(!s.knock(6)); // and owes what it took
  s.now += milliseconds(100);
  BOOST_TEST(s.knock(7));
}

BOOST_AUTO_TEST_CASE(tokens_do_not_change_with_the_policy) {
  stage plain(with(4, 8)), changed(with(4, 8));
  for (std::uint64_t n = 1; n <= 4; ++n) {
    plain.submit(n, 8, 12);
    changed.submit(n, 8, 12);
  }
  auto to = changed.options();
  to.ttft_goal = milliseconds(1);
  to.tpot_goals.fill(milliseconds(1));
  to.kv_high_watermark = 0.3;
  to.kv_low_watermark = 0.2;
  change(changed, to);
  changed.tell(limit_batch{1});
  for (std::uint64_t n = 1; n <= 4; ++n) {
    plain.run_until_end(n);
    changed.run_until_end(n);
    BOOST_TEST(plain.tokens[n].size() == 12U);
    BOOST_TEST(changed.tokens[n].size() == 12U);
  }
}

BOOST_AUTO_TEST_SUITE_END()
