// SPDX-License-Identifier: Apache-2.0
// A request over a crash of the scheduler, in each of its states.
#include "actors/request_core.hpp"

#include <boost/test/unit_test.hpp>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

using namespace troupe;
using namespace troupe::actors;
using std::chrono::milliseconds;

namespace {

const request_id old_id{1, 1, 42}, new_id{1, 2, 42};

/// Each token one letter; token 25 stops.
class letters final : public token_text {
 public:
  piece push(std::int32_t token, bool) override {
    if (token == 25) return {"", true};
    return {std::string(1, static_cast<char>('a' + token)), false};
  }
  piece flush() override { return {}; }
  token_name name_of(std::int32_t) const override { return {"x"}; }
  std::string echo(std::span<const std::int32_t> prompt) override { return std::string(prompt.size(), '#'); }
  std::string echo_next(std::int32_t, bool) override { return "#"; }
  token_name echo_name_of(std::int32_t) const override { return {"#"}; }
};

request_options with_id(request_options o) {
  o.id = old_id;
  o.prompt_tokens = 7;
  return o;
}

struct client {
  explicit client(request_options o = {}) : core(with_id(std::move(o)), std::make_unique<letters>()) {
    core.begin(now, effects);
  }
  template<class Message>
  void tell(Message m) {
    now += milliseconds(1);
    core.on(std::move(m), now, effects);
  }
  void prompt() {
    tell(prompt_ready{
        old_id, std::make_shared<const std::vector<std::int32_t>>(std::vector<std::int32_t>{1, 2, 3})});
  }
  void run() {
    tell(admitted{old_id});
    prompt();
    tell(started{old_id});
  }
  void token(std::int32_t t, request_id of = old_id) { tell(token_ready{of, t}); }
  void renew(bool begun = false, bool suspect = false) {
    effects.clear();
    tell(scheduler_renewed{new_id, begun, suspect});
  }

  template<class T>
  const T* last() const {
    const T* found = nullptr;
    for (const auto& e : effects)
      if (const auto* x = std::get_if<T>(&e)) found = x;
    return found;
  }
  template<class T>
  std::vector<T> events() const {
    std::vector<T> all;
    for (const auto& e : effects)
      if (const auto* x = std::get_if<emit_event>(&e))
        if (const auto* of = std::get_if<T>(&x->event)) all.push_back(*of);
    return all;
  }

  time_point now{std::chrono::seconds(1)};
  request_core core;
  request_effects effects;
};

} // namespace

BOOST_AUTO_TEST_SUITE(request_return)

BOOST_AUTO_TEST_CASE(one_without_an_answer_of_the_door_knocks_again) {
  client c;
  c.renew();
  BOOST_REQUIRE(c.last<admission_request>() != nullptr);
  BOOST_TEST((c.last<admission_request>()->id == new_id));
  BOOST_TEST(c.last<readmission>() == nullptr);
  c.tell(admitted{old_id}); // of the scheduler that is gone
  BOOST_TEST(c.last<tokenize_prompt>() == nullptr);
  c.tell(admitted{new_id});
  BOOST_TEST(c.last<tokenize_prompt>() != nullptr);
}

BOOST_AUTO_TEST_CASE(one_that_was_to_end_before_the_door_answered_ends_so) {
  client c;
  c.tell(client_cancel{old_id, error{errc::cancelled, "left", {}, 0}});
  c.renew();
  BOOST_TEST(c.last<admission_request>() == nullptr);
  BOOST_REQUIRE(c.events<failed_event>().size() == 1U);
  BOOST_TEST((c.events<failed_event>()[0].why.code == errc::cancelled));
  BOOST_TEST(c.core.over());
}

BOOST_AUTO_TEST_CASE(one_that_is_being_tokenised_takes_its_place_and_hands_its_prompt_in_once) {
  client c;
  c.tell(admitted{old_id});
  c.renew(false, true);
  BOOST_REQUIRE(c.last<readmission>() != nullptr);
  const held_place& p = *c.last<readmission>()->place;
  BOOST_TEST(!p.wish.prompt);
  BOOST_TEST(p.prompt_tokens == 7U);
  BOOST_TEST((p.arrival == time_point(std::chrono::seconds(1))));
  BOOST_TEST(p.suspect);
  BOOST_TEST(!p.begun);
  BOOST_TEST(c.last<tokenize_prompt>() == nullptr); // that is under way
  c.prompt();
  BOOST_REQUIRE(c.last<enqueue>() != nullptr);
  BOOST_TEST((c.last<enqueue>()->id == new_id));
}

