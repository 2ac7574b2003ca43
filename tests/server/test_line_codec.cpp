// SPDX-License-Identifier: Apache-2.0
#include "server/line_codec.hpp"

#include <boost/test/unit_test.hpp>

using troupe::server::line_decoder;

namespace {

struct outcome {
  std::vector<std::string> lines;
  bool ok = true;
  bool too_long = false;
};

outcome decode(std::string_view bytes, std::size_t step, std::size_t limit) {
  line_decoder decoder(limit);
  outcome out;
  for (std::size_t at = 0; at < bytes.size() && out.ok; at += step)
    out.ok = decoder.feed(bytes.substr(at, step), out.lines);
  out.too_long = decoder.too_long();
  BOOST_TEST(out.ok == decoder.failure().empty());
  return out;
}

outcome decode_every_way(std::string_view bytes, std::size_t limit = 1U << 20) {
  const outcome whole = decode(bytes, bytes.size() + 1, limit);
  for (const std::size_t step : {1, 2, 3, 5}) {
    const outcome split = decode(bytes, step, limit);
    BOOST_TEST(split.lines == whole.lines, boost::test_tools::per_element());
    BOOST_TEST(split.ok == whole.ok);
    BOOST_TEST(split.too_long == whole.too_long);
  }
  return whole;
}

} // namespace

BOOST_AUTO_TEST_SUITE(line_codec)

BOOST_AUTO_TEST_CASE(splits_lines_and_skips_blank_ones) {
  const outcome out = decode_every_way("\r\n{\"a\":1}\n\n\r\n{\"b\":2}\r\nnext\n{part");
  const std::vector<std::string> expected = {"{\"a\":1}", "{\"b\":2}", "next"};
  BOOST_TEST(out.lines == expected, boost::test_tools::per_element());
  BOOST_TEST(out.ok);
}

BOOST_AUTO_TEST_CASE(row_37_the_length_is_bounded_while_it_is_read) {
  BOOST_TEST(decode_every_way("{2345678\n", 8).ok);
  BOOST_TEST(decode_every_way("{2345678\r\n", 8).ok);
  BOOST_TEST(decode_every_way("{23456789\n", 8).too_long);
  BOOST_TEST(decode_every_way("{\n{234567890123456", 8).too_long);
  BOOST_TEST(decode_every_way("{\n{234567890123456", 8).lines.size() == 1U);
}

BOOST_AUTO_TEST_CASE(row_17_another_protocol_is_refused_at_its_first_byte) {
  for (const std::string_view bytes :
       {"GET / HTTP/1.1\r\n\r\n", "POST / HTTP/1.1\r\n", "\x16\x03\x01", "\r\nGET /", "[1]\n", " {}\n",
        "\xff{}\n"}) {
    const outcome out = decode_every_way(bytes);
    BOOST_TEST(!out.ok);
    BOOST_TEST(!out.too_long);
    BOOST_TEST(out.lines.empty());
  }
}

BOOST_AUTO_TEST_SUITE_END()
