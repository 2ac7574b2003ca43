// SPDX-License-Identifier: Apache-2.0
#include "actors/request_core.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>
#include <limits>

using namespace troupe;
using namespace troupe::actors;
using std::chrono::milliseconds;

namespace {

const request_id id{1, 1, 42};

/// Token t is the letter of number t, a capital in the prompt; "z" is held back by one token, as half a
/// character would be, and stops where none follows it and `z_stops`; token 99 stops.
class letters final : public token_text {
 public:
  piece push(std::int32_t token, bool may_stop) override {
    pushed_ = true;
    if (token == 99 && may_stop) return {"", true};
    std::string out = std::exchange(held_, {});
    const char c = static_cast<char>('a' + token);
    if (c == 'z')
      held_ = std::string(1, 'z');
    else
      out += c;
    return {out, false};
  }
  piece flush() override {
    if (!held_.empty() && z_stops) return {"", true};
    return {std::exchange(held_, {}), false};
  }
  token_name name_of(std::int32_t) const override { return {pushed_ ? "*" : "first", true}; }
  std::string echo(std::span<const std::int32_t> prompt) override { return std::string(prompt.size(), '#'); }
  std::string echo_next(std::int32_t token, bool last) override {
    echoed_ = true;
    return static_cast<char>('A' + token) + std::string(last ? "|" : "");
  }
  token_name echo_name_of(std::int32_t) const override { return {echoed_ ? "+" : "+first", echoed_}; }

  bool z_stops = false;

 private:
  std::string held_;
  bool pushed_ = false, echoed_ = false;
};

struct client {
  explicit client(request_options o = {}, bool z_stops = false) :
      core(with_id(std::move(o)), make_letters(z_stops)) {
    begin();
  }
  static std::unique_ptr<letters> make_letters(bool z_stops) {
    auto text = std::make_unique<letters>();
    text->z_stops = z_stops;
    return text;
  }
  static request_options with_id(request_options o) {
    o.id = id;
    o.model = std::string("m");
    return o;
  }
  template<class Message>
  void tell(Message m) {
    if constexpr (std::is_same_v<Message, alarm_rang>) alarm = time_point::max();
    request_effects out;
    core.on(std::move(m), now, out);
    take(out);
  }
  void admit() {
    tell(admitted{id});
    tell(prompt_ready{
        id, std::make_shared<const std::vector<std::int32_t>>(std::vector<std::int32_t>{1, 2, 3})});
    tell(started{id});
  }
  void token(std::int32_t t, bool ends = false) {
    token_ready m;
    m.id = id;
    m.token = t;
    m.ends = ends;
    m.top = {{7, -1.0F}};
    tell(std::move(m));
  }
  void finished(finish_reason r, std::uint32_t tokens) {
    tell(sequence_finished{id, r, std::nullopt, 3, tokens});
  }
  void broke(errc code) { tell(sequence_finished{id, {}, error{code, "why", {}, 0}, 3, 0}); }

  template<class T>
  std::size_t count() const {
    std::size_t n = 0;
    for (const auto& e : effects) n += std::holds_alternative<T>(e);
    return n;
  }
  std::vector<stream_event> events() const {
    std::vector<stream_event> all;
    for (const auto& e : effects)
      if (const auto* x = std::get_if<emit_event>(&e)) all.push_back(x->event);
    return all;
  }
  std::string text() const {
    std::string all;
    for (const auto& e : events())
      if (const auto* t = std::get_if<token_event>(&e)) all += t->text;
    return all;
  }
  const done_event* done() const { return over() ? std::get_if<done_event>(&last) : nullptr; }
  errc failure() const { return std::get<failed_event>(last).why.code; }
  bool over() const { return core.over(); }

  time_point now{std::chrono::seconds(1)};
  request_core core;
  request_effects effects;
  stream_event last;
  time_point alarm = time_point::max();

