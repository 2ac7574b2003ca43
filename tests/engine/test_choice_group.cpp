// SPDX-License-Identifier: Apache-2.0
#include "engine/choice_group.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <set>

using namespace troupe;
using namespace troupe::detail;

namespace {

/// Feeds a group and keeps what the client would see.
struct joined {
  explicit joined(const choice_group::shape& shape) : group(shape) {}

  void known(std::uint32_t member, std::vector<std::int32_t> ids = {1, 2}) {
    choice_group::output out;
    group.prompt_known(member, ids, out);
    keep(std::move(out));
  }
  void take(std::uint32_t member, stream_event event) {
    choice_group::output out;
    group.take(member, std::move(event), out);
    keep(std::move(out));
  }
  void token(std::uint32_t member, std::int32_t id, float logprob = -1) {
    token_event e;
    e.seq = 77;
    e.text = std::string(1, static_cast<char>('a' + id));
    e.token_ids = {id};
    e.logprobs = {{id, logprob, e.text}};
    take(member, e);
  }
  void done(std::uint32_t member, finish_reason reason = finish_reason::stop, std::uint32_t tokens = 1) {
    take(member, done_event{5, reason, {2, tokens, 0}, "m", "fp"});
  }
  void accept_all() {
    for (std::uint32_t m = 0; m < group.members(); ++m) known(m);
    take(0, accepted_event{{1, 2}, "m"});
  }
  template<class T>
  std::vector<T> of() const {
    std::vector<T> some;
    for (const stream_event& e : events)
      if (const auto* one = std::get_if<T>(&e)) some.push_back(*one);
    return some;
  }

  choice_group group;
  std::vector<stream_event> events;
  int kept = 0, cancels = 0;

