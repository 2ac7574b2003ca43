// SPDX-License-Identifier: Apache-2.0
// Requests of several choices and prompts, echoes and every way to end, over the real actors.
#include "engine_fixture.hpp"

#include <boost/asio/execution.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <cmath>
#include <functional>

using namespace troupe;
using test::answer;
using test::vocabulary;

namespace {

/// A whole answer, by choice.
struct whole : test::engine_fixture {
  struct given {
    completion all;
    std::optional<error> failed;
    std::uint32_t accepted = 0, events = 0;
    std::optional<done_event> done;
    bool in_order = true;
  };
  std::shared_ptr<given> get(request what) {
    stream s = engine->submit(std::move(what));
    auto g = std::make_shared<given>();
    read(s, g);
    run_until([&] { return g->done || g->failed; });
    return g;
  }
  void read(stream& s, std::shared_ptr<given> into) {
    s.async_read([this, &s, into](boost::system::error_code ec, stream_event event) {
      BOOST_REQUIRE(!ec);
      if (auto* a = std::get_if<accepted_event>(&event)) {
        ++into->accepted;
        into->all.prompt_token_ids = a->prompt_token_ids;
        into->all.further_prompts = a->further_prompts;
      }
      if (auto* t = std::get_if<token_event>(&event)) {
        into->in_order = into->in_order && into->accepted == 1 && t->seq == into->events;
        ++into->events;
        into->all.take(std::move(*t));
      }
      if (auto* d = std::get_if<done_event>(&event)) {
        into->in_order = into->in_order && d->seq == into->events;
        into->done = *d;
        into->all.take(std::move(*d));
        return;
      }
      if (auto* f = std::get_if<failed_event>(&event)) {
        into->failed = f->why;
        return;
      }
      read(s, into);
    });
  }
  request greedy(std::vector<std::int32_t> prompt, std::uint32_t tokens) {
    request r = ask(std::move(prompt), tokens);
    r.sampling.temperature = 0;
    return r;
  }
  bool all_free() const {
    const engine_stats s = engine->stats();
    return s.kv_free + s.kv_cached == s.kv_total && s.running == 0 && s.waiting == 0;
  }
};

/// An executor on which all but the first post of a job of the text thread come late, when the test says so.
class late_executor {
 public:
  struct state {
    std::size_t posts = 0; ///< of the job that runs
    bool in_job = false;
    std::vector<std::function<void()>> late;
  };
  late_executor(boost::asio::io_context& io, state& s) : io_(&io), state_(&s) {}
  boost::asio::execution_context& query(boost::asio::execution::context_t) const noexcept { return *io_; }
  static constexpr auto query(boost::asio::execution::blocking_t) noexcept {
    return boost::asio::execution::blocking.never;
  }
  late_executor require(boost::asio::execution::blocking_t::never_t) const noexcept { return *this; }
  template<class F>
  void execute(F f) const {
    if (!state_->in_job || state_->posts++ == 0) return boost::asio::post(*io_, std::move(f));
    state_->late.emplace_back([io = io_, kept = std::make_shared<F>(std::move(f))]() mutable {
      boost::asio::post(*io, [kept] { (*kept)(); });
    });
  }
  bool operator==(const late_executor&) const noexcept = default;

 private:
  boost::asio::io_context* io_;
  state* state_;
};

} // namespace

BOOST_FIXTURE_TEST_SUITE(choices_over_the_actors, whole)

BOOST_AUTO_TEST_CASE(every_choice_of_every_prompt_gets_what_it_gets_alone) {
  host->backend_of_test->by_seed = true;
  start();
  request r = ask({1, 2, 3}, 9);
  r.sampling.seed = 12345;
  r.n = 3;
  r.further_prompts = {std::vector<std::int32_t>{4, 5}, std::string("six")};
  const auto g = get(r);
  BOOST_REQUIRE(g->done);
  BOOST_TEST(g->accepted == 1U);
  BOOST_TEST(g->in_order);
  BOOST_TEST(g->all.further_prompts.size() == 2U);
  BOOST_REQUIRE_EQUAL(g->all.further_choices.size(), 8U);
  BOOST_TEST(g->done->reasons.size() == 9U);
  BOOST_TEST(g->done->usage.prompt_tokens == 3U + 2U + 3U);
  BOOST_TEST(g->done->usage.completion_tokens == 81U);
  std::vector<prompt> prompts{r.prompt};
  prompts.insert(prompts.end(), r.further_prompts.begin(), r.further_prompts.end());
  std::vector<std::vector<std::int32_t>> of_first;
  for (std::uint32_t p = 0; p < 3; ++p)
    for (std::uint32_t c = 0; c < 3; ++c) {
      request alone = ask({}, 9);
      alone.prompt = prompts[p];
      alone.sampling.seed = detail::choice_seed(12345, c);
      const auto a = get(std::move(alone));
      const std::uint32_t index = p * 3 + c;
      const auto& choice = index == 0 ? g->all : g->all.further_choices[index - 1];
      BOOST_TEST(choice.token_ids == a->all.token_ids, boost::test_tools::per_element());
      BOOST_TEST(choice.text == a->all.text);
      if (p == 0) of_first.push_back(choice.token_ids);
    }
  BOOST_TEST((of_first[0] != of_first[1]));
  BOOST_TEST((of_first[1] != of_first[2]));
  BOOST_TEST(all_free());
  const engine_stats stats = engine->stats();
  BOOST_TEST(stats.submitted == 10U); // requests, not choices
  BOOST_TEST(stats.finished_length == 10U);
}

