// SPDX-License-Identifier: Apache-2.0
#include "actors/waiting_line.hpp"
#include "runtime/rng.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::actors;
using std::chrono::seconds;

namespace {

const time_point start{seconds(1000)};
constexpr duration quantum = seconds(5);

/// A line whose requests have costs.
struct queue {
  tenant_book book{tenant_limits{}};
  waiting_line line{quantum};
  std::map<std::uint64_t, std::int64_t> costs;
  std::map<std::uint64_t, tenant_account*> owners;
  std::uint64_t last = 0;

  std::uint64_t
  join(const std::string& tenant, std::int64_t cost, std::uint32_t priority = 5, time_point at = start) {
    auto& account = book.open(tenant);
    const std::uint64_t number = ++last;
    costs[number] = cost;
    owners[number] = &account;
    line.join(account, {(at.time_since_epoch() + quantum * priority).count(), {1, 1, number}, priority});
    return number;
  }
  std::uint64_t seat() {
    const auto chosen = line.next([&](request_id id) { return costs.at(id.number); });
    line.take(chosen, costs.at(chosen.key.id.number));
    return chosen.key.id.number;
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(waiting)

BOOST_AUTO_TEST_CASE(one_tenant_is_served_by_rank) {
  queue q;
  const auto late = q.join("a", 10, 5, start + seconds(1)), low = q.join("a", 1, 9),
             first = q.join("a", 5000, 5), high = q.join("a", 10, 0, start + seconds(2));
  for (const auto expected : {high, first, late, low}) BOOST_TEST(q.seat() == expected);
  BOOST_TEST(q.line.empty());
}

BOOST_AUTO_TEST_CASE(tenants_of_one_class_take_turns_by_tokens) {
  queue q;
  for (int i = 0; i < 40; ++i) q.join("flood", 100);
  for (int i = 0; i < 4; ++i) q.join("small", 100);
  std::map<std::string, int> served;
  for (int i = 0; i < 8; ++i) ++served[q.owners.at(q.seat())->name];
  BOOST_TEST(served["small"] == 4);
}

BOOST_AUTO_TEST_CASE(long_requests_count_for_what_they_are) {
  queue q;
  for (int i = 0; i < 200; ++i) {
    q.join("long", 1000);
    q.join("short", 50);
  }
  std::map<std::string, std::int64_t> tokens;
  for (int i = 0; i < 200; ++i) {
    const auto number = q.seat();
    tokens[q.owners.at(number)->name] += q.costs.at(number);
    BOOST_REQUIRE(std::abs(tokens["long"] - tokens["short"]) <= 1000 + waiting_line::tokens_per_turn);
  }
}

BOOST_AUTO_TEST_CASE(whatever_the_costs_no_two_waiting_tenants_are_far_apart) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    runtime::random_stream r(seed, 1);
    queue q;
    const auto tenants = static_cast<std::size_t>(r.between(2, 6));
    std::vector<std::int64_t> served(tenants), most(tenants);
    const auto join = [&](std::size_t tenant) {
      const auto cost = r.between(1, r.chance(0.2) ? 4000 : 300);
      most[tenant] = std::max(most[tenant], cost);
      q.join(std::to_string(tenant), cost);
    };
    for (std::size_t tenant = 0; tenant < tenants; ++tenant)
      for (int i = 0; i < 5; ++i) join(tenant); // none ever runs dry
    for (int i = 0; i < 500; ++i) {
      const auto number = q.seat();
      const auto tenant = static_cast<std::size_t>(std::stoul(q.owners.at(number)->name));
      served[tenant] += q.costs.at(number);
      join(tenant);
      for (std::size_t a = 0; a < tenants; ++a)
        for (std::size_t b = 0; b < tenants; ++b)
          BOOST_REQUIRE_LE(served[a] - served[b], most[a] + most[b] + 2 * waiting_line::tokens_per_turn);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_better_class_goes_first_whoever_it_belongs_to) {
  queue q;
  q.join("a", 1, 5);
  const auto high = q.join("b", 4000, 2);
  BOOST_TEST(q.seat() == high);
}

BOOST_AUTO_TEST_CASE(age_does_not_decide_between_tenants_of_one_priority) {
  queue q;
  for (int i = 0; i < 40; ++i) q.join("flood", 100);
  for (int i = 0; i < 4; ++i) q.join("small", 100, 5, start + 20 * quantum);
  std::map<std::string, int> served;
  for (int i = 0; i < 8; ++i) ++served[q.owners.at(q.seat())->name];
  BOOST_TEST(served["small"] == 4);
}

BOOST_AUTO_TEST_CASE(age_decides_between_priorities) {
  queue q;
  const auto old = q.join("a", 5000, 5), younger = q.join("b", 1, 5, start + seconds(1)),
             high = q.join("c", 1, 4, start + quantum + seconds(2));
  BOOST_TEST(q.seat() == younger); // their turn comes first, at the priority of the oldest
  BOOST_TEST(q.seat() == old);
  BOOST_TEST(q.seat() == high);
}

BOOST_AUTO_TEST_CASE(whose_turn_has_come_is_the_next_to_be_seated) {
  queue q;
  for (const char* tenant : {"a", "b", "c"}) q.join(tenant, tenant[0] == 'b' ? 100 : 700);
  const auto first = q.line.next([&](request_id id) { return q.costs.at(id.number); });
  q.line.turn_to(first);
  const auto again = q.line.next([&](request_id id) { return q.costs.at(id.number); });
  BOOST_TEST((again.key == first.key));
  BOOST_TEST(again.visits == 0);
}

/// What a request waits for: those of better rank, and for each of their tokens and of its own no more of
/// every other tenant's, but for a request and a turn of each.
BOOST_AUTO_TEST_CASE(no_wait_is_longer_than_by_rank_times_the_tenants) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    runtime::random_stream r(seed, 2);
    queue q;
    const auto tenants = r.between(2, 6);
    struct waiting_one {
      queue_key key;
      std::int64_t passed = 0, before = 0; ///< tokens of worse rank and of better that were seated meanwhile
    };
    std::map<std::uint64_t, waiting_one> all;
    std::int64_t largest = 0;
    time_point now = start;
    const auto join = [&] {
      const auto tenant = r.chance(0.5) ? 0 : r.between(0, tenants - 1); // one sends as much as all others
      const auto cost = r.between(1, r.chance(0.2) ? 2000 : 200);
      const auto priority = static_cast<std::uint32_t>(r.between(3, 6));
      largest = std::max(largest, cost);
      const auto number = q.join(std::to_string(tenant), cost, priority, now);
      all[number].key = {(now.time_since_epoch() + quantum * priority).count(), {1, 1, number}, priority};
    };
    for (int i = 0; i < 60; ++i) join();
    for (int i = 0; i < 400; ++i) {
      now += std::chrono::milliseconds(r.between(0, 600));
      join();
      const auto number = q.seat();
      const waiting_one seated = all.at(number);
      all.erase(number);
      const std::int64_t cost = q.costs.at(number);
      const std::int64_t each = seated.before + cost + 2 * largest + 2 * waiting_line::tokens_per_turn;
      BOOST_REQUIRE_LE(seated.passed, (tenants - 1) * each);
      for (auto& [other, w] : all) (seated.key < w.key ? w.before : w.passed) += cost;
    }
  }
}

BOOST_AUTO_TEST_CASE(whoever_waits_for_nothing_saves_nothing_up) {
  queue q;
  q.join("a", 10);
  q.seat();
  auto& a = q.book.open("a");
  q.line.give_back(a, 5000);
  BOOST_TEST(a.deficit <= 0);
}

BOOST_AUTO_TEST_CASE(leaving_keeps_the_others_turns) {
  queue q;
  const auto a = q.join("a", 300), b = q.join("b", 300), c = q.join("c", 300);
  q.line.leave(*q.owners.at(b), {(start.time_since_epoch() + 5 * quantum).count(), {1, 1, b}});
  q.line.leave(
      *q.owners.at(b), {(start.time_since_epoch() + 5 * quantum).count(), {1, 1, b}}); // again: nothing
  BOOST_TEST(q.line.size() == 2U);
  const auto first = q.seat(), second = q.seat();
  BOOST_TEST((std::set{first, second} == std::set{a, c}));
  BOOST_TEST(q.line.empty());
}

BOOST_AUTO_TEST_SUITE_END()
