// SPDX-License-Identifier: Apache-2.0
#include "actors/park_core.hpp"
#include "tests/sim/alloc_fault.hpp"

#include <boost/test/unit_test.hpp>

#include <optional>
#include <vector>

using namespace troupe;
using namespace troupe::actors;
using std::chrono::microseconds;
using std::chrono::seconds;

namespace {

constexpr request_id rid(std::uint64_t number) {
  return {1, 1, number};
}

/// A parker with the test in its worker's place.
struct lot {
  explicit lot(std::uint32_t memory, std::uint32_t disk = 0) :
      core({memory, disk, {microseconds(1), microseconds(1), microseconds(20), microseconds(20)}}) {
    out.reserve(16);
  }
  template<class Message>
  void tell(Message m) {
    core.on(std::move(m), now, out);
    for (auto& e : out) {
      if (const auto* j = std::get_if<park_job>(&e)) job = *j;
      if (const auto* p = std::get_if<sequence_parked>(&e)) parked.push_back(*p);
      if (const auto* r = std::get_if<sequence_restored>(&e)) restored.push_back(*r);
      if (const auto* r = std::get_if<park_room>(&e)) rooms.push_back(*r);
    }
    out.clear();
    BOOST_TEST(core.audit(now));
  }
  void park(std::uint64_t number, std::uint32_t blocks, block_id from = 0) {
    park_blocks m{rid(number), {}};
    for (std::uint32_t i = 0; i < blocks; ++i) m.blocks.push_back(from + i);
    tell(std::move(m));
  }
  void restore(std::uint64_t number, std::vector<block_id> blocks, std::uint32_t first = 0) {
    tell(restore_blocks{rid(number), first, std::move(blocks)});
  }
  void finish(park_outcome outcome = park_outcome::done, duration took = microseconds(8)) {
    const std::uint64_t number = std::exchange(job, std::nullopt)->number;
    tell(park_job_done{number, outcome, took});
  }
  void finish_all() {
    while (job) finish();
  }
  bool works_at(park_work work) const { return job && job->work == work; }

  park_core core;
  park_effects out;
  time_point now{seconds(100)};
  std::optional<park_job> job;
  std::vector<sequence_parked> parked;
  std::vector<sequence_restored> restored;
  std::vector<park_room> rooms; ///< told without an answer
};

} // namespace

BOOST_AUTO_TEST_SUITE(park_core_cases)

BOOST_AUTO_TEST_CASE(a_sequence_is_saved_in_pieces_and_comes_back_into_other_blocks) {
  lot l(16);
  l.park(1, 10, 40);
  BOOST_REQUIRE(l.job);
  BOOST_TEST((l.job->work == park_work::save));
  BOOST_TEST(l.job->count == park_job::most_moves);
  BOOST_TEST(l.job->moves[0].block == 40U);
  l.finish();
  BOOST_TEST(l.parked.empty());
  BOOST_TEST(l.job->count == 10 - park_job::most_moves);
  l.finish();
  BOOST_REQUIRE(l.parked.size() == 1U);
  BOOST_TEST(l.parked[0].kept);
  BOOST_TEST(l.parked[0].room.memory == 6U);
  BOOST_TEST(!l.job);
  l.restore(1, {7, 8, 9}, 7);
  BOOST_TEST((l.job->work == park_work::load));
  BOOST_TEST(l.job->count == 3U);
  BOOST_TEST(l.job->moves[0].block == 7U);
  l.finish();
  BOOST_REQUIRE(l.restored.size() == 1U);
  BOOST_TEST(l.restored[0].restored);
  BOOST_TEST(l.restored[0].room.memory == 16U);
  BOOST_TEST(l.core.level().sequences == 0U);
}

BOOST_AUTO_TEST_CASE(what_memory_has_no_room_for_is_not_kept) {
  lot l(4);
  l.park(1, 5);
  BOOST_REQUIRE(l.parked.size() == 1U);
  BOOST_TEST(!l.parked[0].kept);
  l.park(2, 3);
  l.finish_all();
  l.park(3, 2);
  BOOST_REQUIRE(l.parked.size() == 3U);
  BOOST_TEST(l.parked[1].kept);
  BOOST_TEST(!l.parked[2].kept);
  BOOST_TEST(!l.job);
  BOOST_TEST(l.core.level().memory == 3U);
}