 private:
  void keep(choice_group::output out) {
    std::move(out.events.begin(), out.events.end(), std::back_inserter(events));
    kept += out.kept ? 1 : 0;
    cancels += out.cancel_members ? 1 : 0;
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(choices_of_a_request)

BOOST_AUTO_TEST_CASE(it_is_accepted_when_one_runs_and_all_prompts_are_known) {
  joined j({2, 2, 2, false});
  j.known(0, {1});
  j.known(1, {1});
  j.take(1, accepted_event{{1}, "m"});
  j.token(1, 3);
  j.known(2, {4, 5});
  BOOST_TEST(j.events.empty());
  j.known(3, {4, 5});
  BOOST_REQUIRE_EQUAL(j.events.size(), 2U);
  const auto& accepted = std::get<accepted_event>(j.events[0]);
  BOOST_TEST(accepted.prompt_token_ids.size() == 1U);
  BOOST_REQUIRE_EQUAL(accepted.further_prompts.size(), 1U);
  BOOST_TEST(accepted.further_prompts[0].size() == 2U);
  BOOST_TEST(std::get<token_event>(j.events[1]).index == 1U);
  j.take(0, accepted_event{{1}, "m"});
  BOOST_TEST(j.of<accepted_event>().size() == 1U);
}

BOOST_AUTO_TEST_CASE(events_carry_their_index_and_one_sequence_and_end_once) {
  joined j({2, 2, 2, false});
  j.accept_all();
  for (const std::uint32_t m : {3U, 0U, 1U, 2U, 3U}) j.token(m, static_cast<std::int32_t>(m));
  j.done(2, finish_reason::length, 3);
  j.done(0, finish_reason::stop, 1);
  j.done(0, finish_reason::length, 9); // late ones do nothing
  j.done(3, finish_reason::stop, 2);
  BOOST_TEST(j.of<done_event>().empty());
  j.done(1, finish_reason::length, 1);
  const auto tokens = j.of<token_event>();
  BOOST_REQUIRE_EQUAL(tokens.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    BOOST_TEST(tokens[i].seq == i);
    BOOST_TEST(tokens[i].index == static_cast<std::uint32_t>(tokens[i].token_ids[0]));
  }
  const auto ends = j.of<done_event>();
  BOOST_REQUIRE_EQUAL(ends.size(), 1U);
  BOOST_TEST(ends[0].seq == 5U);
  BOOST_TEST(ends[0].usage.prompt_tokens == 4U); // two prompts of two, each once
  BOOST_TEST(ends[0].usage.completion_tokens == 7U);
  BOOST_TEST(
      (ends[0].reasons ==
       std::vector<finish_reason>{
           finish_reason::stop, finish_reason::length, finish_reason::length, finish_reason::stop}));
  BOOST_TEST(j.group.over());
  j.token(0, 1);
  BOOST_TEST(j.events.size() == 7U);
}

BOOST_AUTO_TEST_CASE(one_failure_ends_all) {
  joined j({1, 3, 3, false});
  j.accept_all();
  j.token(0, 1);
  j.done(1);
  j.take(2, failed_event{{errc::not_finite, "NaN", {}, 0}});
  j.token(0, 2);
  j.done(0);
  j.take(0, failed_event{{errc::cancelled, "x", {}, 0}});
  BOOST_TEST(j.cancels == 1);
  const auto failures = j.of<failed_event>();
  BOOST_REQUIRE_EQUAL(failures.size(), 1U);
  BOOST_TEST((failures[0].why.code == errc::not_finite));
  BOOST_TEST(j.of<token_event>().size() == 1U);
  BOOST_TEST(j.of<done_event>().empty());
}

BOOST_AUTO_TEST_CASE(a_cancel_ends_as_done_once_accepted_and_as_a_failure_before) {
  joined j({1, 2, 2, false});
  j.accept_all();
  j.done(0, finish_reason::stop);
  j.done(1, finish_reason::cancelled);
  BOOST_REQUIRE_EQUAL(j.of<done_event>().size(), 1U);
  BOOST_TEST((j.of<done_event>()[0].reasons[1] == finish_reason::cancelled));

  joined early({1, 2, 2, false});
  early.take(0, accepted_event{{1}, "m"});
  early.done(0, finish_reason::cancelled);
  early.take(1, failed_event{{errc::cancelled, "before", {}, 0}});
  BOOST_REQUIRE_EQUAL(early.events.size(), 1U);
  BOOST_TEST((early.of<failed_event>()[0].why.code == errc::cancelled));
}

BOOST_AUTO_TEST_CASE(the_best_by_mean_log_probability_are_given_best_first_and_whole) {
  for (const bool logprobs : {false, true}) {
    joined j({1, 2, 4, logprobs});
    j.accept_all();
    j.token(0, 1, -2.0F); // mean -2
    j.token(1, 2, -0.5F); // mean -1, though its sum is the lowest
    for (int i = 0; i < 3; ++i) j.token(1, 3, -7.0F / 6);
    j.token(2, 4, -1.0F); // mean -1 too, and later
    j.token(3, 5, -3.0F);
    BOOST_TEST(j.kept == 7);
    for (const std::uint32_t m : {3U, 2U, 1U}) j.done(m, finish_reason::stop, m == 1 ? 4 : 1);
    BOOST_TEST(j.of<token_event>().empty());
    j.done(0);
    const auto tokens = j.of<token_event>();
    BOOST_REQUIRE_EQUAL(tokens.size(), 2U);
    BOOST_TEST(tokens[0].text == "cddd");
    BOOST_TEST(tokens[0].index == 0U);
    BOOST_TEST(tokens[0].token_ids.size() == 4U);
    BOOST_TEST(tokens[0].logprobs.size() == (logprobs ? 4U : 0U));
    BOOST_TEST(tokens[1].text == "e");
    BOOST_TEST(tokens[1].index == 1U);
    const auto ends = j.of<done_event>();
    BOOST_REQUIRE_EQUAL(ends.size(), 1U);
    BOOST_TEST(ends[0].usage.completion_tokens == 7U);
    BOOST_TEST(ends[0].usage.prompt_tokens == 2U);
    BOOST_TEST(ends[0].reasons.size() == 2U);
  }
}

BOOST_AUTO_TEST_CASE(the_best_keep_their_echo_and_a_cancel_leaves_none) {
  joined j({1, 1, 2, false});
  j.accept_all();
  token_event echo;
  echo.echo = true;
  echo.text = "prompt ";
  for (const std::uint32_t m : {0U, 1U}) j.take(m, echo);
  j.token(0, 1, -2);
  j.token(1, 2, -1);
  j.done(0);
  j.done(1);
  const auto tokens = j.of<token_event>();
  BOOST_REQUIRE_EQUAL(tokens.size(), 2U);
  BOOST_TEST(tokens[0].echo);
  BOOST_TEST(tokens[1].text == "c");
  BOOST_TEST(j.of<done_event>()[0].reasons.empty()); // one choice

  joined cancelled({1, 1, 2, false});
  cancelled.accept_all();
  cancelled.token(0, 1);
  cancelled.done(0);
  cancelled.done(1, finish_reason::cancelled);
  BOOST_TEST(cancelled.of<token_event>().empty());
  BOOST_TEST((cancelled.of<done_event>().at(0).reason == finish_reason::cancelled));
}

BOOST_AUTO_TEST_CASE(seeds_of_choices_are_reproducible_and_differ) {
  BOOST_TEST(choice_seed(42, 0) == 42U);
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 100; ++seed)
    for (std::uint32_t c = 0; c < 16; ++c) seen.insert(choice_seed(seed, c));
  BOOST_TEST(seen.size() == 1600U);
}

BOOST_AUTO_TEST_SUITE_END()
