// SPDX-License-Identifier: Apache-2.0
// Requests that must be accepted, and everything that must be refused, at every split of the bytes.
#include "server/http_parser.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe::server;
using namespace std::string_literals;

namespace {

struct outcome {
  std::vector<http_request> requests;
  int continues = 0;
  int failed_with = 0; // HTTP status, 0 = no failure
  std::size_t consumed = 0;
};

outcome parse(std::string_view bytes, std::size_t step, const http_limits& limits = {}) {
  http_parser parser(limits);
  outcome out;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    std::string_view piece = bytes.substr(at, step);
    while (true) {
      const auto [consumed, event] = parser.feed(piece);
      piece.remove_prefix(consumed);
      out.consumed += consumed;
      if (event == http_event::complete) out.requests.push_back(parser.take());
      if (event == http_event::wants_continue) ++out.continues;
      if (event == http_event::failed) {
        out.failed_with = parser.failure().status;
        BOOST_TEST(!parser.failure().message.empty());
        return out;
      }
      if (event == http_event::need_more) break;
    }
  }
  return out;
}

// The outcome, after checking that it is the same at several splits.
outcome parse_every_way(std::string_view bytes, const http_limits& limits = {}) {
  const outcome whole = parse(bytes, bytes.size() + 1, limits);
  for (const std::size_t step : {1, 2, 3, 7, 64}) {
    const outcome split = parse(bytes, step, limits);
    BOOST_TEST(split.failed_with == whole.failed_with);
    BOOST_TEST(split.continues == whole.continues);
    BOOST_TEST(split.consumed == whole.consumed);
    BOOST_REQUIRE_EQUAL(split.requests.size(), whole.requests.size());
    for (std::size_t i = 0; i < split.requests.size(); ++i) {
      BOOST_TEST(split.requests[i].body == whole.requests[i].body);
      BOOST_TEST(split.requests[i].path == whole.requests[i].path);
      BOOST_TEST(split.requests[i].fields.size() == whole.requests[i].fields.size());
    }
  }
  return whole;
}

std::string post(std::string_view fields, std::string_view body = {}) {
  return "POST /v1/completions HTTP/1.1\r\nHost: h\r\n" + std::string(fields) + "\r\n" + std::string(body);
}

constexpr std::string_view chunked = "Transfer-Encoding: chunked\r\n";
constexpr std::string_view smuggled = "GET /admin HTTP/1.1\r\nHost: h\r\n\r\n";

struct refusal {
  const char* row; // of the attack catalogue
  std::string bytes;
  int status;
};

} // namespace

BOOST_AUTO_TEST_SUITE(http_parser_suite)

BOOST_AUTO_TEST_CASE(reads_a_request_with_a_body) {
  const outcome out = parse_every_way("POST /v1/completions?x=1 HTTP/1.1\r\nHost: Localhost:8080\r\nX-A:  b "
                                      "\t\r\nContent-Length: 5\r\n\r\nhello");
  BOOST_REQUIRE_EQUAL(out.requests.size(), 1U);
  const http_request& r = out.requests[0];
  BOOST_TEST(r.method == "POST");
  BOOST_TEST(r.path == "/v1/completions");
  BOOST_TEST(r.query == "x=1");
  BOOST_TEST(r.host == "localhost:8080");
  BOOST_TEST(*r.field("x-a") == "b");
  BOOST_TEST(r.body == "hello");
  BOOST_TEST(r.keep_alive);
}