BOOST_AUTO_TEST_CASE(a_quarter_of_memory_is_kept_free_by_writing_the_eldest_ahead_of_need) {
  lot l(8, 8);
  l.park(1, 4);
  l.finish_all();
  BOOST_TEST(l.core.level().written == 0U);
  l.park(2, 3);
  l.finish();
  BOOST_REQUIRE(l.parked.size() == 2U);
  BOOST_TEST(l.parked[1].kept); // before anything is written
  BOOST_TEST(l.parked[1].room.memory == 1U);
  BOOST_TEST(l.works_at(park_work::write));
  BOOST_TEST(l.rooms.back().disk == 4U);
  l.finish_all();
  BOOST_TEST(l.core.level().disk == 4U);
  BOOST_TEST(l.rooms.back().memory == 5U);
  BOOST_TEST(l.rooms.back().number > l.parked[1].room.number);
  l.restore(1, {30, 31, 32, 33});
  BOOST_TEST(l.works_at(park_work::fetch));
  l.finish();
  BOOST_TEST(l.restored.at(0).restored);
  BOOST_TEST(l.core.level().disk == 0U);
}

BOOST_AUTO_TEST_CASE(who_finds_no_room_is_answered_at_once_and_waits_for_no_disk) {
  lot l(4, 8);
  l.park(1, 4);
  l.finish();
  BOOST_TEST(l.works_at(park_work::write));
  l.park(2, 2);
  BOOST_REQUIRE(l.parked.size() == 2U);
  BOOST_TEST(!l.parked[1].kept);
  BOOST_TEST(l.parked[1].room.memory == 0U);
  l.finish();
  BOOST_TEST(l.rooms.back().memory == 4U);
  l.park(2, 2);
  l.finish();
  BOOST_TEST(l.parked.at(2).kept);
}

BOOST_AUTO_TEST_CASE(saves_and_restores_come_between_two_pieces_of_what_is_written_ahead) {
  lot l(64, 64);
  l.park(1, 40);
  l.finish_all();
  l.park(2, 10);
  l.finish_all();
  BOOST_TEST(l.core.level().disk == 40U);
  l.park(3, 40);
  while (!l.works_at(park_work::write)) l.finish();
  const auto written = [&] { return l.core.level().written; };
  const std::uint64_t before = written();
  l.park(4, 4);
  BOOST_TEST(l.works_at(park_work::write)); // the piece under way
  l.finish();
  BOOST_TEST(written() == before + park_job::most_moves);
  BOOST_TEST(l.works_at(park_work::save));
  l.restore(2, std::vector<block_id>(10, 5)); // the one that is written
  l.finish();
  BOOST_TEST(l.parked.back().kept);
  while (l.restored.empty()) {
    BOOST_TEST(l.works_at(park_work::load));
    l.finish();
  }
  l.finish_all();
  BOOST_TEST(written() == before + park_job::most_moves); // there is room again
}

BOOST_AUTO_TEST_CASE(a_save_comes_between_two_pieces_of_a_restore_from_the_disk) {
  lot l(20, 40);
  l.park(1, 20);
  l.finish_all();
  BOOST_TEST(l.core.level().disk == 20U);
  l.restore(1, std::vector<block_id>(20, 5));
  BOOST_TEST(l.works_at(park_work::fetch));
  l.park(2, 12);
  l.finish();
  while (l.parked.size() < 2U) {
    BOOST_TEST(l.works_at(park_work::save));
    l.finish();
  }
  BOOST_TEST(l.works_at(park_work::fetch));
  l.finish_all();
  BOOST_TEST(l.restored.at(0).restored);
}

