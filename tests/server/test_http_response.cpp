// SPDX-License-Identifier: Apache-2.0
#include "server/http_response.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe::server;

BOOST_AUTO_TEST_SUITE(http_response_suite)

BOOST_AUTO_TEST_CASE(writes_a_whole_response) {
  http_response_context context;
  context.unix_seconds = 784111777;
  BOOST_TEST(
      http_response(context, 429, "application/json", "{}", {{"Retry-After", "3"}}) ==
      "HTTP/1.1 429 Too Many Requests\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Type: "
      "application/json\r\n"
      "Content-Length: 2\r\nRetry-After: 3\r\n\r\n{}");
}

BOOST_AUTO_TEST_CASE(row_20_sends_no_body_where_none_may_stand) {
  http_response_context head;
  head.head_only = true;
  const std::string answer = http_response(head, 200, "text/plain", "hello");
  BOOST_TEST(answer.find("Content-Length: 5\r\n") != std::string::npos);
  BOOST_TEST(answer.ends_with("\r\n\r\n"));
  for (const int status : {100, 101, 204, 304}) {
    const std::string bare = http_response({}, status, "text/plain", "hello");
    BOOST_TEST(bare.ends_with("\r\n\r\n"));
    BOOST_TEST(bare.find("Content-Length") == std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(row_100_a_value_cannot_start_a_new_line) {
  const std::string answer = http_response({}, 200, "text/plain", "", {{"X", "a\r\nEvil: b\x1b[31m"}});
  BOOST_TEST(answer.find("X: aEvil: b[31m\r\n") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(streams_in_chunks_to_http_1_1_and_bare_to_http_1_0) {
  http_response_context context;
  std::string out = http_stream_head(context);
  BOOST_TEST(out.find("Transfer-Encoding: chunked\r\n") != std::string::npos);
  out.clear();
  append_stream_piece(out, context, "data: 0123456789\n\n");
  append_stream_end(out, context);
  BOOST_TEST(out == "12\r\ndata: 0123456789\n\n\r\n0\r\n\r\n");

  context.minor_version = 0;
  context.keep_alive = false;
  out = http_stream_head(context);
  BOOST_TEST(out.find("Transfer-Encoding") == std::string::npos);
  BOOST_TEST(out.find("Connection: close\r\n") != std::string::npos);
  out.clear();
  append_stream_piece(out, context, "x");
  append_stream_end(out, context);
  BOOST_TEST(out == "x");
}

BOOST_AUTO_TEST_SUITE_END()