 private:
  void begin() {
    request_effects out;
    core.begin(now, out);
    take(out);
  }
  void take(request_effects& out) {
    for (auto& e : out) {
      if (const auto* x = std::get_if<emit_event>(&e)) last = x->event;
      if (const auto* a = std::get_if<set_alarm>(&e)) alarm = a->at;
      effects.push_back(std::move(e));
    }
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(request_actor_core)

BOOST_AUTO_TEST_CASE(a_request_is_accepted_then_streams_then_is_done_once) {
  client c;
  BOOST_TEST(c.count<admission_request>() == 1U);
  c.admit();
  c.token(0);
  c.token(1);
  c.finished(finish_reason::length, 2);
  c.finished(finish_reason::length, 2);
  const auto events = c.events();
  BOOST_REQUIRE(events.size() == 4U);
  BOOST_TEST(std::get<accepted_event>(events[0]).prompt_token_ids.size() == 3U);
  BOOST_TEST(std::get<token_event>(events[1]).seq == 0U);
  BOOST_TEST(std::get<token_event>(events[2]).seq == 1U);
  BOOST_TEST(std::get<done_event>(events[3]).seq == 2U);
  BOOST_TEST(c.done()->usage.prompt_tokens == 3U);
  BOOST_TEST(c.done()->usage.completion_tokens == 2U);
  BOOST_TEST(c.text() == "ab");
  BOOST_TEST(c.count<retire>() == 1U);
}

BOOST_AUTO_TEST_CASE(a_refusal_is_the_only_event) {
  client c;
  c.tell(refused{id, {errc::kv_cache_full, "full", {}, 500}});
  BOOST_TEST(c.events().size() == 1U);
  BOOST_TEST((c.failure() == errc::kv_cache_full));
  c.tell(admitted{id}); // late
  BOOST_TEST(c.count<tokenize_prompt>() == 0U);
}

BOOST_AUTO_TEST_CASE(a_refusal_after_tokenising_comes_before_acceptance) {
  client c;
  c.tell(admitted{id});
  c.tell(prompt_ready{id, std::make_shared<const std::vector<std::int32_t>>(9)});
  BOOST_TEST(c.count<enqueue>() == 1U);
  c.tell(refused{id, {errc::context_length_exceeded, "long", "prompt", 0}});
  BOOST_TEST(c.events().size() == 1U);
  BOOST_TEST((c.failure() == errc::context_length_exceeded));
}

BOOST_AUTO_TEST_CASE(a_prompt_that_cannot_be_tokenised_gives_the_place_back) {
  client c;
  c.tell(admitted{id});
  c.tell(prompt_failed{id, {errc::bad_template, "no such template", {}, 0}});
  BOOST_TEST(c.count<cancel>() == 1U);
  BOOST_TEST(!c.over());
  c.broke(errc::bad_template);
  BOOST_TEST((c.failure() == errc::bad_template));
}

BOOST_AUTO_TEST_CASE(a_request_is_accepted_at_its_first_row_and_may_be_refused_until_then) {
  client c;
  c.tell(admitted{id});
  c.tell(prompt_ready{id, std::make_shared<const std::vector<std::int32_t>>(3)});
  BOOST_TEST(c.events().empty());
  c.broke(errc::queue_timeout);
  BOOST_TEST(c.events().size() == 1U);
  BOOST_TEST((c.failure() == errc::queue_timeout));
}

BOOST_AUTO_TEST_CASE(the_end_waits_for_tokens_still_under_way) {
  client c;
  c.admit();
  c.token(0);
  c.finished(finish_reason::stop, 3);
  BOOST_TEST(!c.over());
  c.token(1);
  BOOST_TEST(!c.over());
  c.token(2, true);
  BOOST_TEST(c.over());
  BOOST_TEST(c.text() == "ab"); // the stop id leaves no text
  BOOST_TEST(c.done()->usage.completion_tokens == 3U);
}

BOOST_AUTO_TEST_CASE(tokens_may_overtake_the_start) {
  client c;
  c.tell(admitted{id});
  c.tell(prompt_ready{id, std::make_shared<const std::vector<std::int32_t>>(3)});
  c.token(0);
  c.tell(started{id});
  const auto events = c.events();
  BOOST_TEST(std::holds_alternative<accepted_event>(events.at(0)));
  BOOST_TEST(events.size() == 2U);
}

BOOST_AUTO_TEST_CASE(a_stop_string_ends_the_request_and_what_follows_is_dropped) {
  client c;
  c.admit();
  c.token(0);
  c.token(99);
  BOOST_TEST(c.count<finish>() == 1U);
  c.token(1);
  c.finished(finish_reason::stop, 3);
  BOOST_REQUIRE(c.done() != nullptr);
  BOOST_TEST((c.done()->reason == finish_reason::stop));
  BOOST_TEST(c.text() == "a");
  BOOST_TEST(c.done()->usage.completion_tokens == 2U);
}

BOOST_AUTO_TEST_CASE(a_stop_string_in_the_last_token_wins_over_length) {
  client c;
  c.admit();
  c.finished(finish_reason::length, 1);
  c.token(99);
  BOOST_TEST((c.done()->reason == finish_reason::stop));
  BOOST_TEST(c.count<finish>() == 0U); // the scheduler is done with it
}

BOOST_AUTO_TEST_CASE(what_was_held_back_comes_at_the_end) {
  client c;
  c.admit();
  c.token(25);
  BOOST_TEST(c.text().empty());
  c.finished(finish_reason::length, 1);
  BOOST_TEST(c.text() == "z");
  const auto events = c.events();
  BOOST_TEST(std::get<token_event>(events.at(2)).token_ids.empty());
  BOOST_TEST(std::get<token_event>(events.at(2)).seq == 1U);
}

BOOST_AUTO_TEST_CASE(what_was_held_back_may_complete_a_stop_string) {
  client c({}, true);
  c.admit();
  c.token(0);
  c.token(25);
  c.finished(finish_reason::length, 2);
  BOOST_TEST(c.text() == "a");
  BOOST_REQUIRE(c.done() != nullptr);
  BOOST_TEST((c.done()->reason == finish_reason::stop));
  client cut({}, true);
  cut.admit();
  cut.token(25);
  cut.finished(finish_reason::cancelled, 1);
  BOOST_TEST((cut.done()->reason == finish_reason::cancelled));
}

BOOST_AUTO_TEST_CASE(a_cancel_at_any_point_ends_once) {
  struct row {
    const char* when;
    std::function<void(client&)> reach, settle;
    bool accepted;
  };
  const auto end = [](client& c) { c.finished(finish_reason::cancelled, 0); };
  const row rows[] = {
      {"at the door", [](client&) {},
       [end](client& c) {
         c.tell(admitted{id});
         end(c);
       },
       false},
      {"at the door, refused", [](client&) {},
       [](client& c) {
         c.tell(refused{id, {errc::queue_full, "q", {}, 1}});
       },
       false},
      {"while tokenising", [](client& c) { c.tell(admitted{id}); }, end, false},
      {"in the queue",
       [](client& c) {
         c.tell(admitted{id});
         c.tell(prompt_ready{id, std::make_shared<const std::vector<std::int32_t>>(3)});
       },
       end, false},
      {"started", [](client& c) { c.admit(); }, end, true},
      {"streaming",
       [](client& c) {
         c.admit();
         c.token(0);
       },
       end, true},
      {"while it was ending well",
       [](client& c) {
         c.admit();
         c.token(0);
       },
       [](client& c) {
         c.token(1);
         c.finished(finish_reason::length, 2);
       },
       true},
  };
  for (const auto& r : rows) {
    BOOST_TEST_CONTEXT(r.when) {
      client c;
      r.reach(c);
      c.tell(client_cancel{id, {errc::cancelled, "left", {}, 0}});
      c.tell(client_cancel{id, {errc::cancelled, "left", {}, 0}});
      BOOST_TEST(!c.over());
      r.settle(c);
      BOOST_TEST(c.over());
      BOOST_TEST(c.count<cancel>() <= 1U);
      BOOST_TEST(c.count<retire>() == 1U);
      if (r.accepted)
        BOOST_TEST((c.done()->reason == finish_reason::cancelled));
      else
        BOOST_TEST((c.failure() == errc::cancelled));
      const auto before = c.effects.size();
      c.token(1);
      c.tell(client_cancel{id, {errc::cancelled, "left", {}, 0}});
      c.tell(alarm_rang{});
      c.tell(events_read{id, 1});
      BOOST_TEST(c.effects.size() == before);
    }
  }
}

BOOST_AUTO_TEST_CASE(nothing_is_sent_to_the_scheduler_before_the_door_has_answered) {
  client c;
  c.tell(client_cancel{id, {errc::cancelled, "left", {}, 0}});
  BOOST_TEST(c.count<cancel>() == 0U);
  c.tell(admitted{id});
  BOOST_TEST(c.count<cancel>() == 1U);
  BOOST_TEST(c.count<tokenize_prompt>() == 0U);
}

BOOST_AUTO_TEST_CASE(the_deadline_counts_from_birth) {
  request_options o;
  o.deadline = milliseconds(50);
  client c(o);
  BOOST_TEST((c.alarm == c.now + milliseconds(50)));
  c.admit();
  c.now += milliseconds(49);
  c.tell(alarm_rang{}); // early
  BOOST_TEST(c.count<cancel>() == 0U);
  BOOST_TEST((c.alarm != time_point::max()));
  c.now += milliseconds(1);
  c.tell(alarm_rang{});
  BOOST_TEST(c.count<cancel>() == 1U);
  c.broke(errc::deadline_exceeded);
  BOOST_TEST((c.failure() == errc::deadline_exceeded));
  BOOST_TEST((c.alarm == time_point::max()));
}

BOOST_AUTO_TEST_CASE(a_reader_without_credit_pauses_its_own_request) {
  request_options o;
  o.credit = 4;
  o.slow_consumer = milliseconds(100);
  client c(o);
  c.admit();
  for (int i = 0; i < 3; ++i) c.token(0);
  BOOST_TEST(c.count<stream_paused>() == 0U);
  c.token(0);
  c.token(0); // was under way
  BOOST_TEST(c.count<stream_paused>() == 1U);
  c.tell(events_read{id, 2});
  BOOST_TEST(c.count<stream_resumed>() == 0U);
  c.tell(events_read{id, 2}); // the same again: nothing more was taken
  BOOST_TEST(c.count<stream_resumed>() == 0U);
  c.tell(events_read{id, 3});
  BOOST_TEST(c.count<stream_resumed>() == 1U);
  BOOST_TEST((c.alarm == time_point::max()));
}

BOOST_AUTO_TEST_CASE(a_choice_whose_events_wait_for_others_has_no_slow_reader) {
  request_options o;
  o.credit = 1;
  o.group = 7;
  o.slow_consumer = milliseconds(100);
  client c(o);
  c.admit();
  c.token(0);
  c.now += milliseconds(1000);
  c.tell(alarm_rang{});
  BOOST_TEST(c.count<stream_paused>() == 1U);
  BOOST_TEST(c.count<cancel>() == 0U);
  c.tell(events_read{id, 0}); // the others' prompts are there: now it can be read
  c.now += milliseconds(100);
  c.tell(alarm_rang{});
  BOOST_TEST(c.count<cancel>() == 1U);
}

BOOST_AUTO_TEST_CASE(a_reader_that_stays_away_is_ended) {
  request_options o;
  o.credit = 1;
  o.slow_consumer = milliseconds(100);
  client c(o);
  c.admit();
  c.token(0);
  c.now += milliseconds(100);
  c.tell(alarm_rang{});
  BOOST_TEST(c.count<cancel>() == 1U);
  c.broke(errc::slow_consumer);
  BOOST_TEST((c.failure() == errc::slow_consumer));
}

BOOST_AUTO_TEST_CASE(a_reader_that_reads_slowly_is_never_ended) {
  request_options o;
  o.credit = 100;
  o.slow_consumer = milliseconds(100);
  client c(o);
  c.admit();
  for (int i = 0; i < 100; ++i) c.token(0);
  BOOST_TEST(c.core.paused());
  for (std::uint64_t i = 1; i <= 40; ++i) { // one event in 90 ms, and none of them enough to go on
    c.now += milliseconds(90);
    if (c.alarm <= c.now) c.tell(alarm_rang{});
    c.tell(events_read{id, i});
  }
  BOOST_TEST(c.core.paused());
  BOOST_TEST(c.count<cancel>() == 0U);
  BOOST_TEST(c.count<set_alarm>() < 50U);
  const auto last_read = c.now;
  while (c.count<cancel>() == 0 && c.alarm != time_point::max()) {
    c.now = c.alarm;
    c.tell(alarm_rang{});
  }
  BOOST_TEST(c.count<cancel>() == 1U);
  BOOST_TEST((c.now == last_read + milliseconds(100)));
}

BOOST_AUTO_TEST_CASE(a_stop_string_does_not_end_the_answer_before_min_tokens) {
  request_options o;
  o.min_tokens = 2;
  client c(o);
  c.admit();
  c.token(99);
  c.token(99);
  BOOST_TEST(c.count<finish>() == 0U);
  c.token(99);
  BOOST_TEST(c.count<finish>() == 1U);
}

BOOST_AUTO_TEST_CASE(a_deadline_beyond_the_clock_is_a_day) {
  request r;
  r.prompt = std::vector<std::int32_t>(1, 1);
  r.deadline_ms = std::numeric_limits<std::uint64_t>::max();
  client c(make_request_options(id, r, 1, 256));
  BOOST_TEST((c.alarm == c.now + std::chrono::hours(24)));
  request_options o;
  o.deadline = duration::max();
  BOOST_TEST((client(o).alarm == c.now + std::chrono::hours(24)));
}

BOOST_AUTO_TEST_CASE(log_probabilities_come_when_asked_for) {
  request_options o;
  o.logprobs = true;
  o.top_logprobs = 1;
  client c(o);
  c.admit();
  c.token(0);
  c.token(1);
  const auto events = c.events();
  const auto& e = std::get<token_event>(events.at(1));
  BOOST_TEST(e.logprobs.at(0).token == 0);
  BOOST_TEST(e.logprobs[0].text == "first"); // its name where it stands
  BOOST_TEST(e.top_logprobs.at(0).at(0).token == 7);
  BOOST_TEST(e.top_logprobs[0][0].text == "first");
  BOOST_TEST(std::get<token_event>(events.at(2)).logprobs.at(0).text == "*");
}

BOOST_AUTO_TEST_CASE(an_echoed_prompt_comes_first_and_costs_credit) {
  request_options o;
  o.echo = true;
  o.credit = 2;
  client c(o);
  c.admit();
  c.token(5);
  BOOST_TEST(c.count<stream_paused>() == 1U);
  const auto events = c.events();
  BOOST_REQUIRE_EQUAL(events.size(), 3U);
  const auto& echo = std::get<token_event>(events[1]);
  BOOST_TEST(echo.echo);
  BOOST_TEST(echo.seq == 0U);
  BOOST_TEST(echo.text == "###"); // as a whole
  BOOST_TEST(echo.token_ids == (std::vector<std::int32_t>{1, 2, 3}), boost::test_tools::per_element());
  BOOST_TEST(echo.logprobs.empty());
  BOOST_TEST(!std::get<token_event>(events[2]).echo);
  c.finished(finish_reason::length, 1);
  BOOST_TEST(std::get<done_event>(c.events().back()).usage.completion_tokens == 1U);
}

BOOST_AUTO_TEST_CASE(a_scored_prompt_is_echoed_as_its_scores_come_and_the_end_waits_for_them) {
  request_options o;
  o.echo = o.score_prompt = o.logprobs = true;
  o.top_logprobs = 1;
  o.max_tokens = 0;
  client c(o);
  c.admit();
  BOOST_TEST(c.count<emit_event>() == 1U); // accepted
  c.tell(sequence_finished{id, finish_reason::length, std::nullopt, 3, 0, 2});
  BOOST_TEST(!c.core.over());
  c.tell(prompt_scored{id, 1, {{-1.5F, {{7, -0.5F}}}}});
  c.tell(prompt_scored{id, 2, {{-2.5F, {{8, -0.25F}}}}});
  BOOST_TEST(c.core.over());
  const auto events = c.events();
  BOOST_REQUIRE_EQUAL(events.size(), 4U);
  const auto& first = std::get<token_event>(events[1]);
  const auto& second = std::get<token_event>(events[2]);
  BOOST_TEST(first.text + second.text == "BCD|");
  BOOST_REQUIRE_EQUAL(first.logprobs.size(), 2U);
  BOOST_TEST(std::isnan(first.logprobs[0].logprob));
  BOOST_TEST(first.logprobs[0].text == "+first");
  BOOST_TEST(!first.logprobs[0].shown);
  BOOST_TEST(first.logprobs[1].text == "+");
  BOOST_TEST(first.logprobs[1].shown);
  BOOST_TEST(first.top_logprobs.at(0).empty());
  BOOST_TEST(first.logprobs[1].logprob == -1.5F);
  BOOST_TEST(first.logprobs[1].token == 2);
  BOOST_TEST(first.top_logprobs.at(1).at(0).token == 7);
  BOOST_TEST(second.logprobs.at(0).logprob == -2.5F);
  BOOST_TEST(second.token_ids == std::vector<std::int32_t>(1, 3), boost::test_tools::per_element());
  BOOST_TEST((std::get<done_event>(events[3]).reason == finish_reason::length));
}

BOOST_AUTO_TEST_CASE(a_prompt_of_one_token_has_no_score_to_wait_for) {
  request_options o;
  o.echo = o.score_prompt = o.logprobs = true;
  client c(o);
  c.tell(admitted{id});
  c.tell(prompt_ready{id, std::make_shared<const std::vector<std::int32_t>>(1, 4)});
  c.tell(started{id});
  const auto events = c.events();
  BOOST_REQUIRE_EQUAL(events.size(), 2U);
  BOOST_TEST(std::get<token_event>(events[1]).text == "E|");
  BOOST_TEST(std::isnan(std::get<token_event>(events[1]).logprobs.at(0).logprob));
}

BOOST_AUTO_TEST_CASE(a_bias_of_minus_a_hundred_bans_and_the_others_are_added) {
  request r;
  r.prompt = std::vector<std::int32_t>(1, 1);
  r.sampling.logit_bias = {{3, -100}, {4, 2.5F}, {5, -99}};
  r.sampling.typical_p = 0.5F;
  r.echo = true;
  const auto o = make_request_options(id, r, 1, 256);
  BOOST_TEST(o.banned == std::vector<std::int32_t>(1, 3), boost::test_tools::per_element());
  BOOST_REQUIRE(o.sampling.biased());
  BOOST_TEST(o.sampling.bias->size() == 2U);
  BOOST_TEST(o.sampling.bias->at(0).bias == 2.5F);
  BOOST_TEST(o.sampling.typical_p == 0.5F);
  BOOST_TEST(o.echo);
  BOOST_TEST(!o.score_prompt);
}

BOOST_AUTO_TEST_CASE(options_come_from_the_public_request) {
  request r;
  r.prompt = std::vector<std::int32_t>(17, 1);
  r.sampling.seed = 5;
  auto o = make_request_options(id, r, 99, 256);
  BOOST_TEST(o.prompt_tokens == 17U);
  BOOST_TEST(o.sampling.seed == 5U);
  BOOST_TEST(o.max_tokens == no_limit);
  BOOST_TEST(o.credit == 256U);
  r.sampling.seed.reset();
  r.prompt = std::string(400, 'x');
  r.credit = 3;
  r.max_tokens = 7;
  o = make_request_options(id, r, 99, 256);
  BOOST_TEST(o.prompt_tokens == 101U);
  BOOST_TEST(o.sampling.seed == 99U);
  BOOST_TEST(o.credit == 3U);
  BOOST_TEST(o.max_tokens == 7U);
}

BOOST_AUTO_TEST_SUITE_END()
