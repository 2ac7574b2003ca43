// SPDX-License-Identifier: Apache-2.0
#include "actors/blame_core.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe::actors;

namespace {

using in_hand = std::vector<blame_core::request_in_hand>;

/// Request `n` with a prompt of its own.
blame_core::request_in_hand r(std::uint64_t n) {
  return {n, 1000 + n};
}

} // namespace

BOOST_AUTO_TEST_SUITE(blame)

BOOST_AUTO_TEST_CASE(a_message_about_one_request_names_it_alone_and_others_those_of_the_step) {
  const std::uint64_t step[] = {4, 2}, named[] = {2, 7};
  BOOST_TEST(
      in_hand_at_crash(9, step, named) == std::vector<std::uint64_t>{9}, boost::test_tools::per_element());
  BOOST_TEST(
      in_hand_at_crash(0, step, named) == (std::vector<std::uint64_t>{2, 4, 7}),
      boost::test_tools::per_element());
  BOOST_TEST(in_hand_at_crash(0, {}, {}).empty());
}

BOOST_AUTO_TEST_CASE(of_several_in_hand_nobody_is_to_blame_however_often) {
  blame_core core;
  for (int i = 0; i < 5; ++i) BOOST_TEST(!core.crashed(in_hand{r(1), r(2)}));
  BOOST_TEST(core.suspect(1));
  BOOST_TEST(core.suspect(2));
  BOOST_TEST(!core.suspect(3));
  BOOST_TEST(!core.poisoned(1001));
}

BOOST_AUTO_TEST_CASE(a_suspect_that_is_alone_in_hand_at_another_crash_is_poison_and_nobody_else) {
  blame_core core;
  (void)core.crashed(in_hand{r(1), r(2), r(3)});
  BOOST_TEST(core.crashed(in_hand{r(2)}).value() == 2U);
  BOOST_TEST(core.poisoned(1002));
  BOOST_TEST(!core.suspect(2));
  BOOST_TEST(core.suspect(1));
  BOOST_TEST(!core.poisoned(1001));
  BOOST_TEST(!core.crashed({}));
  BOOST_TEST(core.crashed(in_hand{r(3)}).value() == 3U); // still suspect after the other's crash
}

BOOST_AUTO_TEST_CASE(alone_at_two_crashes_is_poison) {
  blame_core core;
  BOOST_TEST(!core.crashed(in_hand{r(1)}));
  BOOST_TEST(core.crashed(in_hand{r(1)}).value() == 1U);
}

BOOST_AUTO_TEST_CASE(who_drew_a_token_since_or_was_answered_is_as_good_as_new) {
  blame_core core;
  for (int i = 0; i < 3; ++i) {
    BOOST_TEST(!core.crashed(in_hand{r(1)}));
    core.drew_token(r(1));
    BOOST_TEST(!core.suspect(1));
    BOOST_TEST(!core.crashed(in_hand{r(1)}));
    core.answered(r(1));
  }
  core.drew_token(r(2)); // unknown
}

BOOST_AUTO_TEST_CASE(a_prompt_that_was_alone_in_hand_in_two_requests_is_poison) {
  blame_core core;
  BOOST_TEST(!core.crashed(in_hand{{1, 77}}));
  core.gone(1);
  BOOST_TEST(!core.poisoned(77));
  BOOST_TEST(core.crashed(in_hand{{2, 77}}).value() == 2U);
  BOOST_TEST(core.poisoned(77));
}

BOOST_AUTO_TEST_CASE(memory_is_bounded) {
  blame_core core;
  for (std::uint64_t n = 1; n <= 3 * blame_core::capacity; ++n) {
    (void)core.crashed(in_hand{r(n)});
    core.gone(n);
  }
  BOOST_TEST(core.suspects() == 0U);
  BOOST_TEST(!core.crashed(in_hand{{1, 1001}})); // long forgotten
  const std::uint64_t last = 3 * blame_core::capacity;
  BOOST_TEST(core.crashed(in_hand{r(last)}).has_value());
}

BOOST_AUTO_TEST_SUITE_END()
