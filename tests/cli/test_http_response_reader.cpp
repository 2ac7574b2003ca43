// SPDX-License-Identifier: Apache-2.0
// The client's reader: every framing, any split of the bytes, malformed answers.
#include "cli/http_response_reader.hpp"

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(http_response_reader)

namespace {

struct outcome {
  bool well_formed = true, complete = false;
  int status = 0;
  std::string body, retry_after;
  bool operator==(const outcome&) const = default;
};

outcome read(std::string_view bytes, std::size_t step, bool ended = true) {
  troupe::cli::http_response_reader reader;
  outcome out;
  for (std::size_t at = 0; at < bytes.size() && out.well_formed; at += step)
    out.well_formed = reader.feed(bytes.substr(at, step), out.body);
  out.complete = ended ? reader.end_of_stream() : reader.complete();
  out.status = reader.status();
  out.retry_after = reader.retry_after();
  return out;
}

// The same however the bytes are cut.
outcome read_all_ways(std::string_view bytes, bool ended = true) {
  const outcome whole = read(bytes, bytes.size(), ended);
  for (std::size_t step = 1; step < 9; ++step)
    BOOST_TEST((read(bytes, step, ended) == whole), "in steps of " << step);
  return whole;
}

std::vector<std::string> split(std::string_view bytes, std::size_t step) {
  troupe::cli::event_splitter splitter;
  std::vector<std::string> events;
  for (std::size_t at = 0; at < bytes.size(); at += step) splitter.feed(bytes.substr(at, step), events);
  return events;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_sized_body_ends_by_its_length) {
  const outcome got = read_all_ways(
      "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 5\r\nRetry-After: 2\r\n\r\nhello", false);
  BOOST_TEST(got.complete);
  BOOST_TEST(got.status == 429);
  BOOST_TEST(got.body == "hello");
  BOOST_TEST(got.retry_after == "2");
  BOOST_TEST(read_all_ways("HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n", false).complete);
}

BOOST_AUTO_TEST_CASE(a_chunked_body_is_joined_and_its_extensions_and_trailers_are_dropped) {
  const outcome got = read_all_ways(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nTrailer: a\r\n\r\n",
      false);
  BOOST_TEST(got.complete);
  BOOST_TEST(got.body == "hello world");
}

BOOST_AUTO_TEST_CASE(a_body_without_length_ends_with_the_connection) {
  const std::string_view bytes = "HTTP/1.0 200 OK\n\nhello";
  BOOST_TEST(!read_all_ways(bytes, false).complete);
  BOOST_TEST(read_all_ways(bytes).complete);
  BOOST_TEST(read_all_ways(bytes).body == "hello");
}

BOOST_AUTO_TEST_CASE(an_interim_response_is_passed_over) {
  const outcome got =
      read_all_ways("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false);
  BOOST_TEST(got.status == 200);
  BOOST_TEST(got.body == "ok");
}

BOOST_AUTO_TEST_CASE(a_cut_answer_is_not_complete) {
  for (const char* bytes :
       {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", "HTTP/1.1 200 OK\r\nContent-",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"})
    BOOST_TEST(!read_all_ways(bytes).complete, bytes);
}

BOOST_AUTO_TEST_CASE(what_is_not_http_is_refused) {
  for (const char* bytes :
       {"SSH-2.0-OpenSSH\r\n", "HTTP/1.1 abc\r\n\r\n", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n"})
    BOOST_TEST(!read_all_ways(bytes).well_formed, bytes);
  BOOST_TEST(!read("HTTP/1.1 200 OK\r\n" + std::string(100'000, 'a'), 1000).well_formed);
}

BOOST_AUTO_TEST_CASE(events_are_split_at_blank_lines) {
  const std::string_view bytes =
      ": ping\r\n\r\ndata: one\r\n\r\nid: 3\ndata:two\ndata: lines\n\ndata: unfinished";
  const std::vector<std::string> expected{"one", "two\nlines"};
  for (std::size_t step = 1; step <= bytes.size(); ++step)
    BOOST_TEST((split(bytes, step) == expected), "in steps of " << step);
}

BOOST_AUTO_TEST_SUITE_END()
