// SPDX-License-Identifier: Apache-2.0
#include "stage.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::test;
using std::chrono::microseconds;

namespace {

constexpr park_room roomy{64, 64, {microseconds(1), microseconds(1), microseconds(20), microseconds(20)}};

scheduler_options always_parking(scheduler_options o = {}) {
  o.kv_high_watermark = 100; // admission is not what these cases are about
  o.kv_low_watermark = 100;
  o.park = park_choice::always;
  return o;
}

/// With the test in the parker's place.
struct car_park : stage {
  explicit car_park(
      std::uint32_t blocks, std::uint32_t block_tokens = 1, const scheduler_options& o = always_parking(),
      std::uint32_t border = 0, const park_room& room = roomy) :
      stage(o, blocks, block_tokens, 64, border, room) {}
  void parked(bool kept = true) {
    const request_id id = parks.back().id;
    tell(sequence_parked{id, kept, roomy});
  }
  void restored(bool good = true) {
    const request_id id = restores.back().id;
    tell(sequence_restored{id, good, roomy});
  }
  /// Steps until somebody is parked.
  void run_short() {
    while (running() && parks.empty()) finish_step();
    BOOST_REQUIRE(!parks.empty());
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(scheduler_park)

BOOST_AUTO_TEST_CASE(blocks_stay_leased_until_they_are_copied_and_no_second_victim_is_taken_meanwhile) {
  car_park s(14);
  for (std::uint64_t n = 1; n <= 3; ++n) s.submit(n, 3, 40);
  s.run_short();
  BOOST_TEST(s.parks[0].id.number == 3U);
  BOOST_TEST(s.parks[0].blocks.size() == s.held(3));
  BOOST_TEST(s.held(3) > 0U);
  for (int i = 0; i < 3 && s.running(); ++i) s.finish_step();
  BOOST_TEST(s.core.stats().preemptions == 1U);
  s.parked();
  BOOST_TEST(s.held(3) == 0U);
  BOOST_REQUIRE(s.running());
  BOOST_TEST(s.entry(1) != nullptr);
}

BOOST_AUTO_TEST_CASE(
    a_parked_sequence_gets_new_blocks_and_goes_on_where_it_was_without_a_row_computed_twice) {
  car_park s(12);
  s.submit(1, 3, 8, 0);
  s.submit(2, 3, 8, 5);
  s.run_short();
  BOOST_TEST(s.parks[0].id.number == 2U);
  const auto computed = s.parks[0].blocks.size();
  s.parked();
  s.run_until_end(1);
  BOOST_REQUIRE(s.restores.size() == 1U);
  BOOST_TEST(s.restores[0].first + s.restores[0].blocks.size() == computed);
  BOOST_TEST(s.entry(2) == nullptr);
  BOOST_TEST(!s.running()); // its blocks are written by another
  s.restored();
  BOOST_REQUIRE(s.entry(2) != nullptr);
  BOOST_TEST(s.entry(2)->first == computed);
  BOOST_TEST(s.entry(2)->count == 1U);
  BOOST_TEST(s.entry(2)->new_blocks.size() == s.held(2));
  BOOST_TEST(s.entry(2)->open.has_value());
  s.run_until_end(2);
  BOOST_TEST(s.tokens[2].size() == 8U);
  BOOST_TEST(s.core.stats().recomputed_tokens == 0U);
  BOOST_TEST(s.core.stats().resumes == 1U);
  BOOST_TEST(s.core.stats().parked == 0U);
}

BOOST_AUTO_TEST_CASE(what_was_not_kept_or_not_brought_back_is_computed_again) {
  for (const bool on_the_way_back : {false, true}) {
    car_park s(12);
    s.submit(1, 3, 8, 0);
    s.submit(2, 3, 8, 5);
    s.run_short();
    s.parked(on_the_way_back);
    s.run_until_end(1);
    BOOST_TEST(s.restores.size() == (on_the_way_back ? 1U : 0U));
    if (on_the_way_back) s.restored(false);
    BOOST_REQUIRE(s.entry(2) != nullptr);
    s.run_until_end(2);
    BOOST_TEST(s.tokens[2].size() == 8U);
    BOOST_TEST(s.core.stats().parks_failed + s.core.stats().resumes_failed == 1U);
    BOOST_TEST(s.core.stats().parked == 0U);
  }
}

BOOST_AUTO_TEST_CASE(one_that_ends_while_it_is_copied_gives_its_blocks_back_after_the_copy) {
  car_park s(12);
  s.submit(1, 3, 8, 0);
  s.submit(2, 3, 8, 5);
  s.run_short();
  s.tell(cancel{rid(2), {errc::cancelled, "left", {}, 0}});
  BOOST_TEST(s.dropped_ids == std::vector<std::uint64_t>{2}, boost::test_tools::per_element());
  BOOST_TEST(s.held(2) > 0U);
  BOOST_TEST(!s.ended.contains(2));
  s.parked(false);
  BOOST_TEST(s.held(2) == 0U);
  BOOST_TEST(s.ended.contains(2));
  BOOST_TEST(s.core.stats().parks_dropped == 1U);
  s.run_until_end(1);
  BOOST_TEST(s.cache.level().leased == 0U);
}

BOOST_AUTO_TEST_CASE(one_that_ends_while_parked_is_dropped_at_once_and_while_it_comes_back_after_the_copy) {
  for (const bool on_the_way_back : {false, true}) {
    car_park s(12);
    s.submit(1, 3, 8, 0);
    s.submit(2, 3, 8, 5);
    s.run_short();
    s.parked();
    if (on_the_way_back) s.run_until_end(1);
    s.tell(cancel{rid(2), {errc::cancelled, "left", {}, 0}});
    BOOST_TEST(s.dropped_ids == std::vector<std::uint64_t>{2}, boost::test_tools::per_element());
    BOOST_TEST(s.ended.contains(2) == !on_the_way_back);
    if (on_the_way_back) {
      BOOST_TEST(s.held(2) > 0U);
      s.restored(false);
    }
    BOOST_TEST(s.held(2) == 0U);
    BOOST_TEST(s.ended.contains(2));
    BOOST_TEST(s.core.stats().parks_dropped == 1U);
    BOOST_TEST(s.core.stats().parked == 0U);
  }
}

BOOST_AUTO_TEST_CASE(only_what_nobody_shares_is_parked) {
  scheduler_options o = always_parking();
  o.preempt_every = 3;
  car_park s(64, 4, o);
  const auto alike = std::make_shared<const std::vector<std::int32_t>>(17, 5);
  for (std::uint64_t n = 1; n <= 2; ++n) {
    s.knock(n, 5, 17, 20);
    enqueue m;
    m.id = rid(n);
    m.prompt = alike;
    m.max_tokens = 20;
    s.tell(std::move(m));
  }
  while (s.running() && s.parks.empty()) s.finish_step();
  BOOST_REQUIRE(!s.parks.empty());
  BOOST_TEST(s.parks[0].blocks.size() == s.held(s.parks[0].id.number) - 4);
}

BOOST_AUTO_TEST_CASE(a_sequence_whose_blocks_are_all_found_again_needs_no_copy) {
  scheduler_options o = always_parking();
  o.preempt_every = 5;
  car_park s(64, 1, o); // every block is full
  s.submit(1, 8, 20);
  while (s.running() && s.parks.empty()) s.finish_step();
  BOOST_REQUIRE(!s.parks.empty());
  s.parked();
  BOOST_TEST(s.restores.empty());
  BOOST_TEST(s.dropped_ids == std::vector<std::uint64_t>{1}, boost::test_tools::per_element());
  BOOST_REQUIRE(s.running());
  BOOST_TEST(s.entry(1)->count == 1U);
  BOOST_TEST(s.core.stats().resumes == 1U);
}

BOOST_AUTO_TEST_CASE(the_cheaper_of_computing_and_copying_is_chosen) {
  for (const bool slow_copies : {false, true}) {
    scheduler_options o = always_parking();
    o.park = park_choice::by_cost;
    o.preempt_every = 25; // after the time of steps is known
    o.prefix_cache = false;
    const duration each = slow_copies ? duration(seconds(1)) : duration(microseconds(1));
    car_park s(64, 1, o, 0, {64, 64, {each, each, each, each}});
    s.submit(1, 20, 40);
    // Rows cost something only when steps of different width were seen.
    for (int i = 0; i < 25 && s.running(); ++i) s.finish_step_after(milliseconds(s.rows()));
    BOOST_TEST(s.core.stats().preemptions == 1U);
    BOOST_TEST(s.parks.size() == (slow_copies ? 0U : 1U));
  }
}

BOOST_AUTO_TEST_CASE(before_anything_is_known_of_steps_all_is_computed_again) {
  scheduler_options o = always_parking();
  o.park = park_choice::by_cost;
  car_park s(12, 1, o);
  s.submit(1, 3, 8, 0);
  s.submit(2, 3, 8, 5);
  while (s.running() && s.closed_ids.empty()) s.finish_step();
  BOOST_TEST(s.parks.empty());
  BOOST_TEST(s.core.stats().preemptions == 1U);
}

BOOST_AUTO_TEST_CASE(what_memory_has_no_room_for_is_not_parked_whatever_the_disk_has) {
  for (const park_room& room : {park_room{3, 64, roomy.costs}, park_room{0, 0, {}}}) {
    car_park s(12, 1, always_parking(), 0, room);
    s.submit(1, 3, 8, 0);
    s.submit(2, 3, 8, 5);
    while (s.running() && s.closed_ids.empty()) s.finish_step();
    BOOST_TEST(s.parks.empty());
    s.run_until_end(1);
    s.run_until_end(2);
    BOOST_TEST(s.ends == 2);
  }
}

BOOST_AUTO_TEST_CASE(the_newest_word_of_the_room_counts) {
  car_park s(12, 1, always_parking(), 0, {3, 64, roomy.costs});
  s.tell(park_room{64, 0, roomy.costs, 2});
  s.tell(park_room{0, 0, roomy.costs, 1}); // was overtaken
  s.submit(1, 3, 8, 0);
  s.submit(2, 3, 8, 5);
  s.run_short();
  BOOST_TEST(s.parks.size() == 1U);
}

BOOST_AUTO_TEST_CASE(what_takes_of_the_reserve_pays_for_the_disk_that_others_go_to) {
  for (const std::uint32_t disk : {0U, 64U}) {
    scheduler_options o = always_parking();
    o.park = park_choice::by_cost;
    o.preempt_every = 25; // after the time of steps is known
    o.prefix_cache = false;
    const park_costs costs{microseconds(1), microseconds(1), seconds(1), seconds(1)};
    car_park s(64, 1, o, 0, {64, disk, costs});
    s.tell(park_room{50, disk, costs, 1});
    s.submit(1, 20, 40);
    for (int i = 0; i < 25 && s.running(); ++i) s.finish_step_after(milliseconds(s.rows()));
    BOOST_TEST(s.core.stats().preemptions == 1U);
    BOOST_TEST(s.parks.size() == (disk > 0 ? 0U : 1U));
  }
}

BOOST_AUTO_TEST_CASE(blocks_of_a_failed_step_and_those_that_outgrew_the_border_are_not_parked) {
  car_park failed(64);
  failed.submit(1, 3, 8);
  failed.finish_step();
  failed.fail_step();
  BOOST_TEST(failed.parks.empty());

  scheduler_options o = always_parking();
  o.preempt_every = 1;
  car_park grown(64, 4, o, 5);
  grown.submit(1, 5, 4); // the first token is the sixth position
  grown.finish_step();
  BOOST_TEST(grown.parks.empty());
  BOOST_TEST(grown.core.stats().preemptions == 1U);
}

BOOST_AUTO_TEST_CASE(one_that_gave_its_seat_up_is_parked_too_and_fetched_ahead_when_it_is_the_next) {
  scheduler_options o = always_parking();
  o.max_batch = 2;
  car_park s(64, 4, o);
  s.submit(1, 4, 60, 9);
  s.submit(2, 4, 60, 9);
  for (int i = 0; i < 20; ++i) s.finish_step();
  s.submit(3, 4, 20, 0); // takes the seat of a low one
  s.finish_step();
  BOOST_REQUIRE(s.parks.size() == 1U);
  const auto yielded = s.parks[0].id.number;
  BOOST_TEST(!s.view(yielded).seated);
  s.parked();
  s.finish_step();
  BOOST_TEST(s.prefetched_ids == std::vector<std::uint64_t>{yielded}, boost::test_tools::per_element());
  s.run_until_end(3);
  BOOST_TEST(s.restores.size() == 1U);
}

BOOST_AUTO_TEST_SUITE_END()