BOOST_AUTO_TEST_CASE(reads_pipelined_requests_in_order) {
  const outcome out = parse_every_way(
      post("Content-Length: 3\r\n", "abc") +
      post(chunked, "2\r\nde\r\n1;x=\"y\\\"z\"\r\nf\r\n0\r\nT: v\r\n\r\n") +
      "\r\nGET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  BOOST_TEST(out.failed_with == 0);
  BOOST_REQUIRE_EQUAL(out.requests.size(), 3U);
  BOOST_TEST(out.requests[0].body == "abc");
  BOOST_TEST(out.requests[1].body == "def");
  BOOST_TEST(out.requests[1].field("t") == nullptr);
  BOOST_TEST(out.requests[2].path == "/health");
  BOOST_TEST(!out.requests[2].keep_alive);
}

BOOST_AUTO_TEST_CASE(keep_alive_follows_version_and_connection) {
  BOOST_TEST(!parse_every_way("GET / HTTP/1.0\r\n\r\n").requests.at(0).keep_alive);
  BOOST_TEST(parse_every_way("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").requests.at(0).keep_alive);
  BOOST_TEST(!parse_every_way("GET / HTTP/1.1\r\nHost: h\r\nConnection: x, Close\r\n\r\n")
                  .requests.at(0)
                  .keep_alive);
}

BOOST_AUTO_TEST_CASE(accepts_an_absolute_target_of_the_same_host) {
  const outcome out = parse_every_way("GET http://H:80/a?b HTTP/1.1\r\nHost: h:80\r\n\r\n");
  BOOST_REQUIRE_EQUAL(out.requests.size(), 1U);
  BOOST_TEST(out.requests[0].path == "/a");
  BOOST_TEST(out.requests[0].query == "b");
}

// Rows 1-8, 10-12, 14, 17 of the attack catalogue. Each stream ends with a request that must never be seen.
BOOST_AUTO_TEST_CASE(refuses_ambiguous_framing_and_parses_nothing_after_it) {
  const std::string big_extension = "1;" + std::string(1 << 20, 'a');
  std::string many_fields;
  for (int i = 0; i < 10000; ++i) many_fields.append("A").append(std::to_string(i)).append(": b\r\n");
  const refusal cases[] = {
      {"1", post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400},
      {"1", post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"), 400},
      {"2", post("Transfer-Encoding: gzip\r\n"), 501},
      {"2", post("Transfer-Encoding: gzip\r\nContent-Length: 5\r\n"), 400},
      {"2", post("Transfer-Encoding: chunked, identity\r\n"), 501},
      {"2", post("Transfer-Encoding: gzip, chunked\r\n"), 501},
      {"2", post("Transfer-Encoding: xchunked\r\n"), 501},
      {"2", post("Transfer-Encoding:\r\n"), 501},
      {"2", post("Transfer-Encoding : chunked\r\n"), 400},
      {"2", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400},
      {"2", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"), 400},
      {"3", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"4", post("Content-Length: 5\r\nContent-Length: 6\r\n"), 400},
      {"4", post("Content-Length: 5\r\nContent-Length: 5\r\n"), 400},
      {"4", post("Content-Length: 5,5\r\n"), 400},
      {"4", post("Content-Length: +5\r\n"), 400},
      {"4", post("Content-Length: -5\r\n"), 400},
      {"4", post("Content-Length: 0x5\r\n"), 400},
      {"4", post("Content-Length: 5 5\r\n"), 400},
      {"4", post("Content-Length:\r\n"), 400},
      {"4", post("Content-Length: 18446744073709551616\r\n"), 400},
      {"4", post("Content-Length: 18446744073709551615\r\n"), 413},
      {"5", "GET / HTTP/1.1\nHost: h\r\n\r\n", 400},
      {"5", "GET / HTTP/1.1\r\nHost: h\n\r\n", 400},
      {"5", "GET / HTTP/1.1\r\nHost: h\r\n\n", 400},
      {"5", "GET / HTTP/1.1\r\nHost: h\r\nA: b\rc\r\n\r\n", 400},
      {"5", "GET / HTTP/1.1\rHost: h\r\n\r\n", 400},
      {"5", "GET /\0 HTTP/1.1\r\nHost: h\r\n\r\n"s, 400},
      {"5", "GET / HTTP/1.1\r\nHost: h\r\nA: \0\r\n\r\n"s, 400},
      {"5", post(chunked, "1\nx\r\n0\r\n\r\n"), 400},
      {"5", post(chunked, "1\r\nx\n0\r\n\r\n"), 400},
      {"5", post(chunked, "1\r\nx\r\n0\r\n\n"), 400},
      {"6", "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n", 400},
      {"6", "GET / HTTP/1.1\r\n Host: h\r\n\r\n", 400},
      {"6", "GET / HTTP/1.1\r\nHost : h\r\n\r\n", 400},
      {"6", "GET / HTTP/1.1\r\nHost: h\r\n: b\r\n\r\n", 400},
      {"6", "GET / HTTP/1.1\r\nHost: h\r\nA(b): c\r\n\r\n", 400},
      {"6", "GET / HTTP/1.1\r\nHost: h\r\nnocolon\r\n\r\n", 400},
      {"7", post(chunked, "1;a\nb\r\nx\r\n0\r\n\r\n"), 400},
      {"7", post(chunked, "1;a=\"b\r\nx\r\n0\r\n\r\n"), 400},
      {"7", post(chunked, "1;\r\nx\r\n0\r\n\r\n"), 400},
      {"7", post(chunked, "1 \r\nx\r\n0\r\n\r\n"), 400},
      {"7", post(chunked, big_extension), 400},
      {"8", post(chunked, "00000000000000001\r\nx\r\n0\r\n\r\n"), 400},
      {"8", post(chunked, "-1\r\nx\r\n0\r\n\r\n"), 400},
      {"8", post(chunked, "0x1\r\nx\r\n0\r\n\r\n"), 400},
      {"8", post(chunked, "\r\nx\r\n0\r\n\r\n"), 400},
      {"8", post(chunked, "ffffffffffffffff\r\nx\r\n0\r\n\r\n"), 413},
      {"8", post(chunked, "1\r\nxx\r\n0\r\n\r\n"), 400},
      {"8", post(chunked, "1\r\nx0\r\n\r\n"), 400},
      {"10", post(chunked, "0\r\n" + std::string(5000, 'a')), 431},
      {"10", post(chunked, "0\r\nA b: c\r\n\r\n"), 400},
      {"11", "GET / HTTP/1.1\r\nHost: h\r\nA: " + std::string(9000, 'a') + "\r\n\r\n", 431},
      {"11", "GET / HTTP/1.1\r\nHost: h\r\n" + many_fields + "\r\n", 431},
      {"11", "GET /" + std::string(100000, 'a') + " HTTP/1.1\r\nHost: h\r\n\r\n", 414},
      {"11", "GET /" + std::string(2048, 'a') + " HTTP/1.1\r\nHost: h\r\n\r\n", 414},
      {"12", "GET / HTTP/1.1\r\n\r\n", 400},
      {"12", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400},
      {"12", "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400},
      {"12", "GET / HTTP/1.1\r\nHost:\r\n\r\n", 400},
      {"12", "GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", 400},
      {"12", "GET / HTTP/1.1\r\nHost: user@a\r\n\r\n", 400},
      {"12", "GET http://other/ HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"12", "GET https://h/ HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"12", "CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n", 405},
      {"12", "TRACE / HTTP/1.1\r\nHost: h\r\n\r\n", 405},
      {"12", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"12", "GET / HTTP/1.2\r\nHost: h\r\n\r\n", 505},
      {"12", "GET / HTTP/0.9\r\nHost: h\r\n\r\n", 505},
      {"12", "GET /\r\n", 400},
      {"12", "GET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"12", "GET / HTTP/1.1 \r\nHost: h\r\n\r\n", 400},
      {"12", "GET / http/1.1\r\nHost: h\r\n\r\n", 400},
      {"12", "GET * HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"12", "get / HTTP/1.1\r\nHost: h\r\n\r\n", 501},
      {"12", "\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"14", post("Content-Encoding: gzip\r\nContent-Length: 1\r\n", "x"), 415},
      {"14", post("Content-Encoding: zstd\r\nTransfer-Encoding: chunked\r\n"), 415},
      {"13", post("Expect: magic\r\nContent-Length: 1\r\n", "x"), 417},
      {"15", "GET /a%0 HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"15", "GET /a\\b HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"15", "GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"15", "GET /\xc3\xa9 HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"17", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"s, 400},
      {"17", "{\"type\":\"submit\"}\n", 400},
      {"17", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", 400},
      {"17", "\xff\xfe\x00"s, 400},
  };
  for (const refusal& c : cases) {
    BOOST_TEST_CONTEXT("row " << c.row << ": " << c.bytes.substr(0, 90)) {
      const outcome out = parse_every_way(c.bytes + std::string(smuggled));
      BOOST_TEST(out.failed_with == c.status);
      BOOST_TEST(out.requests.empty());
    }
  }
}

BOOST_AUTO_TEST_CASE(row_9_counts_a_body_of_one_byte_chunks_against_the_same_cap) {
  std::string body;
  for (int i = 0; i < 3000; ++i) body += "1\r\nx\r\n";
  http_limits limits;
  limits.body_bytes = 3000;
  const outcome fits = parse_every_way(post(chunked, body + "0\r\n\r\n"), limits);
  BOOST_REQUIRE_EQUAL(fits.requests.size(), 1U);
  BOOST_TEST(fits.requests[0].body.size() == 3000U);
  limits.body_bytes = 2999;
  BOOST_TEST(parse_every_way(post(chunked, body + "0\r\n\r\n"), limits).failed_with == 413);
}

BOOST_AUTO_TEST_CASE(row_13_answers_413_before_it_invites_a_body) {
  const std::string expect = "Expect: 100-continue\r\n";
  const outcome over = parse_every_way(post(expect + "Content-Length: 1048577\r\n"));
  BOOST_TEST(over.failed_with == 413);
  BOOST_TEST(over.continues == 0);
  const outcome fits = parse_every_way(post(expect + "Content-Length: 2\r\n", "ok"));
  BOOST_TEST(fits.continues == 1);
  BOOST_TEST(fits.requests.at(0).body == "ok");
  BOOST_TEST(parse_every_way(post(expect)).continues == 0);
  BOOST_TEST(
      parse_every_way("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok").continues ==
      0);
}

BOOST_AUTO_TEST_CASE(row_15_leaves_suspicious_paths_undecoded) {
  for (const std::string path : {"/v1/../admin", "/%2e%2e/admin", "//v1", "/a%00", "/v1;x"})
    BOOST_TEST(parse_every_way("GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n").requests.at(0).path == path);
}

BOOST_AUTO_TEST_CASE(limits_hold_exactly_at_their_border) {
  const std::string uri(2047, 'a');
  BOOST_TEST(parse_every_way("GET /" + uri + " HTTP/1.1\r\nHost: h\r\n\r\n").failed_with == 0);
  // "Host: h\r\n" and "A: ...\r\n" and the closing CRLF fill the 8192 bytes.
  const std::string value(8192 - 9 - 2 - 5, 'a');
  BOOST_TEST(parse_every_way("GET / HTTP/1.1\r\nHost: h\r\nA: " + value + "\r\n\r\n").failed_with == 0);
  BOOST_TEST(parse_every_way("GET / HTTP/1.1\r\nHost: h\r\nA: b" + value + "\r\n\r\n").failed_with == 431);
  std::string fields;
  for (int i = 0; i < 63; ++i) fields += "A: b\r\n";
  BOOST_TEST(parse_every_way("GET / HTTP/1.1\r\nHost: h\r\n" + fields + "\r\n").failed_with == 0);
  BOOST_TEST(parse_every_way("GET / HTTP/1.1\r\nHost: h\r\n" + fields + "A: b\r\n\r\n").failed_with == 431);
}

BOOST_AUTO_TEST_CASE(an_announced_length_reserves_no_more_than_a_little) {
  http_parser parser;
  const std::string head = post("Content-Length: 1048576\r\n");
  BOOST_TEST((parser.feed(head).event == http_event::need_more));
  BOOST_TEST((parser.phase() == http_phase::body));
}

BOOST_AUTO_TEST_CASE(phase_tells_what_the_connection_waits_for) {
  http_parser parser;
  BOOST_TEST((parser.phase() == http_phase::idle));
  parser.feed("GET / HT");
  BOOST_TEST((parser.phase() == http_phase::head));
  parser.feed("TP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n");
  BOOST_TEST((parser.phase() == http_phase::body));
  BOOST_TEST((parser.feed("ab").event == http_event::complete));
  parser.take();
  BOOST_TEST((parser.phase() == http_phase::idle));
}

BOOST_AUTO_TEST_SUITE_END()
