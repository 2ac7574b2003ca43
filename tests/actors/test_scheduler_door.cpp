// SPDX-License-Identifier: Apache-2.0
#include "stage.hpp"
#include "tests/growth.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::test;

BOOST_AUTO_TEST_SUITE(scheduler_door)

BOOST_AUTO_TEST_CASE(refuses_before_the_model_is_ready_and_while_draining) {
  scheduler_core core{scheduler_options{}};
  scheduler_effects out;
  core.on(admission_request{rid(1)}, time_point{}, out);
  BOOST_TEST((std::get<refused>(out.at(0)).why.code == errc::model_loading));
  stage s(with(4, 4));
  s.tell(drain{});
  BOOST_TEST(s.drains == 1);
  BOOST_TEST(!s.knock(1));
  BOOST_TEST((s.refusals[1].code == errc::draining));
}

BOOST_AUTO_TEST_CASE(a_queue_of_zero_admits_what_can_start_now) {
  stage s(with(3, 0));
  for (std::uint64_t i = 1; i <= 3; ++i) BOOST_TEST(s.knock(i));
  BOOST_TEST(!s.knock(4));
  BOOST_TEST((s.refusals[4].code == errc::queue_full));
  BOOST_TEST(s.refusals[4].retry_after_ms >= 100U);
  BOOST_TEST(s.refusals[4].queue_length.value() == 0U);
  s.hand_in(1, 4, 1);
  s.finish_step();
  BOOST_TEST(s.ended.contains(1));
  BOOST_TEST(s.knock(5));
}

BOOST_AUTO_TEST_CASE(a_refusal_tells_how_many_wait_for_a_place) {
  stage s(with(1, 2));
  for (std::uint64_t i = 1; i <= 3; ++i) BOOST_TEST(s.knock(i));
  BOOST_TEST(!s.knock(4));
  BOOST_TEST((s.refusals[4].code == errc::queue_full));
  BOOST_TEST(s.refusals[4].queue_length.value() == 2U);
}

