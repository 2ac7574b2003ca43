// SPDX-License-Identifier: Apache-2.0
// The HTTP door as a whole: routes, order of answers, streams, refusals, timeouts, slow readers.
#include "fake_door.hpp"
#include "server/http_protocol.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::server;
using namespace std::chrono_literals;

namespace {

struct http_door : fake_door {
  explicit http_door(const door_limits& limits = {}, door_policy policy = {}) :
      fake_door(std::make_unique<http_protocol>(limits.http), limits, std::move(policy)) {}
};

std::string get(std::string_view path, std::string_view fields = {}) {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(fields) + "\r\n";
}

std::string post(std::string_view path, std::string_view body, std::string_view fields = {}) {
  return "POST " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(fields) +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
}

const std::string whole = post("/v1/completions", R"({"prompt":"hi"})");
const std::string streamed = post("/v1/completions", R"({"prompt":"hi","stream":true})");

int status(std::string_view answer) {
  return answer.starts_with("HTTP/1.1 ") ? std::stoi(std::string(answer.substr(9, 3))) : 0;
}

std::size_t count(std::string_view in, std::string_view what) {
  std::size_t n = 0;
  for (std::size_t at = in.find(what); at != std::string_view::npos; at = in.find(what, at + 1)) ++n;
  return n;
}

bool has(std::string_view in, std::string_view what) {
  return in.find(what) != std::string_view::npos;
}

} // namespace

BOOST_AUTO_TEST_SUITE(http_door_suite)