BOOST_AUTO_TEST_CASE(a_prompt_that_came_in_between_is_handed_in_with_the_place) {
  client c;
  c.tell(admitted{old_id});
  c.prompt();
  c.renew();
  BOOST_REQUIRE(c.last<readmission>() != nullptr);
  BOOST_TEST(c.last<readmission>()->place->wish.prompt->size() == 3U);
  BOOST_TEST(c.last<readmission>()->place->prompt_tokens == 3U);
  BOOST_TEST(c.last<enqueue>() == nullptr);
}

BOOST_AUTO_TEST_CASE(a_stream_goes_on_without_a_gap_or_a_token_twice) {
  request_options o;
  o.max_tokens = 5;
  o.min_tokens = 2;
  o.sampling.seed = 11;
  o.stop_ids = {24};
  o.banned = {3};
  o.tenant = "t";
  o.group = 6;
  client c(o);
  c.run();
  c.token(4);
  c.token(5);
  c.renew();
  BOOST_REQUIRE(c.last<readmission>() != nullptr);
  BOOST_TEST((c.last<readmission>()->id == new_id));
  const held_place& p = *c.last<readmission>()->place;
  BOOST_TEST(p.drawn == (std::vector<std::int32_t>{4, 5}), boost::test_tools::per_element());
  BOOST_TEST((p.begun && p.started));
  BOOST_TEST((p.last_token == time_point(std::chrono::seconds(1)) + milliseconds(5)));
  BOOST_TEST(p.wish.max_tokens == 5U);
  BOOST_TEST(p.wish.min_tokens == 2U);
  BOOST_TEST(p.wish.sampling.seed == 11U);
  BOOST_TEST(p.wish.stop_ids == std::vector<std::int32_t>{24}, boost::test_tools::per_element());
  BOOST_TEST(p.wish.banned == std::vector<std::int32_t>{3}, boost::test_tools::per_element());
  BOOST_TEST(p.tenant == "t");
  BOOST_TEST(p.group == 6U);
  c.token(6, old_id); // was under way, and is drawn again
  BOOST_TEST(c.events<token_event>().empty());
  c.token(6, new_id);
  c.token(7, new_id);
  c.tell(sequence_finished{old_id, finish_reason::stop, std::nullopt, 3, 4});
  BOOST_TEST(!c.core.over());
  c.tell(sequence_finished{new_id, finish_reason::length, std::nullopt, 3, 5});
  BOOST_TEST(!c.core.over()); // one token is still on its way
  c.token(8, new_id);
  const auto tokens = c.events<token_event>();
  BOOST_REQUIRE(tokens.size() == 3U);
  for (std::uint64_t i = 0; i < 3; ++i) BOOST_TEST(tokens[i].seq == 2 + i);
  BOOST_REQUIRE(c.events<done_event>().size() == 1U);
  BOOST_TEST(c.events<done_event>()[0].usage.completion_tokens == 5U);
  BOOST_TEST(c.events<accepted_event>().empty());
}

BOOST_AUTO_TEST_CASE(an_end_that_waited_for_tokens_of_before_is_told_again) {
  client c;
  c.run();
  c.token(4);
  c.tell(sequence_finished{old_id, finish_reason::length, std::nullopt, 3, 2});
  BOOST_TEST(!c.core.over());
  c.renew();
  BOOST_REQUIRE(c.last<readmission>() != nullptr);
  c.token(5, old_id);
  BOOST_TEST(!c.core.over());
  c.token(5, new_id);
  BOOST_TEST(!c.core.over());
  c.tell(sequence_finished{new_id, finish_reason::length, std::nullopt, 3, 2});
  BOOST_TEST(c.events<done_event>().size() == 1U);
}