BOOST_AUTO_TEST_CASE(several_answers_to_a_chat_begin_as_one_does_and_those_that_continue_a_text_do_not) {
  start();
  request r = greedy({}, 6);
  for (const bool chat : {true, false}) {
    const auto asked = chat ? prompt(chat_prompt{{{"user", "hello"}}}) : prompt(std::string("hello"));
    r.prompt = asked;
    r.n = 1;
    const auto one = get(r);
    BOOST_TEST(one->all.text.starts_with('^') == chat);
    r.n = 3;
    const auto several = get(r);
    BOOST_REQUIRE_EQUAL(several->all.further_choices.size(), 2U);
    BOOST_TEST(several->all.text == one->all.text);
    for (const completion_choice& c : several->all.further_choices) BOOST_TEST(c.text == one->all.text);
  }
}

BOOST_AUTO_TEST_CASE(a_prompt_is_tokenised_once_for_all_its_choices) {
  start();
  request r = ask({}, 2);
  r.prompt = std::string("once");
  r.n = 5;
  BOOST_REQUIRE(get(std::move(r))->done);
  BOOST_TEST(host->encoded == 1U);
}

BOOST_AUTO_TEST_CASE(choices_that_end_while_the_text_thread_pauses_end_the_request) {
  late_executor::state texts;
  slow_text = true;
  engine = std::make_shared<detail::engine_state>(late_executor(io, texts), options, environment());
  bool ready = false;
  engine->start([&](result<void> r) { ready = r.has_value(); });
  turn_text();
  BOOST_REQUIRE(ready);
  request r = ask({}, 1);
  r.prompt = std::string("short");
  r.n = 2;
  stream s = engine->submit(std::move(r));
  auto g = std::make_shared<given>();
  read(s, g);
  turn();
  text.restart();
  texts.in_job = true;
  while (text.poll_one() > 0) texts.posts = 0;
  texts.in_job = false;
  BOOST_TEST(texts.late.size() == 2U);
  turn(); // whatever can be done before the text thread goes on
  for (auto& post : texts.late) post();
  run_until([&] { return g->done || g->failed; });
  BOOST_REQUIRE(g->done);
  BOOST_TEST(g->all.further_choices.size() == 1U);
  turn_text();
  BOOST_TEST(all_free());
}

BOOST_AUTO_TEST_CASE(more_choices_than_seats_all_come_to_an_end) {
  options.max_batch = 2;
  start();
  request r = ask({1}, 5);
  r.n = 9;
  const auto g = get(std::move(r));
  BOOST_REQUIRE(g->done);
  BOOST_TEST(g->all.further_choices.size() == 8U);
  BOOST_TEST(g->done->usage.completion_tokens == 45U);
}

BOOST_AUTO_TEST_CASE(more_choices_than_the_server_has_places_for_are_refused_by_name) {
  options.max_batch = 2;
  options.max_queue = 4;
  start();
  request r = ask({1}, 5);
  r.n = 7;
  auto g = get(r);
  BOOST_REQUIRE(g->failed);
  BOOST_TEST((g->failed->code == errc::bad_request));
  BOOST_TEST(g->failed->param == "n");
  r.n = 6;
  BOOST_TEST(get(r)->done.has_value());
  BOOST_TEST(all_free());
}

