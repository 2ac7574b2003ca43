// SPDX-License-Identifier: Apache-2.0
#include "engine/stream_state.hpp"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <boost/test/unit_test.hpp>

using namespace troupe;
namespace asio = boost::asio;

namespace {

struct recording_owner final : detail::stream_owner {
  void event_read(std::uint64_t, std::uint32_t) override { ++read; }
  void cancel_stream(std::uint64_t) override { ++cancels; }
  std::uint32_t read = 0, cancels = 0;
};

struct fixture {
  asio::io_context io;
  std::shared_ptr<recording_owner> owner = std::make_shared<recording_owner>();
  std::shared_ptr<detail::stream_state> state = std::make_shared<detail::stream_state>(
      io.get_executor(), 7, std::weak_ptr<detail::stream_owner>(owner));
  std::vector<std::pair<boost::system::error_code, stream_event>> got;

  auto record() {
    return [this](boost::system::error_code ec, stream_event e) { got.emplace_back(ec, std::move(e)); };
  }
  void run() {
    io.restart();
    io.poll(); // not run(): a waiting read is outstanding work
  }
};

} // namespace

BOOST_FIXTURE_TEST_SUITE(stream_state, fixture)

BOOST_AUTO_TEST_CASE(a_waiting_reader_gets_the_event_but_never_inside_the_push) {
  state->read(record());
  state->push(accepted_event{{1, 2}, "m"});
  BOOST_TEST(got.empty());
  run();
  BOOST_REQUIRE(got.size() == 1U);
  BOOST_TEST(std::get<accepted_event>(got[0].second).prompt_token_ids.size() == 2U);
}

BOOST_AUTO_TEST_CASE(only_token_events_give_credit_back) {
  state->read(record());
  state->push(accepted_event{});
  state->push(token_event{0, 0, "a", {1}, {}, {}});
  BOOST_TEST(owner->read == 0U);
  state->read(record());
  BOOST_TEST(owner->read == 1U);
  state->push(done_event{});
  state->read(record());
  run();
  BOOST_TEST(owner->read == 1U);
}

BOOST_AUTO_TEST_CASE(events_wait_in_order_and_after_the_terminal_one_comes_end_of_file) {
  state->push(token_event{0, 0, "a", {1}, {}, {}});
  state->push(done_event{});
  state->push(token_event{1, 0, "late", {2}, {}, {}});
  for (int i = 0; i < 3; ++i) {
    state->read(record());
    run();
  }
  BOOST_REQUIRE(got.size() == 3U);
  BOOST_TEST(std::get<token_event>(got[0].second).text == "a");
  BOOST_TEST(detail::is_terminal(got[1].second));
  BOOST_TEST((got[2].first == asio::error::eof));
}

BOOST_AUTO_TEST_CASE(a_failure_drops_unread_tokens_and_needs_no_read) {
  state->watch(record());
  state->push(accepted_event{});
  state->read(record());
  run();
  state->push(token_event{0, 0, "a", {1}, {}, {}});
  state->push(failed_event{{errc::deadline_exceeded, "late", {}, 0}});
  run();
  BOOST_REQUIRE(got.size() == 2U);
  BOOST_TEST(std::holds_alternative<accepted_event>(got[0].second));
  BOOST_TEST((std::get<failed_event>(got[1].second).why.code == errc::deadline_exceeded));
  state->read(record());
  run();
  BOOST_TEST((got[2].first == asio::error::eof));
}

BOOST_AUTO_TEST_CASE(a_watch_leaves_every_other_end_to_the_reader) {
  state->watch(record());
  state->push(token_event{0, 0, "a", {1}, {}, {}});
  state->push(done_event{});
  run();
  BOOST_REQUIRE(got.size() == 1U);
  BOOST_TEST((got[0].first == asio::error::eof));
  for (int i = 0; i < 2; ++i) state->read(record());
  run();
  BOOST_TEST(std::holds_alternative<token_event>(got[1].second));
  BOOST_TEST(std::holds_alternative<done_event>(got[2].second));
}