BOOST_AUTO_TEST_CASE(serves_the_small_routes) {
  http_door door;
  for (const char* path : {"/health", "/livez", "/readyz", "/metrics", "/v1/models", "/v1/models/m"}) {
    door.bytes(get(path));
    const std::string out = door.output();
    BOOST_TEST(status(out) == 200, path);
    BOOST_TEST(!out.ends_with("\r\n\r\n"));
  }
  BOOST_TEST(!door.close);
  door.bytes(get("/v1/models/other"));
  BOOST_TEST(status(door.output()) == 404);
  door.bytes("HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  BOOST_TEST(door.output().ends_with("\r\n\r\n"));
}

BOOST_AUTO_TEST_CASE(health_follows_the_engine) {
  http_door door;
  door.services.state = door_health::loading;
  for (const char* path : {"/health", "/readyz", "/v1/models"}) {
    door.bytes(get(path));
    BOOST_TEST(status(door.output()) == 503);
  }
  door.bytes(get("/livez"));
  BOOST_TEST(status(door.output()) == 200);
  door.bytes(whole);
  const std::string out = door.output();
  BOOST_TEST(status(out) == 503);
  BOOST_TEST(has(out, "\"model_loading\""));
  BOOST_TEST(door.submits.empty());
  door.services.state = door_health::failed;
  for (const char* path : {"/health", "/readyz"}) {
    door.bytes(get(path));
    const std::string failed = door.output();
    BOOST_TEST(status(failed) == 503);
    BOOST_TEST(has(failed, "Retry-After: 1\r\n"));
    BOOST_TEST(has(failed, "X-Request-Rejected-Reason: executor_failed\r\n"));
  }
}

BOOST_AUTO_TEST_CASE(the_name_of_a_model_may_be_percent_encoded) {
  http_door door;
  door.services.the_rules.model_name = "a/b c%";
  for (const char* path : {"/v1/models/a/b%20c%25", "/v1/models/a%2Fb%20c%25"}) {
    door.bytes(get(path));
    BOOST_TEST(status(door.output()) == 200, path);
  }
}

BOOST_AUTO_TEST_CASE(rows_15_and_18_everything_else_is_refused) {
  http_door door;
  for (const char* path :
       {"/", "/admin", "/v1/../admin", "/%2e%2e/health", "//health", "/health/", "/Health", "/v1/models/",
        "/v1/models/a/b", "/health;x", "/v1/completions%00"}) {
    door.bytes(get(path));
    BOOST_TEST(status(door.output()) == 404, path);
  }
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS"}) {
    door.bytes(std::string(method) + " /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const std::string out = door.output();
    BOOST_TEST(status(out) == 405, method);
    BOOST_TEST(has(out, "Allow: GET, HEAD\r\n"));
  }
  door.bytes(get("/v1/completions"));
  BOOST_TEST(has(door.output(), "Allow: POST\r\n"));
  BOOST_TEST(!door.close);
}

BOOST_AUTO_TEST_CASE(answers_in_one_piece) {
  http_door door;
  door.bytes(whole, 1);
  BOOST_REQUIRE_EQUAL(door.submits.size(), 1U);
  BOOST_TEST(std::get<std::string>(door.submits[0].what.prompt) == "hi");
  door.accept(1);
  door.token(1, "a");
  door.token(1, "b");
  BOOST_TEST(door.output().empty());
  door.done(1);
  const std::string out = door.output();
  BOOST_TEST(status(out) == 200);
  BOOST_TEST(has(out, R"("text":"ab")"));
  BOOST_TEST(has(out, R"("finish_reason":"stop")"));
  BOOST_TEST(door.core.live_requests() == 0U);
  BOOST_TEST(!door.close);
}

BOOST_AUTO_TEST_CASE(streams_events_and_keeps_the_connection) {
  http_door door;
  door.bytes(streamed);
  door.accept(1);
  std::string out = door.output();
  BOOST_TEST(status(out) == 200);
  BOOST_TEST(has(out, "text/event-stream"));
  BOOST_TEST(has(out, "Transfer-Encoding: chunked"));
  door.token(1, "a");
  BOOST_TEST(has(door.output(), R"("text":"a")"));
  door.done(1);
  out = door.output();
  BOOST_TEST(has(out, "data: [DONE]\n\n"));
  BOOST_TEST(out.ends_with("0\r\n\r\n"));
  door.bytes(get("/health"));
  BOOST_TEST(status(door.output()) == 200);
}

BOOST_AUTO_TEST_CASE(a_stream_to_http_1_0_ends_with_the_connection) {
  http_door door;
  const std::string body = R"({"prompt":"hi","stream":true})";
  door.bytes(
      "POST /v1/completions HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body);
  door.accept(1);
  door.done(1);
  const std::string out = door.output();
  BOOST_TEST(!has(out, "chunked"));
  BOOST_TEST(out.ends_with("data: [DONE]\n\n"));
  BOOST_TEST(door.close);
}

BOOST_AUTO_TEST_CASE(a_refusal_under_load_is_a_429_with_its_reason) {
  for (const std::string& request : {whole, streamed}) {
    http_door door;
    door.bytes(request);
    door.fail(1, errc::kv_cache_full, 1200, 12);
    const std::string out = door.output();
    BOOST_TEST(status(out) == 429);
    BOOST_TEST(has(out, "Retry-After: 2\r\n"));
    BOOST_TEST(has(out, "X-Queue-Length: 12\r\n"));
    BOOST_TEST(has(out, R"("code":"kv_cache_full")"));
    BOOST_TEST(has(out, R"("retry_after_ms":1200)"));
    BOOST_TEST(!door.close);
  }
}

BOOST_AUTO_TEST_CASE(a_bad_field_is_a_400_that_names_it_and_nothing_is_submitted) {
  http_door door;
  door.bytes(post("/v1/completions", R"({"prompt":"hi","n":17})"));
  const std::string out = door.output();
  BOOST_TEST(status(out) == 400);
  BOOST_TEST(has(out, R"("param":"n")"));
  BOOST_TEST(door.submits.empty());
  BOOST_TEST(!door.close);
}

BOOST_AUTO_TEST_CASE(a_stream_that_breaks_says_so_and_never_done) {
  http_door door;
  door.bytes(streamed);
  door.accept(1);
  door.token(1, "a");
  door.output();
  door.fail(1, errc::executor_failed);
  const std::string out = door.output();
  BOOST_TEST(has(out, R"(data: {"error":)"));
  BOOST_TEST(!has(out, "[DONE]"));
  BOOST_TEST(out.ends_with("0\r\n\r\n"));
}

BOOST_AUTO_TEST_CASE(row_16_pipelined_requests_are_answered_in_order_up_to_the_cap) {
  http_door door;
  std::string all = streamed;
  for (int i = 0; i < 19; ++i) all += get("/health");
  door.bytes(all);
  BOOST_TEST(door.submits.size() == 1U);
  door.accept(1);
  BOOST_TEST(!has(door.output(), "\"ok\""));
  door.done(1);
  const std::string out = door.output();
  BOOST_TEST(out.find("[DONE]") < out.find("\"ok\""));
  BOOST_TEST(count(out, "\"ok\"") == 8U);
  BOOST_TEST(door.close);
}

BOOST_AUTO_TEST_CASE(fast_requests_do_not_count_against_the_cap) {
  http_door door;
  std::string all;
  for (int i = 0; i < 20; ++i) all += get("/health");
  door.bytes(all);
  BOOST_TEST(count(door.output(), "\"ok\"") == 20U);
  BOOST_TEST(!door.close);
}

BOOST_AUTO_TEST_CASE(a_broken_request_behind_a_running_one_waits_its_turn) {
  http_door door;
  door.bytes(whole + "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" + get("/health"));
  BOOST_TEST(door.output().empty());
  door.accept(1);
  door.done(1);
  const std::string out = door.output();
  BOOST_TEST(status(out) == 200);
  BOOST_TEST(count(out, "HTTP/1.1 400") == 1U);
  BOOST_TEST(!has(out, "\"ok\""));
  BOOST_TEST(door.close);
}

BOOST_AUTO_TEST_CASE(row_13_invites_a_body_only_when_it_is_its_turn) {
  http_door door;
  const std::string head =
      "POST /v1/completions HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: ";
  door.bytes(head + "15\r\n\r\n");
  BOOST_TEST(door.output() == "HTTP/1.1 100 Continue\r\n\r\n");
  door.bytes(R"({"prompt":"hi"})");
  BOOST_TEST(door.submits.size() == 1U);
  door.bytes(head + "15\r\n\r\n");
  BOOST_TEST(door.output().empty());
  door.accept(1);
  door.done(1);
  BOOST_TEST(door.output().ends_with("HTTP/1.1 100 Continue\r\n\r\n"));
  http_door over;
  over.bytes(head + "99999999\r\n\r\n");
  BOOST_TEST(status(over.output()) == 413);
  BOOST_TEST(over.close);
}

BOOST_AUTO_TEST_CASE(row_36_foreign_hosts_and_origins_are_refused) {
  door_policy policy;
  policy.allowed_hosts = {"localhost", "[::1]"};
  http_door door({}, policy);
  door.bytes(get("/health"));
  BOOST_TEST(status(door.output()) == 200);
  door.bytes("GET /health HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n");
  BOOST_TEST(status(door.output()) == 200);
  door.bytes("GET /health HTTP/1.1\r\nHost: evil.example:8080\r\n\r\n");
  BOOST_TEST(status(door.output()) == 403);
  for (const char* origin : {"http://evil.example", "null", "http://localhost:1", "https://localhost.evil"}) {
    door.bytes(get("/health", "Origin: " + std::string(origin) + "\r\n"));
    BOOST_TEST(status(door.output()) == 403, origin);
  }
  door.bytes(get("/health", "Origin: http://localhost\r\n"));
  BOOST_TEST(status(door.output()) == 200);
  BOOST_TEST(host_allowed({}, "anything"));
  BOOST_TEST(host_allowed({{"a", "*"}, {}}, "anything"));
  BOOST_TEST(origin_allowed({{}, {"*"}}, "http://x", "h"));
}

BOOST_AUTO_TEST_CASE(row_26_a_client_that_leaves_takes_its_request_along) {
  http_door door;
  door.bytes(streamed + whole);
  door.accept(1);
  door.peer_closed();
  BOOST_TEST(door.drops == std::vector<request_key>{1}, boost::test_tools::per_element());
  BOOST_TEST(door.close);
  BOOST_TEST(door.submits.size() == 1U);
  door.token(1, "late");
  BOOST_TEST(door.core.live_requests() == 0U);
}

BOOST_AUTO_TEST_CASE(row_26_a_half_closed_connection_still_gets_its_answers) {
  http_door door;
  door.bytes(whole + get("/health"));
  door.accept(1);
  door.input_ended();
  BOOST_TEST(!door.close);
  // A byte for a client that is gone to answer with a reset.
  BOOST_TEST(door.output() == "HTTP/1.1 100 Continue\r\n\r\n");
  // It may leave only now, which nothing but another byte would show.
  door.wait(1s);
  BOOST_TEST(door.output() == "HTTP/1.1 100 Continue\r\n\r\n");
  door.token(1, "hi");
  door.done(1);
  const std::string out = door.output();
  BOOST_TEST(count(out, "HTTP/1.1 200") == 2U);
  BOOST_TEST(count(out, "Connection: close") == 1U);
  BOOST_TEST(door.close);

  http_door stream;
  stream.bytes(streamed + "GET /health HT");
  stream.accept(1);
  stream.output();
  stream.input_ended();
  BOOST_TEST(has(stream.output(), ": ping\n\n"));
  stream.wait(1s);
  BOOST_TEST(has(stream.output(), ": ping\n\n"));
  stream.done(1);
  BOOST_TEST(has(stream.output(), "[DONE]"));
  BOOST_TEST(stream.close);

  http_door idle;
  idle.input_ended();
  BOOST_TEST(idle.close);
}

BOOST_AUTO_TEST_CASE(row_23_a_slow_reader_pauses_then_loses_only_its_own_request) {
  door_limits limits;
  limits.output_soft_bytes = 1000;
  http_door door(limits);
  door.bytes(streamed);
  door.stuck = true;
  door.accept(1);
  while (door.reading(1)) door.token(1, "0123456789");
  BOOST_TEST(door.core.unsent_bytes() < 1000U + 400U);
  // It reads on: the request goes on.
  door.written(door.core.unsent_bytes() - 600);
  BOOST_TEST(!door.reading(1));
  door.written(200);
  BOOST_TEST(door.reading(1));
  while (door.reading(1)) door.token(1, "0123456789");
  // It does not read: it is cut, without waiting for its buffer.
  door.wait(limits.write_timeout - 1s);
  BOOST_TEST(!door.abort);
  door.wait(2s);
  BOOST_TEST(door.abort);
  BOOST_TEST(door.drops == std::vector<request_key>{1}, boost::test_tools::per_element());
  BOOST_TEST(door.counters.slow_consumers == 1U);
}

BOOST_AUTO_TEST_CASE(a_long_answer_may_pass_the_hard_bound_and_what_follows_waits_for_room) {
  door_limits limits;
  limits.output_soft_bytes = 1000;
  limits.output_hard_bytes = 2000;
  http_door door(limits);
  door.stuck = true;
  door.bytes(whole);
  door.accept(1);
  for (int i = 0; i < 1000; ++i) door.token(1, "0123456789");
  door.done(1);
  BOOST_TEST(door.core.unsent_bytes() > 10000U);
  door.output();
  for (int i = 0; i < 5; ++i) door.bytes(get("/health"));
  BOOST_TEST(door.output().empty());
  BOOST_TEST(!door.abort);
  door.written(door.core.unsent_bytes());
  BOOST_TEST(count(door.output(), "\"ok\"") == 5U);
  // Somebody who only asks and never reads gets no further than the cap on pipelining.
  door.written(door.core.unsent_bytes());
  for (int i = 0; i < 10000; ++i) door.bytes(get("/metrics"));
  BOOST_TEST(door.core.unsent_bytes() < 3000U);
  BOOST_TEST(door.counters.buffered_bytes < 30000U);
  std::size_t answered = count(door.output(), "HTTP/1.1 200");
  while (!door.close && door.core.unsent_bytes() > 0) {
    door.written(door.core.unsent_bytes());
    answered += count(door.output(), "HTTP/1.1 200");
  }
  BOOST_TEST(door.close);
  BOOST_TEST(answered < 30U);
}

BOOST_AUTO_TEST_CASE(waiting_heads_weigh_in_the_servers_buffers) {
  door_limits limits;
  limits.pipelined_requests = 100;
  http_door door(limits);
  door.bytes(streamed);
  const std::uint64_t before = door.counters.buffered_bytes;
  for (int i = 0; i < 10; ++i) door.bytes(get("/health", "X-Long: " + std::string(4000, 'x') + "\r\n"));
  BOOST_TEST(door.counters.buffered_bytes > before + 40000U);
  limits.pipelined_bytes = 20000;
  http_door bounded(limits);
  bounded.bytes(streamed);
  for (int i = 0; i < 10; ++i) bounded.bytes(get("/health", "X-Long: " + std::string(4000, 'x') + "\r\n"));
  BOOST_TEST(bounded.counters.buffered_bytes < 30000U);
}

BOOST_AUTO_TEST_CASE(an_answer_in_one_piece_weighs_with_its_logprobs) {
  http_door door;
  door.bytes(whole);
  door.accept(1);
  const std::uint64_t before = door.counters.buffered_bytes;
  token_event event{0, 0, "a", {3}, {{3, 0, "a"}}, {std::vector<scored_token>(20)}};
  door.event(1, event);
  BOOST_TEST(door.counters.buffered_bytes >= before + 20 * sizeof(scored_token));
}

BOOST_AUTO_TEST_CASE(a_taken_request_weighs_nothing_any_more) {
  http_door door;
  door.bytes(get("/health", "X-Long: " + std::string(4000, 'x') + "\r\n"));
  BOOST_TEST(door.counters.buffered_bytes < 1000U);
}

BOOST_AUTO_TEST_CASE(bodies_that_fill_the_servers_buffers_are_refused) {
  door_limits limits;
  limits.all_buffered_bytes = 100000;
  http_door door(limits);
  door.counters.buffered_bytes = 90000;
  door.bytes(post("/v1/completions", std::string(50000, ' ')).substr(0, 40000));
  const std::string out = door.output();
  BOOST_TEST(status(out) == 503);
  BOOST_TEST(has(out, "Retry-After: 1\r\n"));
  BOOST_TEST(has(out, "X-Request-Rejected-Reason: "));
  BOOST_TEST(door.close);
}

BOOST_AUTO_TEST_CASE(rows_21_22_24_what_does_not_arrive_in_time_is_cut) {
  http_door silent;
  silent.wait(11s);
  BOOST_TEST(silent.close);
  BOOST_TEST(silent.output().empty());

  http_door slow_head;
  for (int i = 0; i < 20 && !slow_head.close; ++i) {
    slow_head.bytes("G");
    slow_head.wait(1s);
  }
  BOOST_TEST(status(slow_head.output()) == 408);
  http_door slow_fields;
  slow_fields.bytes("GET / HTTP/1.1\r\n");
  for (int i = 0; i < 20 && !slow_fields.close; ++i) {
    slow_fields.bytes("A: b\r\n");
    slow_fields.wait(1s);
  }
  BOOST_TEST(status(slow_fields.output()) == 408);

  http_door slow_body;
  slow_body.bytes(whole.substr(0, whole.size() - 1));
  slow_body.wait(31s);
  BOOST_TEST(status(slow_body.output()) == 408);
  BOOST_TEST(slow_body.close);

  http_door kept;
  kept.bytes(get("/health"));
  kept.output();
  kept.wait(74s);
  BOOST_TEST(!kept.close);
  kept.wait(2s);
  BOOST_TEST(kept.close);

  http_door busy;
  busy.bytes(whole);
  busy.accept(1);
  busy.wait(3600s);
  BOOST_TEST(!busy.close);
}

BOOST_AUTO_TEST_CASE(a_quiet_stream_is_kept_alive_by_comments) {
  http_door door;
  door.bytes(streamed);
  door.accept(1);
  door.output();
  door.wait(46s);
  BOOST_TEST(count(door.output(), ": ping\n\n") == 3U);
}

BOOST_AUTO_TEST_CASE(a_drain_finishes_what_runs_and_closes) {
  http_door idle;
  idle.drain();
  BOOST_TEST(idle.close);
  http_door busy;
  busy.bytes(whole);
  busy.accept(1);
  busy.drain();
  BOOST_TEST(!busy.close);
  busy.done(1);
  BOOST_TEST(has(busy.output(), "Connection: close\r\n"));
  BOOST_TEST(busy.close);
}

BOOST_AUTO_TEST_CASE(a_websocket_takes_over_the_connection) {
  const std::string upgrade = get(
      "/v1/stream", "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: troupe.v1\r\n");
  // A masked `{"type":"ping"}` with an all-zero mask, sent along with the handshake.
  const std::string ping = std::string("\x81\x8f\0\0\0\0", 6) + R"({"type":"ping"})";
  for (const std::size_t step : {1U, 7U, 100000U}) {
    http_door door;
    door.bytes(upgrade + ping, step);
    const std::string out = door.output();
    BOOST_TEST(status(out) == 101);
    BOOST_TEST(has(out, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    BOOST_TEST(has(out, R"({"type":"pong"})"));
  }
  http_door plain;
  plain.bytes(get("/v1/stream"));
  BOOST_TEST(status(plain.output()) == 426);
  http_door behind;
  behind.bytes(whole + upgrade + get("/health"));
  behind.accept(1);
  behind.done(1);
  BOOST_TEST(has(behind.output(), "HTTP/1.1 400"));
  BOOST_TEST(behind.close);
}

BOOST_AUTO_TEST_SUITE_END()