BOOST_AUTO_TEST_CASE(where_not_all_choices_find_a_place_the_request_is_refused_and_leaves_nothing) {
  options.max_batch = 1;
  options.max_queue = 3;
  start();
  host->backend_of_test->held = true;
  stream running = engine->submit(ask({1}, 2));
  auto first = std::make_shared<answer>();
  collect(running, first);
  run_until([&] { return first->accepted > 0; });
  request r = ask({1}, 2);
  r.n = 4;
  const auto g = get(std::move(r));
  BOOST_REQUIRE(g->failed);
  BOOST_TEST((g->failed->code == errc::queue_full));
  BOOST_TEST(g->accepted == 0U);
  host->backend_of_test->held = false;
  host->backend_of_test->release();
  run_until([&] { return first->terminal > 0; });
  run_until([&] { return all_free(); });
  BOOST_TEST(first->done.has_value());
}

BOOST_AUTO_TEST_CASE(a_cancel_and_a_dropped_stream_free_every_choice) {
  start();
  request r = ask({1, 2}, 200);
  r.n = 4;
  stream s = engine->submit(r);
  auto a = std::make_shared<answer>();
  collect(s, a);
  run_until([&] { return a->ids.size() > 10; });
  s.cancel();
  run_until([&] { return a->terminal > 0; });
  BOOST_REQUIRE(a->done);
  for (const finish_reason reason : a->done->reasons) BOOST_TEST((reason == finish_reason::cancelled));
  BOOST_TEST(a->done->usage.completion_tokens == a->ids.size());
  run_until([&] { return all_free(); });
  { stream dropped = engine->submit(r); }
  run_until([&] { return engine->stats().cancelled == 2U; });
  run_until([&] { return all_free(); });
}

BOOST_AUTO_TEST_CASE(the_failure_of_one_choice_ends_the_request_and_frees_the_others) {
  start();
  host->backend_of_test->poison = 90; // an input token
  request r = ask({1, 2}, 60);
  r.further_prompts = {std::vector<std::int32_t>{90}};
  const auto g = get(std::move(r));
  BOOST_REQUIRE(g->failed);
  BOOST_TEST((g->failed->code == errc::not_finite));
  run_until([&] { return all_free(); });
  host->backend_of_test->poison = -1;
  BOOST_TEST(get(ask({1}, 3))->done.has_value());
}

BOOST_AUTO_TEST_CASE(an_unread_request_of_several_choices_is_bounded_and_goes_on_when_read) {
  options.stream_credit = 8;
  start();
  request r = ask({5}, 40);
  r.n = 4;
  stream s = engine->submit(std::move(r));
  run_until([&] { return engine->stats().paused == 4; });
  auto g = std::make_shared<given>();
  read(s, g);
  run_until([&] { return g->done.has_value(); });
  BOOST_TEST(g->in_order);
  BOOST_TEST(g->done->usage.completion_tokens == 160U);
}

BOOST_AUTO_TEST_CASE(a_client_that_reads_slowly_keeps_all_its_choices) {
  options.stream_credit = 4;
  options.slow_consumer_ms = 200;
  start();
  request r = ask({5}, 12);
  r.n = 4;
  stream s = engine->submit(std::move(r));
  std::optional<done_event> done;
  std::optional<error> failed;
  boost::asio::steady_timer timer(io);
  std::function<void()> next = [&] {
    s.async_read([&](boost::system::error_code, stream_event event) {
      if (auto* d = std::get_if<done_event>(&event)) done = *d;
      if (auto* f = std::get_if<failed_event>(&event)) failed = f->why;
      if (done || failed) return;
      timer.expires_after(std::chrono::milliseconds(20)); // 52 events take five times the patience
      timer.async_wait([&](boost::system::error_code) { next(); });
    });
  };
  next();
  run_until([&] { return done || failed; });
  BOOST_TEST(done.has_value());
}