BOOST_AUTO_TEST_CASE(a_second_read_is_refused_and_the_first_still_completes) {
  state->read(record());
  state->read(record());
  run();
  BOOST_REQUIRE(got.size() == 1U);
  BOOST_TEST((got[0].first == asio::error::already_started));
  state->push(done_event{});
  run();
  BOOST_TEST(got.size() == 2U);
}

BOOST_AUTO_TEST_CASE(a_cancelled_read_ends_alone_and_loses_no_event) {
  asio::cancellation_signal signal;
  state->start_read(asio::bind_cancellation_slot(signal.slot(), record()));
  signal.emit(asio::cancellation_type::total);
  run();
  state->push(token_event{0, 0, "kept", {1}, {}, {}});
  run();
  BOOST_REQUIRE(got.size() == 1U);
  BOOST_TEST((got[0].first == asio::error::operation_aborted));
  state->read(record());
  run();
  BOOST_TEST(std::get<token_event>(got[1].second).text == "kept");
}

BOOST_AUTO_TEST_CASE(the_cancellation_of_a_finished_read_leaves_the_next_one_alone) {
  asio::cancellation_signal signal;
  state->start_read(asio::bind_cancellation_slot(signal.slot(), record()));
  state->push(token_event{0, 0, "a", {1}, {}, {}});
  run();
  state->start_read(record());
  run();
  signal.emit(asio::cancellation_type::total);
  run();
  BOOST_TEST(got.size() == 1U);
  state->push(token_event{1, 0, "b", {2}, {}, {}});
  run();
  BOOST_REQUIRE(got.size() == 2U);
  BOOST_TEST(!got[1].first);
}

BOOST_AUTO_TEST_CASE(a_cancelled_wait_for_a_failure_ends_alone) {
  asio::cancellation_signal signal;
  state->start_watch(asio::bind_cancellation_slot(signal.slot(), record()));
  signal.emit(asio::cancellation_type::total); // before the executor has run
  run();
  BOOST_REQUIRE(got.size() == 1U);
  BOOST_TEST((got[0].first == asio::error::operation_aborted));
  state->start_watch(record());
  state->push(failed_event{{errc::deadline_exceeded, "late", {}, 0}});
  run();
  BOOST_REQUIRE(got.size() == 2U);
  BOOST_TEST(!got[1].first);
  signal.emit(asio::cancellation_type::total);
  run();
  BOOST_TEST(got.size() == 2U);
}

BOOST_AUTO_TEST_CASE(the_cancellation_of_a_wait_leaves_a_read_alone) {
  asio::cancellation_signal signal;
  state->start_watch(asio::bind_cancellation_slot(signal.slot(), record()));
  state->start_read(record());
  run();
  signal.emit(asio::cancellation_type::terminal);
  run();
  BOOST_REQUIRE(got.size() == 1U);
  state->push(token_event{0, 0, "a", {1}, {}, {}});
  run();
  BOOST_REQUIRE(got.size() == 2U);
  BOOST_TEST(std::get<token_event>(got[1].second).text == "a");
}

BOOST_AUTO_TEST_CASE(a_read_is_cancelled_even_before_it_has_reached_the_executor) {
  asio::cancellation_signal signal;
  state->start_read(asio::bind_cancellation_slot(signal.slot(), record()));
  signal.emit(asio::cancellation_type::partial);
  run();
  BOOST_REQUIRE(got.size() == 1U);
  BOOST_TEST((got[0].first == asio::error::operation_aborted));
}

BOOST_AUTO_TEST_CASE(the_handler_runs_on_its_own_executor) {
  asio::io_context other;
  state->read(asio::bind_executor(other.get_executor(), record()));
  state->push(done_event{});
  run();
  BOOST_TEST(got.empty());
  other.run();
  BOOST_TEST(got.size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_waiting_read_keeps_the_executor_running) {
  state->read(record());
  io.restart();
  BOOST_TEST(io.poll() == 0U);
  BOOST_TEST(!io.stopped());
  state->push(done_event{});
  run();
  BOOST_TEST(got.size() == 1U);
}

BOOST_AUTO_TEST_SUITE_END()