BOOST_AUTO_TEST_CASE(two_hundred_at_once_with_kv_for_twenty_admit_at_least_fifteen) {
  // Each takes 10 + 30 tokens, 10 blocks of 4; the pool has 200.
  for (const std::uint32_t queue : {0U, 40U}) {
    stage s(with(64, queue), 200, 4, 64);
    int admitted_count = 0;
    for (std::uint64_t i = 1; i <= 200; ++i) admitted_count += s.knock(i, 5, 10, 30);
    BOOST_TEST(admitted_count >= 15);
    BOOST_TEST(admitted_count < 200);
    for (const auto& [id, why] : s.refusals) {
      BOOST_TEST((why.code == errc::kv_cache_full || why.code == errc::queue_full));
      BOOST_TEST(why.retry_after_ms > 0U);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_high_watermark_refuses_all_and_reopens_five_points_below) {
  stage s(with(64, 64), 100, 1, 100);
  for (std::uint64_t i = 1; i <= 19; ++i) BOOST_TEST(s.knock(i, 5, 1, 4)); // 5 blocks each: 95 %
  BOOST_TEST(s.core.kv_use() >= 0.95);
  BOOST_TEST(!s.knock(100, 0));
  BOOST_TEST((s.refusals[100].code == errc::kv_cache_full));
  s.tell(cancel{rid(1), {errc::cancelled, "", {}, 0}}); // 90 %: not below
  BOOST_TEST(!s.knock(101, 0));
  s.tell(cancel{rid(2), {errc::cancelled, "", {}, 0}}); // 85 %
  BOOST_TEST(s.knock(102, 0));
}

BOOST_AUTO_TEST_CASE(a_watermark_below_the_hysteresis_still_reopens) {
  scheduler_options o = with(64, 64);
  o.kv_high_watermark = o.kv_low_watermark = 0.04;
  stage s(o, 100, 1, 100);
  BOOST_TEST(s.knock(1, 5, 1, 4)); // alone: 5 %
  BOOST_TEST(!s.knock(2));
  BOOST_TEST((s.refusals[2].code == errc::kv_cache_full));
  BOOST_TEST(s.refusals[2].message.find("falls below 2 %") != std::string::npos);
  s.tell(cancel{rid(1), {errc::cancelled, "", {}, 0}});
  BOOST_TEST(s.knock(3));
}

BOOST_AUTO_TEST_CASE(low_priority_is_shed_above_the_low_watermark_only) {
  stage s(with(64, 64), 100, 1, 100);
  for (std::uint64_t i = 1; i <= 17; ++i) s.knock(i, 5, 1, 4); // 85 %
  BOOST_TEST(s.knock(18, 9, 1, 4));                            // 90 %
  BOOST_TEST(!s.knock(19, 7, 1, 4));
  BOOST_TEST((s.refusals[19].code == errc::shed_low_priority));
  BOOST_TEST(s.knock(20, 6, 1, 1));
}

BOOST_AUTO_TEST_CASE(what_fits_the_pool_only_alone_runs_alone) {
  stage s(with(4, 4), 10, 4, 40);
  BOOST_TEST(s.knock(1, 5, 36, 4));
  s.hand_in(1, 36, 4);
  BOOST_TEST(s.running());
  BOOST_TEST(!s.knock(2));
  s.run_until_end(1);
  BOOST_TEST((s.ended[1].reason == finish_reason::length));
  BOOST_TEST(s.cache.pool().available() == 10U);
}

BOOST_AUTO_TEST_CASE(a_prompt_that_never_fits_is_refused_after_tokenising) {
  struct row {
    std::uint32_t blocks, context, prompt;
    bool fits;
  };
  for (const auto& r :
       {row{64, 32, 31, true}, row{64, 32, 32, false}, row{4, 32, 15, true}, row{4, 32, 16, false}}) {
    stage s(with(4, 4), r.blocks, 4, r.context);
    s.knock(1, 5, 1);
    s.hand_in(1, r.prompt);
    BOOST_TEST(s.refusals.contains(1) == !r.fits);
    if (r.fits) continue;
    BOOST_TEST((s.refusals[1].code == errc::context_length_exceeded));
    BOOST_TEST(s.refusals[1].param == "prompt");
    BOOST_TEST(s.core.idle());
    BOOST_TEST(s.core.active_seats() == 0U);
    BOOST_TEST(s.core.committed_blocks() == 0U);
  }
}

BOOST_AUTO_TEST_CASE(an_empty_prompt_is_a_bad_request) {
  stage s(with(4, 4));
  s.knock(1);
  s.hand_in(1, 0);
  BOOST_TEST((s.refusals[1].code == errc::bad_request));
}

BOOST_AUTO_TEST_CASE(no_tokens_asked_for_ends_at_once) {
  stage s(with(4, 4));
  s.knock(1);
  s.hand_in(1, 4, 0);
  BOOST_TEST((s.ended.at(1).reason == finish_reason::length));
  BOOST_TEST(s.ended.at(1).prompt_tokens == 4U);
  BOOST_TEST(!s.running());
}

BOOST_AUTO_TEST_CASE(a_deadline_that_has_passed_is_refused) {
  stage s(with(4, 4));
  s.tell(admission_request{rid(1), 5, 1, 1, s.now, {}});
  BOOST_TEST((s.refusals[1].code == errc::deadline_exceeded));
}

BOOST_AUTO_TEST_CASE(seats_go_by_priority_then_age) {
  stage s(with(1, 8));
  s.submit(1, 4, 1);
  s.knock(2, 5);
  s.knock(3, 9);
  s.knock(4, 0);
  s.now += milliseconds(1);
  s.knock(5, 0);
  for (const std::uint64_t next : {4U, 5U, 2U, 3U}) {
    if (s.running()) s.finish_step();
    BOOST_TEST(s.view(next).seated);
    s.hand_in(next, 4, 1);
  }
}

BOOST_AUTO_TEST_CASE(ageing_bounds_every_wait) {
  // Priority p is overtaken only by those that come within p quanta after it.
  scheduler_options o = with(1, 100);
  o.ageing_quantum = seconds(5);
  for (std::uint32_t p = 1; p <= 9; ++p) {
    stage s(o);
    s.submit(1, 4, 1);
    s.knock(2, p);
    s.now += seconds(5) * p - milliseconds(1);
    s.knock(3, 0); // just in time
    s.now += milliseconds(2);
    s.knock(4, 0); // too late
    s.finish_step();
    BOOST_TEST(s.view(3).seated);
    s.tell(cancel{rid(3), {errc::cancelled, "", {}, 0}});
    BOOST_TEST(s.view(2).seated);
    BOOST_TEST(!s.view(4).seated);
  }
}

BOOST_AUTO_TEST_CASE(waiting_ends_at_the_queue_timeout) {
  scheduler_options o = with(1, 8);
  o.queue_timeout = seconds(2);
  stage s(o);
  s.submit(1, 4, 50);
  s.knock(2);
  BOOST_TEST((s.alarm == s.now + seconds(2)));
  s.now += seconds(2) - milliseconds(1);
  s.tell(alarm_rang{});
  BOOST_TEST(!s.ended.contains(2));
  s.now += milliseconds(1);
  s.tell(alarm_rang{});
  BOOST_TEST((s.ended.at(2).failed->code == errc::queue_timeout));
  BOOST_TEST(!s.ended.contains(1)); // it runs
  BOOST_TEST((s.alarm == time_point::max()));
}

BOOST_AUTO_TEST_CASE(the_forecast_follows_the_lengths_seen) {
  output_forecast f;
  BOOST_TEST(f.predict(no_limit) == output_forecast::first_guess);
  BOOST_TEST(f.predict(10) == 10U);
  for (int i = 0; i < 20; ++i) f.observe(30);
  BOOST_TEST(f.predict(no_limit) == 32U);
  for (int i = 0; i < 6; ++i) f.observe(1000);
  BOOST_TEST(f.predict(no_limit) == 1024U); // more than a tenth are long now
}

BOOST_AUTO_TEST_CASE(the_rate_is_measured_from_the_first_event_on_and_fades) {
  rate_meter m;
  time_point t{seconds(5)};
  BOOST_TEST(m.per_second(t) == 0.0);
  for (int i = 0; i < 100; ++i) {
    m.add(2, t);
    t += milliseconds(100);
  }
  BOOST_TEST(m.per_second(t) == 20.0, boost::test_tools::tolerance(0.05));
  BOOST_TEST(m.per_second(t + seconds(60)) < 0.1);
}

BOOST_AUTO_TEST_CASE(a_watermark_has_hysteresis) {
  watermark w(0.9, 0.8);
  BOOST_TEST(!w.update(0.89));
  BOOST_TEST(w.update(0.9));
  BOOST_TEST(w.update(0.8));
  BOOST_TEST(!w.update(0.79));
  BOOST_TEST(!w.update(0.89));
}

BOOST_AUTO_TEST_CASE(a_queue_of_ten_thousand_stays_fast) {
  const auto fill_and_empty = [](std::size_t waiting) {
    stage s(with(1, 10'000));
    s.submit(1, 4, 60);
    for (std::uint64_t i = 2; i < waiting + 2; ++i) s.knock(i, i % 10);
    BOOST_TEST(s.core.queued() == waiting);
    for (std::uint64_t i = waiting + 1; i >= 2; --i) s.tell(cancel{rid(i), {errc::cancelled, "", {}, 0}});
    BOOST_TEST(s.core.queued() == 0U);
  };
  BOOST_TEST(troupe::test::growth(9'998, fill_and_empty) < troupe::test::near_linear);
}

BOOST_AUTO_TEST_SUITE_END()