BOOST_AUTO_TEST_CASE(the_best_of_some_is_given_whole) {
  host->backend_of_test->by_seed = true;
  start();
  request r = ask({1, 2}, 6);
  r.sampling.seed = 99;
  r.n = 2;
  r.best_of = 5;
  const auto g = get(r);
  BOOST_REQUIRE(g->done);
  BOOST_TEST(g->in_order);
  BOOST_TEST(g->events == 2U);
  BOOST_TEST(g->all.logprobs.empty()); // not asked for
  BOOST_TEST(g->done->usage.completion_tokens == 30U);
  BOOST_TEST(g->done->usage.prompt_tokens == 2U);
  std::vector<std::pair<double, std::uint32_t>> scores;
  std::vector<std::vector<std::int32_t>> ids;
  for (std::uint32_t c = 0; c < 5; ++c) {
    request alone = ask({1, 2}, 6);
    alone.sampling.seed = detail::choice_seed(99, c);
    alone.logprobs = true;
    const auto a = get(std::move(alone));
    double sum = 0;
    for (const auto& t : a->all.logprobs) sum += static_cast<double>(t.logprob);
    scores.emplace_back(-sum / 6, c);
    ids.push_back(a->all.token_ids);
  }
  std::sort(scores.begin(), scores.end());
  BOOST_TEST(g->all.token_ids == ids[scores[0].second], boost::test_tools::per_element());
  BOOST_TEST(
      g->all.further_choices.at(0).token_ids == ids[scores[1].second], boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(an_echo_gives_the_prompt_with_scores_before_what_is_drawn) {
  options.max_step_tokens = 4; // several chunks
  start();
  request r = greedy({10, 11, 12, 13, 14, 15, 16, 17, 18}, 3);
  r.echo = r.logprobs = true;
  r.top_logprobs = 2;
  r.n = 2;
  const auto g = get(r);
  BOOST_REQUIRE(g->done);
  BOOST_TEST(g->in_order);
  BOOST_TEST(g->done->usage.completion_tokens == 6U);
  BOOST_TEST(g->done->usage.prompt_tokens == 9U);
  for (const completion_choice* c :
       {static_cast<completion_choice*>(&g->all), &g->all.further_choices.at(0)}) {
    BOOST_TEST(c->text.starts_with("ppppppppp"));
    BOOST_TEST(c->text.size() == 12U);
    BOOST_TEST(c->token_ids.size() == 3U);
    BOOST_REQUIRE_EQUAL(c->logprobs.size(), 12U);
    BOOST_REQUIRE_EQUAL(c->top_logprobs.size(), 12U);
    BOOST_TEST(std::isnan(c->logprobs[0].logprob));
    BOOST_TEST(c->top_logprobs[0].empty());
    for (std::uint32_t i = 1; i < 9; ++i) {
      BOOST_TEST(c->logprobs[i].token == static_cast<std::int32_t>(10 + i));
      BOOST_TEST(c->logprobs[i].logprob == test::score_of(static_cast<std::int32_t>(10 + i), i - 1));
      BOOST_TEST(c->top_logprobs[i].size() == 2U);
    }
  }
  r.logprobs = false;
  r.top_logprobs = 0;
  r.n = 1;
  const auto plain = get(r);
  BOOST_TEST(plain->all.text == g->all.text);
  BOOST_TEST(plain->all.logprobs.empty());
}

BOOST_AUTO_TEST_CASE(a_prompt_can_be_scored_without_drawing_anything) {
  start();
  for (const bool logprobs : {true, false}) {
    request r = ask({10, 11, 12}, 0);
    r.echo = true;
    r.logprobs = logprobs;
    const auto g = get(r);
    BOOST_REQUIRE(g->done);
    BOOST_TEST((g->done->reason == finish_reason::length));
    BOOST_TEST(g->done->usage.completion_tokens == 0U);
    BOOST_TEST(g->all.text == "ppp");
    BOOST_TEST(g->all.logprobs.size() == (logprobs ? 3U : 0U));
    BOOST_TEST(g->all.token_ids.empty());
  }
  request one = ask({10}, 0);
  one.echo = one.logprobs = true;
  BOOST_TEST(get(one)->all.logprobs.size() == 1U);
  BOOST_TEST(get(ask({10}, 0))->all.text.empty());
  BOOST_TEST(all_free());
}

BOOST_AUTO_TEST_CASE(a_preempted_prompt_is_echoed_once) {
  options.preempt_every = 2;
  options.max_step_tokens = 3;
  start();
  request r = greedy({10, 11, 12, 13, 14, 15, 16}, 12);
  r.echo = r.logprobs = true;
  r.further_prompts = {std::vector<std::int32_t>{20, 21, 22, 23}};
  const auto g = get(r);
  BOOST_REQUIRE(g->done);
  BOOST_TEST(engine->stats().preemptions > 0U);
  BOOST_TEST(g->all.logprobs.size() == 7U + 12U);
  BOOST_TEST(g->all.further_choices.at(0).logprobs.size() == 4U + 12U);
}

BOOST_AUTO_TEST_CASE(every_way_to_end_has_its_reason) {
  start();
  const auto drawn = test::answer_alone({1, 2, 3}, 8);
  const auto letter = [](std::int32_t token) { return std::string(1, static_cast<char>('!' + token % 90)); };
  struct row {
    const char* what;
    std::function<void(request&)> change;
    finish_reason reason;
    std::size_t tokens;
  };
  const row rows[] = {
      {"the limit", [](request&) {}, finish_reason::length, 8},
      {"no token at all", [](request& r) { r.max_tokens = 0; }, finish_reason::length, 0},
      {"a stop string at the last allowed token",
       [&](request& r) {
         r.stop = {letter(drawn[7])};
         r.max_tokens = 8;
       },
       finish_reason::stop, 8},
      {"a stop string one token after the last allowed",
       [&](request& r) {
         r.stop = {letter(drawn[7])};
         r.max_tokens = 7;
       },
       finish_reason::length, 7},
      {"a stop id", [&](request& r) { r.stop_token_ids = {drawn[4]}; }, finish_reason::stop, 5},
      {"a stop id at the last allowed token",
       [&](request& r) {
         r.stop_token_ids = {drawn[7]};
         r.max_tokens = 8;
       },
       finish_reason::stop, 8},
      {"an end-of-sequence id that is a stop id too",
       [&](request& r) { r.stop_token_ids = {test::end_token}; }, finish_reason::length, 8},
  };
  for (const row& one : rows) {
    request r = greedy({1, 2, 3}, 8);
    one.change(r);
    const auto g = get(std::move(r));
    BOOST_TEST_CONTEXT(one.what) {
      BOOST_REQUIRE(g->done);
      BOOST_TEST((g->done->reason == one.reason));
      BOOST_TEST(g->all.token_ids.size() == one.tokens);
      BOOST_TEST(g->done->usage.completion_tokens == one.tokens);
    }
  }
}

BOOST_AUTO_TEST_CASE(end_of_sequence_ends_unless_it_is_ignored_held_back_or_banned) {
  host->backend_of_test->ends_after = test::answer_alone({1, 2, 3}, 3).at(2);
  start();
  const auto ids_of = [&](auto change) {
    request r = greedy({1, 2, 3}, 10);
    change(r);
    return get(std::move(r));
  };
  auto g = ids_of([](request&) {});
  BOOST_TEST((g->done.value().reason == finish_reason::stop));
  BOOST_TEST(g->all.token_ids.size() == 4U);
  BOOST_TEST(g->all.token_ids.back() == test::end_token);
  BOOST_TEST(g->all.text.size() == 3U); // it leaves no text

  g = ids_of([](request& r) { r.ignore_eos = true; });
  BOOST_TEST((g->done.value().reason == finish_reason::length));
  BOOST_TEST(g->all.token_ids.size() == 10U);
  BOOST_TEST(g->all.token_ids[3] == test::end_token);

  g = ids_of([](request& r) { r.ignore_eos = true, r.stop_token_ids = {test::end_token}; });
  BOOST_TEST((g->done.value().reason == finish_reason::stop)); // asked for by id
  BOOST_TEST(g->all.token_ids.size() == 4U);

  g = ids_of([](request& r) { r.min_tokens = 6; });
  BOOST_TEST(g->all.token_ids.size() >= 6U);
  BOOST_TEST(g->all.token_ids[3] != test::end_token);

  g = ids_of([](request& r) { r.sampling.logit_bias = {{test::end_token, -100}}; });
  BOOST_TEST((g->done.value().reason == finish_reason::length));
  for (const auto id : g->all.token_ids) BOOST_TEST(id != test::end_token);
}

BOOST_AUTO_TEST_CASE(the_context_bounds_prompt_and_answer) {
  start(); // 256 positions
  const std::vector<std::int32_t> full(256, 1);
  request r = greedy(full, 1);
  BOOST_TEST((get(r)->failed.value().code == errc::context_length_exceeded));
  r = greedy(std::vector<std::int32_t>(255, 1), 50);
  auto g = get(r);
  BOOST_TEST((g->done.value().reason == finish_reason::length));
  BOOST_TEST(g->all.token_ids.size() == 1U);
  r.max_tokens.reset();
  r.prompt = std::vector<std::int32_t>(250, 1);
  BOOST_TEST(get(r)->all.token_ids.size() == 6U);
  r = greedy(full, 0); // nothing is drawn, so it fits
  r.echo = r.logprobs = true;
  g = get(r);
  BOOST_REQUIRE(g->done);
  BOOST_TEST(g->all.logprobs.size() == 256U);
  r.prompt = std::vector<std::int32_t>(257, 1);
  BOOST_TEST((get(r)->failed.value().code == errc::context_length_exceeded));
  r.prompt = std::string(256, 'x');
  BOOST_TEST(get(r)->done.has_value());
  r.prompt = std::string(257, 'x');
  BOOST_TEST((get(r)->failed.value().code == errc::context_length_exceeded));
}

BOOST_AUTO_TEST_SUITE_END()
