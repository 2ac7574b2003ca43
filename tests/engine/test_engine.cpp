// SPDX-License-Identifier: Apache-2.0
// The public engine over a real, tiny model file.
#include "engine/model_host.hpp"
#include "public_engine.hpp"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

using namespace troupe;
namespace asio = boost::asio;

namespace {

engine_options tiny_model() {
  engine_options o = test::tiny_model();
  o.max_batch = 2;
  o.max_queue = 2;
  return o;
}

struct engine_test {
  asio::io_context io{1};
  engine one{io.get_executor(), tiny_model()};

  void start() { BOOST_REQUIRE(test::start_of(one, io).has_value()); }
};

} // namespace

BOOST_AUTO_TEST_SUITE(public_engine)

BOOST_FIXTURE_TEST_CASE(a_generation_cancelled_before_it_is_accepted_gives_what_there_is, engine_test) {
  start();
  asio::cancellation_signal signal;
  request what;
  what.prompt = std::vector<std::int32_t>{1, 2, 3};
  std::optional<result<completion>> given;
  one.async_generate(std::move(what), asio::bind_cancellation_slot(signal.slot(), [&](result<completion> r) {
                       given = std::move(r);
                     }));
  signal.emit(asio::cancellation_type::terminal); // before the executor has run
  io.run();
  BOOST_REQUIRE(given.has_value());
  BOOST_REQUIRE(given->has_value());
  BOOST_TEST(((*given)->reason == finish_reason::cancelled));
  BOOST_TEST((*given)->token_ids.empty());
}