BOOST_AUTO_TEST_CASE(one_that_had_asked_for_its_end_has_it) {
  const auto end_of = [](auto&& ask) {
    client c;
    c.run();
    c.token(4);
    ask(c);
    c.renew();
    BOOST_TEST(c.core.over());
    BOOST_TEST(c.last<readmission>() == nullptr);
    BOOST_TEST(c.last<retire>() != nullptr);
    BOOST_TEST(c.events<done_event>().size() + c.events<failed_event>().size() == 1U);
    return c;
  };
  auto cancelled = end_of([](client& c) {
    c.tell(client_cancel{old_id, error{errc::cancelled, "left", {}, 0}});
  });
  BOOST_TEST((cancelled.events<done_event>().at(0).reason == finish_reason::cancelled));
  auto late = end_of([](client& c) {
    c.tell(client_cancel{old_id, error{errc::deadline_exceeded, "late", {}, 0}});
  });
  BOOST_TEST((late.events<failed_event>().at(0).why.code == errc::deadline_exceeded));
  auto stopped = end_of([](client& c) { c.token(25); });
  BOOST_TEST((stopped.events<done_event>().at(0).reason == finish_reason::stop));
  BOOST_TEST(stopped.events<done_event>().at(0).usage.completion_tokens == 2U);
}

BOOST_AUTO_TEST_CASE(a_pause_for_a_slow_reader_comes_along) {
  request_options o;
  o.credit = 2;
  client c(o);
  c.run();
  c.token(4);
  c.token(5);
  BOOST_TEST(c.core.paused());
  c.renew();
  BOOST_TEST(c.last<readmission>()->place->paused);
  c.tell(events_read{old_id, 2});
  BOOST_REQUIRE(c.last<stream_resumed>() != nullptr);
  BOOST_TEST((c.last<stream_resumed>()->id == new_id));
}

BOOST_AUTO_TEST_CASE(scores_go_on_where_they_were) {
  request_options o;
  o.echo = o.logprobs = o.score_prompt = true;
  client c(o);
  c.run();
  c.tell(prompt_scored{old_id, 1, {{-1.0F, {}}}});
  c.renew();
  BOOST_TEST(c.last<readmission>()->place->scored == 1U);
  c.tell(prompt_scored{old_id, 2, {{-9.0F, {}}}});
  BOOST_TEST(c.events<token_event>().empty());
  c.tell(prompt_scored{new_id, 2, {{-2.0F, {}}}});
  const auto events = c.events<token_event>();
  BOOST_REQUIRE(events.size() == 1U);
  BOOST_TEST(events[0].token_ids == std::vector<std::int32_t>{3}, boost::test_tools::per_element());
  BOOST_TEST(events[0].logprobs.at(0).logprob == -2.0F);
}

BOOST_AUTO_TEST_CASE(its_deadline_is_the_old_one_and_a_choice_knows_that_another_has_begun) {
  request_options o;
  o.deadline = milliseconds(100);
  client c(o);
  c.tell(admitted{old_id});
  c.renew(true);
  BOOST_TEST(c.last<readmission>()->place->begun);
  BOOST_TEST(!c.last<readmission>()->place->started);
  BOOST_TEST(c.last<set_alarm>() == nullptr);
  c.now = time_point(std::chrono::seconds(1)) + milliseconds(100);
  c.tell(alarm_rang{});
  BOOST_REQUIRE(c.last<cancel>() != nullptr);
  BOOST_TEST((c.last<cancel>()->id == new_id));
}

BOOST_AUTO_TEST_CASE(a_second_crash_before_it_is_back_begins_again) {
  client c;
  c.run();
  c.token(4);
  c.renew();
  c.effects.clear();
  c.tell(scheduler_renewed{new_id}); // the same call again says nothing new
  BOOST_TEST(c.effects.empty());
  const request_id third{1, 3, 42};
  c.tell(scheduler_renewed{third});
  BOOST_REQUIRE(c.last<readmission>() != nullptr);
  BOOST_TEST((c.last<readmission>()->id == third));
  BOOST_TEST(
      c.last<readmission>()->place->drawn == std::vector<std::int32_t>{4}, boost::test_tools::per_element());
  c.token(5, new_id);
  BOOST_TEST(c.events<token_event>().empty());
}

BOOST_AUTO_TEST_SUITE_END()
