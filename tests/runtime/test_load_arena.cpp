// SPDX-License-Identifier: Apache-2.0
#include "runtime/load_arena.hpp"

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <stdexcept>
#include <vector>

using namespace troupe::runtime;

BOOST_AUTO_TEST_SUITE(loading)

BOOST_AUTO_TEST_CASE(every_index_is_done_once_and_progress_only_grows) {
  load_arena arena(2);
  BOOST_TEST(arena.threads() <= 2U);
  BOOST_TEST(arena.threads() >= 1U);
  std::vector<std::atomic<int>> hits(1003);
  std::vector<std::size_t> reports;
  const bool all = arena.for_each(
      hits.size(), 10,
      [&](std::size_t begin, std::size_t end) {
        if (end - begin > 10) hits[begin] += 100;
        for (auto i = begin; i < end; ++i) ++hits[i];
      },
      [&](std::size_t done, std::size_t) { reports.push_back(done); });
  BOOST_TEST(all);
  for (const auto& h : hits) BOOST_TEST_REQUIRE(h == 1);
  BOOST_TEST(std::is_sorted(reports.begin(), reports.end()));
  BOOST_TEST(reports.back() == hits.size());
}

BOOST_AUTO_TEST_CASE(a_stop_request_ends_the_loop_early_and_says_so) {
  load_arena arena(2);
  std::stop_source source;
  std::atomic<std::size_t> done{0};
  const bool all = arena.for_each(
      100'000, 1,
      [&](std::size_t, std::size_t) {
        if (++done == 10) source.request_stop();
      },
      {}, source.get_token());
  BOOST_TEST(!all);
  BOOST_TEST(done < 100'000U);
}

BOOST_AUTO_TEST_CASE(an_exception_reaches_the_caller) {
  load_arena arena(2);
  BOOST_CHECK_THROW(
      arena.for_each(
          1000, 1,
          [](std::size_t begin, std::size_t) {
            if (begin == 500) throw std::runtime_error("bad tensor");
          }),
      std::runtime_error);
  BOOST_TEST(arena.for_each(0, 1, [](std::size_t, std::size_t) {}));
}

BOOST_AUTO_TEST_SUITE_END()
