// SPDX-License-Identifier: Apache-2.0
// The conversation of objects over both carriers, and what each carrier adds.
#include "fake_door.hpp"
#include "server/line_protocol.hpp"
#include "server/websocket_protocol.hpp"
#include "server/wire_objects.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::server;
using namespace std::chrono_literals;

namespace {

std::string masked(std::uint8_t opcode, std::string_view payload) {
  std::string out{static_cast<char>(0x80 | opcode)};
  if (payload.size() < 126) {
    out.push_back(static_cast<char>(0x80 | payload.size()));
  } else {
    out.push_back(static_cast<char>(0x80 | 126));
    out.push_back(static_cast<char>(payload.size() >> 8));
    out.push_back(static_cast<char>(payload.size()));
  }
  return out.append(4, '\0').append(payload);
}

// A door that speaks objects, whatever carries them.
struct object_door : fake_door {
  object_door(bool websocket, const door_limits& limits = {}) :
      fake_door(
          websocket ? std::unique_ptr<door_protocol>(std::make_unique<websocket_protocol>(limits.websocket))
                    : std::make_unique<line_protocol>(limits.line_bytes),
          limits),
      websocket_(websocket) {}

  void send(std::string_view json) { bytes(websocket_ ? masked(1, json) : std::string(json).append("\n")); }
  void submit(std::string_view id, std::string_view extra = {}) {
    send(
        R"({"type":"submit","id":")" + std::string(id) + R"(","api":"completions","body":{"prompt":"hi"})" +
        std::string(extra) + "}");
  }
  // The objects since the last call; other WebSocket frames are left out.
  std::vector<server_object> objects() {
    std::vector<server_object> out;
    const std::string all = output();
    std::string_view rest = all;
    while (!rest.empty()) {
      std::string_view payload;
      if (websocket_) {
        const auto opcode = static_cast<unsigned char>(rest[0]) & 15U;
        std::size_t size = static_cast<unsigned char>(rest[1]), head = 2;
        if (size == 126) {
          size = static_cast<std::size_t>(static_cast<unsigned char>(rest[2])) << 8 |
                 static_cast<unsigned char>(rest[3]);
          head = 4;
        }
        payload = rest.substr(head, size);
        rest.remove_prefix(head + size);
        if (opcode == 8)
          close_code = static_cast<unsigned char>(payload[0]) * 256 + static_cast<unsigned char>(payload[1]);
        if (opcode == 9) ++pings;
        if (opcode != 1) continue;
      } else {
        payload = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(payload.size() + 1);
      }
      out.push_back(parse_server_object(payload).value());
    }
    return out;
  }
  int close_code = 0;
  int pings = 0;

 private:
  bool websocket_;
};

} // namespace

BOOST_AUTO_TEST_SUITE(object_doors)

BOOST_AUTO_TEST_CASE(several_requests_share_a_connection_and_each_ends_once) {
  for (const bool websocket : {false, true}) {
    object_door door(websocket);
    for (const char* id : {"a", "b", "c"}) door.submit(id);
    BOOST_REQUIRE_EQUAL(door.submits.size(), 3U);
    for (const request_key key : {2, 1, 3}) door.accept(key);
    door.token(2, "x", 0);
    door.token(1, "y", 0);
    door.done(2);
    door.fail(3, errc::queue_timeout, 500);
    door.done(1, finish_reason::length);
    const auto all = door.objects();
    std::map<std::string, int> ends;
    for (const server_object& o : all)
      if (o.kind == server_kind::done || o.kind == server_kind::error) ++ends[o.id];
    BOOST_TEST(ends.size() == 3U);
    for (const auto& [id, n] : ends) BOOST_TEST(n == 1);
    BOOST_TEST(all[0].id == "b");
    BOOST_TEST(all[3].text == "x");
    BOOST_TEST(door.core.live_requests() == 0U);
    // An id is free again after its end.
    door.submit("a");
    BOOST_TEST(door.submits.size() == 4U);
  }
}