BOOST_FIXTURE_TEST_CASE(control_tokens_in_a_text_prompt_are_text_unless_asked_for, engine_test) {
  start();
  const std::string text = "a<|im_end|>b";
  const auto ids_of = [&](bool special, std::uint32_t prompts) {
    request what;
    what.prompt = text;
    what.further_prompts.assign(prompts - 1, prompt(text));
    what.parse_special = special;
    what.max_tokens = 0;
    std::optional<result<completion>> given;
    one.async_generate(std::move(what), [&](result<completion> r) { given = std::move(r); });
    io.restart();
    io.run();
    BOOST_REQUIRE(given.has_value());
    BOOST_REQUIRE_MESSAGE(given->has_value(), given->error().message);
    return prompts == 1 ? (*given)->prompt_token_ids : (*given)->further_prompts.back();
  };
  const auto plain = one.tokenize(text, false), special = one.tokenize(text, true);
  BOOST_REQUIRE(plain && special);
  BOOST_REQUIRE(plain->size() > special->size());
  for (const std::uint32_t prompts : {1U, 2U}) {
    BOOST_TEST(ids_of(false, prompts) == *plain, boost::test_tools::per_element());
    BOOST_TEST(ids_of(true, prompts) == *special, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(destroying_the_engine_answers_what_is_under_way) {
  asio::io_context io{1};
  std::optional<result<void>> started;
  {
    engine one(io.get_executor(), tiny_model());
    one.async_start([&](result<void> r) { started = std::move(r); });
  }
  io.run();
  BOOST_REQUIRE(started.has_value());
  BOOST_TEST((!*started && started->error().code == errc::shutdown));
}

BOOST_AUTO_TEST_CASE(a_start_cancelled_while_it_loads_fails_and_so_does_every_request) {
  for (const auto type : {asio::cancellation_type::terminal, asio::cancellation_type::partial}) {
    asio::io_context io{1};
    engine one(io.get_executor(), tiny_model());
    asio::cancellation_signal signal;
    std::optional<result<void>> started;
    one.async_start(
        asio::bind_cancellation_slot(signal.slot(), [&](result<void> r) { started = std::move(r); }));
    signal.emit(type); // before the executor has run
    io.run();
    BOOST_REQUIRE(started.has_value());
    BOOST_REQUIRE(!*started);
    BOOST_TEST((started->error().code == errc::cancelled));
    io.restart();
    request what;
    what.prompt = std::vector<std::int32_t>{1, 2, 3};
    std::optional<result<completion>> given;
    one.async_generate(std::move(what), [&](result<completion> r) { given = std::move(r); });
    io.run();
    BOOST_REQUIRE(given.has_value());
    BOOST_REQUIRE(!*given);
    BOOST_TEST((given->error().code == errc::shutdown));
    BOOST_TEST(!one.stats().ready);
  }
}

BOOST_AUTO_TEST_CASE(a_start_cannot_be_cancelled_without_a_trace_nor_once_it_is_over) {
  asio::io_context io{1};
  engine one(io.get_executor(), tiny_model());
  asio::cancellation_signal signal;
  std::optional<result<void>> started;
  one.async_start(
      asio::bind_cancellation_slot(signal.slot(), [&](result<void> r) { started = std::move(r); }));
  signal.emit(asio::cancellation_type::total);
  io.run();
  BOOST_REQUIRE(started.has_value());
  BOOST_TEST(started->has_value());
  signal.emit(asio::cancellation_type::terminal);
  io.restart();
  io.run();
  BOOST_TEST(one.stats().ready);
}

BOOST_FIXTURE_TEST_CASE(a_cancelled_wait_for_the_shutdown_leaves_the_shutdown_and_other_waits, engine_test) {
  start();
  asio::cancellation_signal signal;
  std::optional<result<void>> left, ended;
  const std::chrono::minutes limit{1};
  one.async_shutdown(
      limit, asio::bind_cancellation_slot(signal.slot(), [&](result<void> r) { left = std::move(r); }));
  signal.emit(asio::cancellation_type::total);
  one.async_shutdown(limit, [&](result<void> r) { ended = std::move(r); });
  io.run();
  BOOST_REQUIRE(left.has_value());
  BOOST_REQUIRE(!*left);
  BOOST_TEST((left->error().code == errc::cancelled));
  BOOST_REQUIRE(ended.has_value());
  BOOST_TEST(ended->has_value());
  BOOST_TEST(!one.stats().ready);
}

BOOST_AUTO_TEST_CASE(a_chat_template_that_cannot_be_read_is_told_to_whoever_chats) {
  char dir[] = "/tmp/troupe-chat-XXXXXX";
  BOOST_REQUIRE(mkdtemp(dir) != nullptr);
  std::ifstream in(tiny_model().model_path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const auto at = bytes.find("{% endif %}");
  BOOST_REQUIRE(at != std::string::npos);
  bytes.replace(at, 11, "{% andif %}");
  engine_options o = tiny_model();
  o.model_path = std::string(dir) + "/m.gguf";
  std::ofstream(o.model_path, std::ios::binary) << bytes;
  const auto host = detail::load_model_host(o, {});
  BOOST_REQUIRE(host.has_value());
  chat_prompt chat;
  chat.messages.push_back({"user", "hello"});
  const auto rendered = (*host)->render(chat);
  BOOST_REQUIRE(!rendered);
  BOOST_TEST((rendered.error().code == errc::bad_template));
  BOOST_TEST(rendered.error().message.find("andif") != std::string::npos);
  std::filesystem::remove_all(dir);
}

BOOST_AUTO_TEST_CASE(an_instruction_set_that_is_not_offered_is_refused_with_those_that_are) {
  for (const char* isa : {"vnni", "amx", "sse9"}) {
    engine_options o = tiny_model();
    o.isa = isa;
    const auto host = detail::load_model_host(o, {});
    BOOST_REQUIRE(!host);
    BOOST_TEST((host.error().code == errc::bad_config));
    BOOST_TEST(host.error().message == "isa is \"" + o.isa + "\", one of ref, avx2, avx512 is allowed");
  }
}

BOOST_AUTO_TEST_CASE(a_loading_that_is_asked_to_stop_ends_as_shutdown) {
  std::stop_source stop;
  stop.request_stop();
  const auto host = detail::load_model_host(tiny_model(), stop.get_token());
  BOOST_REQUIRE(!host);
  BOOST_TEST((host.error().code == errc::shutdown));
}

BOOST_FIXTURE_TEST_CASE(a_request_s_life_can_be_drawn_after_its_end, engine_test) {
  start();
  request what;
  what.prompt = std::vector<std::int32_t>{1, 2, 3};
  what.max_tokens = 2;
  what.ignore_eos = true;
  stream s = one.submit(std::move(what));
  bool ended = false;
  std::function<void()> read = [&] {
    s.async_read([&](boost::system::error_code ec, stream_event event) {
      BOOST_REQUIRE(!ec);
      ended = std::holds_alternative<done_event>(event);
      if (!ended) read();
    });
  };
  read();
  io.run();
  BOOST_REQUIRE(ended);
  const std::string drawn = one.sequence_diagram(s.id());
  for (const std::string_view part :
       {"request/1", "scheduler", "admission_request", "admitted", "enqueue", "started", "token_ready",
        "sequence_finished"})
    BOOST_TEST(drawn.find(part) != std::string::npos, part << " is missing from\n" << drawn);
  BOOST_TEST(drawn.find("admission_request") < drawn.find("sequence_finished"));
  BOOST_TEST(one.sequence_diagram(s.id() + 1).empty());
  const auto stats = one.stats();
  BOOST_REQUIRE(!stats.dead_letters.empty());
  BOOST_TEST(stats.dead_letters.front().message_class == "control");
  BOOST_TEST(stats.dead_letters.front().reason == "full");
  BOOST_TEST(stats.dead_letters.front().count == 0U);
}

BOOST_AUTO_TEST_CASE(a_sequence_that_outgrows_its_first_frequencies_goes_on_as_one_of_its_length) {
  asio::io_context io{1};
  engine_options o = tiny_model();
  o.model_path = TROUPE_TEST_DATA "/arch/phi3_longrope/model.gguf"; // LongRoPE beyond 32 positions
  o.prefix_cache = false;
  const auto generate = [&](const std::vector<std::int32_t>& prompt, std::uint32_t most) {
    engine one(io.get_executor(), o);
    one.async_start([](result<void> r) { r.value(); });
    io.run();
    io.restart();
    request what;
    what.prompt = prompt;
    what.sampling.temperature = 0;
    what.ignore_eos = true;
    what.max_tokens = most;
    std::vector<std::int32_t> ids;
    one.async_generate(std::move(what), [&](result<completion> r) { ids = r.value().token_ids; });
    io.run();
    io.restart();
    return ids;
  };
  const std::vector<std::int32_t> prompt{5, 6, 7};
  const auto whole = generate(prompt, 60);
  BOOST_REQUIRE(whole.size() == 60U);
  // What it might still draw changes nothing.
  for (const std::uint32_t most : {29U, 30U, 31U})
    BOOST_TEST(
        generate(prompt, most) == std::vector(whole.begin(), whole.begin() + most),
        boost::test_tools::per_element());
  // Every token is the one that follows a prompt of that length, on both sides of the border.
  for (const std::uint32_t drawn : {1U, 28U, 29U, 30U, 31U, 50U}) {
    auto longer = prompt;
    longer.insert(longer.end(), whole.begin(), whole.begin() + drawn);
    BOOST_TEST(generate(longer, 1).at(0) == whole[drawn]);
  }
  o.preempt_every = 3;
  BOOST_TEST(generate(prompt, 60) == whole, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