BOOST_AUTO_TEST_CASE(what_is_wanted_soon_is_read_ahead_while_there_is_room_and_stays_in_memory) {
  lot l(8, 16);
  l.park(1, 7);
  l.finish_all();
  l.tell(prefetch_parked{rid(9)}); // unknown
  l.park(2, 3);
  l.finish_all();
  BOOST_TEST(l.core.level().disk == 7U);
  l.tell(prefetch_parked{rid(1)}); // too large for what is free
  BOOST_TEST(!l.job);
  l.tell(drop_parked{rid(2)});
  l.tell(prefetch_parked{rid(1)});
  BOOST_TEST(l.works_at(park_work::read));
  l.finish_all();
  BOOST_TEST(l.core.level().disk == 0U);
  l.park(3, 1); // 1 is the eldest
  l.finish_all();
  BOOST_TEST(l.core.level().disk == 1U);
  l.restore(1, std::vector<block_id>(7, 1));
  BOOST_TEST(l.works_at(park_work::load));
}

BOOST_AUTO_TEST_CASE(what_is_wanted_soon_is_written_no_further) {
  lot l(16, 32);
  l.park(1, 14);
  while (!l.works_at(park_work::write)) l.finish();
  l.tell(prefetch_parked{rid(1)});
  l.finish();
  BOOST_TEST(!l.job);
  BOOST_TEST(l.core.level().disk == 0U);
  BOOST_TEST(l.core.level().memory == 14U);
  l.restore(1, std::vector<block_id>(14, 1));
  l.finish_all();
  BOOST_TEST(l.restored.at(0).restored);
}

BOOST_AUTO_TEST_CASE(a_restore_comes_first_and_does_not_wait_for_the_write_or_the_read_of_its_own) {
  lot l(16, 16);
  l.park(1, 16);
  while (!l.works_at(park_work::write)) l.finish();
  const std::vector<block_id> back(16, 5);
  l.restore(1, back);
  l.finish(); // the piece under way
  BOOST_TEST(l.works_at(park_work::load));
  l.finish_all();
  BOOST_TEST(l.restored.at(0).restored);
  l.park(2, 16);
  l.finish_all();
  BOOST_TEST(l.core.level().disk == 16U);
  l.tell(prefetch_parked{rid(2)});
  BOOST_TEST(l.works_at(park_work::read));
  l.restore(2, back);
  l.finish();
  BOOST_TEST(l.works_at(park_work::fetch));
  l.finish_all();
  BOOST_TEST(l.restored.at(1).restored);
  BOOST_TEST(l.core.level().memory + l.core.level().disk == 0U);
}

BOOST_AUTO_TEST_CASE(a_disk_that_refuses_is_left_alone_for_a_while_and_spares_the_copy_in_memory) {
  lot l(8, 8);
  l.park(1, 5);
  l.finish_all();
  l.park(2, 2);
  l.finish();
  BOOST_TEST(l.works_at(park_work::write));
  l.finish(park_outcome::failed);
  BOOST_TEST(l.core.level().write_failures == 1U);
  BOOST_TEST(l.rooms.back().disk == 0U);
  BOOST_TEST(!l.job);
  l.park(3, 2); // memory has no room for it
  BOOST_TEST(!l.parked.back().kept);
  BOOST_TEST(!l.job);
  l.restore(1, std::vector<block_id>(5, 3)); // it was whole in memory all the time
  l.finish_all();
  BOOST_TEST(l.restored.at(0).restored);
  l.park(4, 5);
  l.finish_all();
  BOOST_TEST(l.core.level().disk == 0U);
  l.now += park_core::disk_rest;
  l.tell(drop_parked{rid(9)}); // whatever comes
  BOOST_TEST(l.works_at(park_work::write));
  BOOST_TEST(l.rooms.back().disk == 6U); // the eldest is 2
  l.finish_all();
  BOOST_TEST(l.core.level().disk == 2U);
}

BOOST_AUTO_TEST_CASE(what_the_disk_has_no_room_for_stays_in_memory) {
  lot l(8, 2);
  l.park(1, 3);
  l.finish_all();
  l.park(2, 2);
  l.finish_all();
  l.park(3, 2);
  l.finish();
  BOOST_TEST(l.works_at(park_work::write));
  l.finish_all();
  BOOST_TEST(l.core.level().disk == 2U); // 2, not the eldest
  l.restore(1, {1, 2, 3});
  BOOST_TEST(l.works_at(park_work::load));
}