BOOST_AUTO_TEST_CASE(row_39_an_id_in_use_is_refused_and_its_owner_goes_on) {
  object_door door(false);
  door.submit("a");
  door.submit("a");
  door.submit("a", R"(,"priority":77)");
  auto all = door.objects();
  BOOST_REQUIRE_EQUAL(all.size(), 2U);
  for (const server_object& o : all) {
    BOOST_TEST((o.kind == server_kind::error));
    BOOST_TEST(o.id.empty());
  }
  BOOST_TEST(all[0].code == "duplicate_id");
  BOOST_TEST(door.submits.size() == 1U);
  door.done(1);
  BOOST_TEST(door.objects().at(0).id == "a");
}

BOOST_AUTO_TEST_CASE(a_cancel_marks_the_choices_whose_tokens_it_withheld) {
  object_door door(false);
  door.submit("a");
  door.accept(1);
  door.token(1, "x", 0);
  door.send(R"({"type":"cancel","id":"a"})");
  token_event echo{1, 2, "p", {1, 2, 3}, {}, {}};
  echo.echo = true;
  door.event(1, echo);
  door.event(1, token_event{2, 2, "t", {4}, {}, {}});
  door.event(
      1, done_event{
             3,
             finish_reason::stop,
             {2, 5, 0},
             "m",
             "fp",
             {finish_reason::stop, finish_reason::length, finish_reason::length}});
  const std::string out = door.output();
  const std::size_t last = out.rfind('\n', out.size() - 2) + 1;
  const server_object end = parse_server_object(out.substr(last, out.size() - last - 1)).value();
  BOOST_TEST((end.kind == server_kind::done));
  BOOST_TEST(end.finish_reason == "stop"); // of choice 0
  BOOST_TEST(end.seq == 1U);
  BOOST_TEST(end.usage.completion_tokens == 4U); // the prompt's tokens were not drawn
  BOOST_TEST(out.find(R"({"index":2,"finish_reason":"cancelled"})") != std::string::npos);
  BOOST_TEST(out.find(R"({"index":1,"finish_reason":"length"})") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(too_many_requests_on_one_connection_are_refused_by_id) {
  door_limits limits;
  limits.live_requests = 2;
  object_door door(true, limits);
  for (const char* id : {"a", "b", "c"}) door.submit(id);
  const auto all = door.objects();
  BOOST_REQUIRE_EQUAL(all.size(), 1U);
  BOOST_TEST(all[0].id == "c");
  BOOST_TEST(all[0].status == 429);
}

BOOST_AUTO_TEST_CASE(faulty_objects_are_answered_and_the_connection_goes_on) {
  for (const bool websocket : {false, true}) {
    object_door door(websocket);
    door.send("{nonsense");
    door.send(R"({"type":"submit","id":"a","api":"completions","body":{"prompt":""}})");
    door.send(R"({"type":"ping","id":"p"})");
    door.send(R"({"type":"hello"})");
    const auto all = door.objects();
    BOOST_REQUIRE_EQUAL(all.size(), 4U);
    BOOST_TEST(all[0].id.empty());
    BOOST_TEST(all[0].status == 400);
    BOOST_TEST(all[1].id == "a");
    BOOST_TEST((all[2].kind == server_kind::pong));
    BOOST_TEST(all[3].model == "m");
    BOOST_TEST(!door.close);
    BOOST_TEST(door.submits.empty());
  }
}

BOOST_AUTO_TEST_CASE(row_91_a_cancel_ends_the_request_once_whenever_it_comes) {
  object_door door(true);
  door.send(cancel_object("unknown"));
  door.submit("a");
  door.accept(1);
  door.objects();
  door.send(cancel_object("a"));
  door.send(cancel_object("a"));
  BOOST_TEST(door.cancels == std::vector<request_key>{1}, boost::test_tools::per_element());
  door.token(1, "late");
  BOOST_TEST(door.reading(1));
  door.done(1, finish_reason::cancelled);
  door.send(cancel_object("a"));
  const auto all = door.objects();
  BOOST_REQUIRE_EQUAL(all.size(), 1U);
  BOOST_TEST(all[0].finish_reason == "cancelled");
  // The end counts what the client was given: of its 9 events and 1 token one came too late.
  BOOST_TEST(all[0].seq == 8U);
  BOOST_TEST(all[0].usage.completion_tokens == 0U);
}

BOOST_AUTO_TEST_CASE(credit_bounds_the_tokens_but_never_the_end) {
  object_door door(false);
  door.submit("a", R"(,"credit":2)");
  BOOST_TEST(door.submits[0].what.credit == 2U);
  door.accept(1);
  for (const char* t : {"1", "2", "3"}) door.token(1, t);
  auto all = door.objects();
  BOOST_REQUIRE_EQUAL(all.size(), 4U);
  BOOST_TEST((all[3].kind == server_kind::notice));
  BOOST_TEST(!door.reading(1));
  door.send(credit_object("a", 1));
  BOOST_TEST(door.objects().at(0).text == "3");
  BOOST_TEST(door.reading(1));
  door.done(1);
  BOOST_TEST((door.objects().at(0).kind == server_kind::done));
  // A cancel goes through although a token is held back.
  door.submit("b", R"(,"credit":1)");
  door.accept(2);
  door.token(2, "1");
  door.token(2, "2");
  door.objects();
  door.send(cancel_object("b"));
  BOOST_TEST(door.reading(2));
  door.done(2, finish_reason::cancelled);
  BOOST_TEST((door.objects().at(0).kind == server_kind::done));
}

BOOST_AUTO_TEST_CASE(a_failure_overtakes_a_token_that_waits_for_credit) {
  object_door door(false);
  door.submit("a", R"(,"credit":1)");
  door.accept(1);
  door.token(1, "1");
  door.token(1, "2");
  door.objects();
  BOOST_TEST(!door.reading(1));
  door.fail(1, errc::deadline_exceeded);
  const auto all = door.objects();
  BOOST_REQUIRE_EQUAL(all.size(), 1U);
  BOOST_TEST(all[0].code == "deadline_exceeded");
  door.submit("a");
  BOOST_TEST(door.submits.size() == 2U);
}

BOOST_AUTO_TEST_CASE(a_client_that_grants_nothing_loses_its_request_and_the_drain_goes_on) {
  door_limits limits;
  limits.slow_consumer = 5s;
  for (const bool websocket : {false, true}) {
    object_door door(websocket, limits);
    for (const char* id : {"a", "b"}) door.submit(id, R"(,"credit":1)");
    for (const request_key key : {1, 2}) {
      door.accept(key);
      door.token(key, "1");
      door.token(key, "2");
      door.wait(3s);
    }
    BOOST_TEST(door.drops == std::vector<request_key>{1}, boost::test_tools::per_element());
    door.drain();
    BOOST_TEST(!door.close);
    door.wait(3s);
    BOOST_TEST(door.drops == (std::vector<request_key>{1, 2}), boost::test_tools::per_element());
    const auto all = door.objects();
    BOOST_TEST(all.back().code == "slow_consumer");
    BOOST_TEST(door.close);
  }
}

BOOST_AUTO_TEST_CASE(credit_above_the_operators_bound_does_not_raise_it) {
  door_limits limits;
  limits.stream_credit = 7;
  object_door door(false, limits);
  door.submit("a", R"(,"credit":1000000)");
  door.submit("b", R"(,"credit":3)");
  BOOST_TEST(door.submits[0].what.credit == 7U);
  BOOST_TEST(door.submits[1].what.credit == 3U);
  door.accept(1);
  for (int i = 0; i < 20; ++i) door.token(1, "t");
  BOOST_TEST(door.reading(1));
}

BOOST_AUTO_TEST_CASE(row_26_a_half_closed_line_connection_ends_with_its_last_request) {
  object_door door(false);
  for (const char* id : {"a", "b"}) door.submit(id);
  door.bytes(R"({"type":"pi)");
  door.accept(1);
  door.objects();
  door.input_ended();
  BOOST_TEST((door.objects().at(0).kind == server_kind::goaway));
  BOOST_TEST(door.drops.empty());
  door.wait(1s);
  const auto asked = door.objects();
  BOOST_REQUIRE_EQUAL(asked.size(), 1U);
  BOOST_TEST((asked[0].kind == server_kind::goaway));
  door.done(1);
  BOOST_TEST(!door.close);
  door.fail(2, errc::queue_timeout);
  BOOST_TEST(door.objects().size() == 2U);
  BOOST_TEST(door.close);
  object_door websocket(true);
  websocket.submit("a");
  websocket.input_ended();
  BOOST_TEST(websocket.close);
}

BOOST_AUTO_TEST_CASE(row_41_credit_that_makes_no_sense_is_refused) {
  object_door door(false);
  door.submit("a", R"(,"credit":1048576)");
  door.send(credit_object("a", 1));
  const auto all = door.objects();
  BOOST_REQUIRE_EQUAL(all.size(), 1U);
  BOOST_TEST(all[0].status == 400);
  BOOST_TEST(all[0].id.empty());
  door.send(credit_object("unknown", 1));
  BOOST_TEST(door.objects().empty());
}

BOOST_AUTO_TEST_CASE(rows_35_40_a_flood_of_control_messages_ends_the_connection) {
  for (const bool websocket : {false, true}) {
    object_door door(websocket);
    int sent = 0;
    while (!door.close && sent < 10000) door.send(ping_object("")), ++sent;
    BOOST_TEST(sent == 201);
    object_door calm(websocket);
    for (int i = 0; i < 2000; ++i) {
      calm.send(ping_object(""));
      calm.wait(20ms);
    }
    BOOST_TEST(!calm.close);
  }
  // A refused submit is a control message too.
  door_limits one;
  one.live_requests = 1;
  for (const char* id : {"a", "b"}) {
    object_door refused(false, one);
    refused.submit("a");
    int sent = 0;
    while (!refused.close && sent < 10000) refused.submit(id), ++sent;
    BOOST_TEST(sent == 201);
  }
  object_door frames(true);
  for (int i = 0; i < 300 && !frames.close; ++i) frames.bytes(masked(9, "p"));
  frames.objects();
  BOOST_TEST(frames.close_code == 1008);
}

BOOST_AUTO_TEST_CASE(a_lost_connection_drops_every_request) {
  for (const bool websocket : {false, true}) {
    object_door door(websocket);
    for (const char* id : {"a", "b"}) door.submit(id);
    door.accept(1);
    door.peer_closed();
    BOOST_TEST(door.drops == (std::vector<request_key>{1, 2}), boost::test_tools::per_element());
    BOOST_TEST(door.close);
  }
}

BOOST_AUTO_TEST_CASE(a_drain_says_goaway_finishes_and_closes) {
  for (const bool websocket : {false, true}) {
    object_door door(websocket);
    door.submit("a");
    door.accept(1);
    door.objects();
    door.drain();
    BOOST_TEST((door.objects().at(0).kind == server_kind::goaway));
    BOOST_TEST(!door.close);
    door.done(1);
    BOOST_TEST((door.objects().at(0).kind == server_kind::done));
    BOOST_TEST(door.close);
    if (websocket) BOOST_TEST(door.close_code == 1001);
  }
}

BOOST_AUTO_TEST_CASE(loading_is_a_503_for_the_id) {
  object_door door(false);
  door.services.state = door_health::loading;
  door.submit("a");
  const auto all = door.objects();
  BOOST_REQUIRE_EQUAL(all.size(), 1U);
  BOOST_TEST(all[0].id == "a");
  BOOST_TEST(all[0].code == "model_loading");
  BOOST_TEST(all[0].status == 503);
}

BOOST_AUTO_TEST_CASE(one_slow_connection_stops_reading_for_all_its_requests) {
  door_limits limits;
  limits.output_soft_bytes = 500;
  object_door door(false, limits);
  door.submit("a");
  door.submit("b");
  door.stuck = true;
  door.accept(1);
  door.accept(2);
  for (int i = 0; i < 20; ++i) {
    if (door.reading(1)) door.token(1, "0123456789");
    if (door.reading(2)) door.token(2, "0123456789");
  }
  BOOST_TEST(!door.reading(1));
  BOOST_TEST(!door.reading(2));
  BOOST_TEST(door.core.unsent_bytes() < 1000U);
  door.written(door.core.unsent_bytes());
  BOOST_TEST(door.reading(1));
  BOOST_TEST(door.reading(2));
}

BOOST_AUTO_TEST_CASE(a_peer_that_only_writes_is_cut_at_the_hard_bound) {
  door_limits limits;
  limits.output_hard_bytes = 2000;
  limits.control_per_second = 1000000;
  object_door door(false, limits);
  door.stuck = true;
  for (int i = 0; i < 1000 && !door.abort; ++i) door.send(ping_object("0123456789"));
  BOOST_TEST(door.abort);
  BOOST_TEST(door.counters.slow_consumers == 1U);
}

BOOST_AUTO_TEST_CASE(connections_that_hold_too_much_together_are_ended_one_by_one) {
  door_limits limits;
  limits.all_buffered_bytes = 10000;
  for (const bool websocket : {false, true}) {
    object_door door(websocket, limits);
    door.counters.buffered_bytes = 9000; // by others
    const std::string half(3000, ' ');
    door.bytes(websocket ? masked(1, "{" + half).substr(0, 2000) : "{" + half);
    const auto all = door.objects();
    BOOST_TEST(door.close);
    if (websocket)
      BOOST_TEST(door.close_code == 1013);
    else
      BOOST_TEST(all.at(0).status == 503);
    BOOST_TEST(door.counters.buffered_bytes == 9000U);
  }
}

BOOST_AUTO_TEST_CASE(the_websocket_door_keeps_the_rules_of_its_carrier) {
  object_door binary(true);
  binary.bytes(masked(2, "x"));
  binary.objects();
  BOOST_TEST(binary.close_code == 1003);
  object_door broken(true);
  broken.submit("a");
  broken.bytes("\xff");
  broken.objects();
  BOOST_TEST(broken.close_code == 1002);
  BOOST_TEST(broken.drops.size() == 1U);
  object_door leaving(true);
  leaving.bytes(masked(8, "\x03\xe8"));
  leaving.objects();
  BOOST_TEST(leaving.close_code == 1000);
  BOOST_TEST(leaving.close);
  object_door echo(true);
  echo.bytes(masked(9, "abc"));
  BOOST_TEST(
      echo.output() == "\x8a\x03"
                       "abc");
}

BOOST_AUTO_TEST_CASE(row_35_a_peer_that_answers_no_ping_is_closed) {
  object_door silent(true);
  silent.submit("a");
  silent.wait(44s);
  silent.objects();
  BOOST_TEST(silent.pings == 2);
  BOOST_TEST(!silent.close);
  silent.wait(2s);
  BOOST_TEST(silent.close);
  BOOST_TEST(silent.drops.size() == 1U);
  object_door alive(true);
  for (int i = 0; i < 20; ++i) {
    alive.wait(16s);
    alive.bytes(masked(10, ""));
  }
  BOOST_TEST(!alive.close);
}

BOOST_AUTO_TEST_CASE(a_ping_has_its_interval_also_when_that_was_made_shorter_in_the_silence) {
  object_door quiet(true);
  quiet.wait(14s);
  quiet.limits().ping_interval = 5s;
  quiet.wait(1s); // three of the new intervals have gone by
  BOOST_TEST(!quiet.close);
  quiet.objects();
  BOOST_TEST(quiet.pings == 1);
  quiet.wait(4s);
  quiet.bytes(masked(10, ""));
  quiet.wait(9s);
  BOOST_TEST(!quiet.close);
  quiet.wait(6s);
  BOOST_TEST(quiet.close);
}

BOOST_AUTO_TEST_CASE(the_line_door_cuts_the_idle_and_the_unfinished) {
  object_door idle(false);
  idle.wait(301s);
  BOOST_TEST((idle.objects().at(0).kind == server_kind::goaway));
  BOOST_TEST(idle.close);
  object_door busy(false);
  busy.submit("a");
  busy.wait(1000s);
  BOOST_TEST(!busy.close);
  busy.done(1);
  busy.wait(299s);
  BOOST_TEST(!busy.close);
  busy.wait(2s);
  BOOST_TEST(busy.close);
  object_door slow(false);
  slow.bytes("{\"type\"");
  for (int i = 0; i < 40 && !slow.close; ++i) {
    slow.bytes(" ");
    slow.wait(1s);
  }
  BOOST_TEST(slow.close);
  object_door http(false);
  http.bytes("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  const auto answer = http.objects();
  BOOST_REQUIRE_EQUAL(answer.size(), 1U);
  BOOST_TEST(answer[0].status == 400);
  BOOST_TEST(http.close);
}

BOOST_AUTO_TEST_SUITE_END()