BOOST_AUTO_TEST_CASE(what_comes_back_from_the_disk_changed_or_not_at_all_is_not_restored) {
  for (const park_outcome outcome : {park_outcome::corrupt, park_outcome::failed}) {
    lot l(2, 8);
    l.park(1, 2);
    l.finish_all();
    l.restore(1, {3, 4});
    BOOST_TEST(l.works_at(park_work::fetch));
    l.finish(outcome);
    BOOST_REQUIRE(l.restored.size() == 1U);
    BOOST_TEST(!l.restored[0].restored);
    const park_level level = l.core.level();
    BOOST_TEST(level.corrupt + level.read_failures == 1U);
    BOOST_TEST(level.memory + level.disk + level.sequences == 0U);
  }
}

BOOST_AUTO_TEST_CASE(what_was_lost_while_it_was_read_ahead_is_told_at_the_restore) {
  lot l(2, 8);
  l.park(1, 2);
  l.finish_all();
  l.tell(prefetch_parked{rid(1)});
  BOOST_TEST(l.works_at(park_work::read));
  l.finish(park_outcome::corrupt);
  BOOST_TEST(l.core.level().sequences == 0U);
  l.restore(1, {3, 4});
  BOOST_TEST(!l.restored.at(0).restored);
}

BOOST_AUTO_TEST_CASE(one_that_is_dropped_frees_everything_and_is_answered_when_nobody_touches_its_blocks) {
  lot l(16, 16);
  l.park(1, 8);
  l.park(2, 8);
  l.tell(drop_parked{rid(2)}); // not begun
  BOOST_REQUIRE(l.parked.size() == 1U);
  BOOST_TEST(l.parked[0].id.number == 2U);
  l.tell(drop_parked{rid(1)}); // in the worker's hands
  BOOST_TEST(l.parked.size() == 1U);
  l.finish();
  BOOST_REQUIRE(l.parked.size() == 2U);
  BOOST_TEST(!l.parked[1].kept);
  l.park(3, 8);
  l.finish_all();
  l.restore(3, std::vector<block_id>(8, 1));
  l.tell(drop_parked{rid(3)});
  BOOST_TEST(l.restored.empty());
  l.finish();
  BOOST_TEST(!l.restored.at(0).restored);
  BOOST_TEST(l.core.level().memory + l.core.level().sequences == 0U);
  l.tell(drop_parked{rid(9)}); // unknown
}

BOOST_AUTO_TEST_CASE(late_and_doubled_answers_of_the_worker_are_no_ops) {
  lot l(16);
  l.park(1, 10);
  const park_job first = *l.job;
  l.finish();
  const park_job second = *l.job;
  l.tell(park_job_done{first.number, park_outcome::failed, {}});
  BOOST_TEST(l.job->number == second.number);
  l.finish();
  l.tell(park_job_done{second.number, park_outcome::done, {}});
  BOOST_TEST(l.parked.size() == 1U);
  BOOST_TEST(l.core.level().saved == 10U);
}

BOOST_AUTO_TEST_CASE(costs_follow_what_is_measured) {
  lot l(8);
  for (int i = 0; i < 40; ++i) {
    l.park(1, 8);
    l.finish(park_outcome::done, 8 * microseconds(100));
    l.tell(drop_parked{rid(1)});
  }
  const auto cost = l.parked.back().room.costs.save;
  BOOST_TEST((cost > microseconds(95) && cost < microseconds(105)));
}

BOOST_AUTO_TEST_CASE(an_allocation_that_fails_costs_the_parking_at_hand) {
  for (std::uint32_t nth = 1; nth <= 3; ++nth) {
    lot l(8, 8);
    park_blocks m{rid(1), {1, 2, 3}};
    bool fired = false;
    {
      const sim::alloc_fault fault(nth);
      l.core.on(std::move(m), l.now, l.out);
      fired = fault.fired();
    }
    BOOST_TEST(fired);
    BOOST_TEST(l.core.audit(l.now));
    BOOST_REQUIRE(l.out.size() == 1U);
    BOOST_TEST(!std::get<sequence_parked>(l.out[0]).kept);
  }
}

BOOST_AUTO_TEST_SUITE_END()
