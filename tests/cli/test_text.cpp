// SPDX-License-Identifier: Apache-2.0
// Texts that reach a terminal.
#include "cli/text.hpp"

#include <boost/test/unit_test.hpp>

BOOST_AUTO_TEST_SUITE(text)

using namespace troupe::cli;

BOOST_AUTO_TEST_CASE(a_message_stays_one_line_whatever_a_file_put_in_it) {
  BOOST_TEST(one_line("plain text") == "plain text");
  BOOST_TEST(one_line("two\nlines\n") == "two\\nlines");
  BOOST_TEST(one_line("\x1b[31mred\x7f") == "\\x1b[31mred\\x7f");
  BOOST_TEST(one_line("caf\xC3\xA9") == "caf\xC3\xA9");
  BOOST_TEST(one_line("") == "");
}

BOOST_AUTO_TEST_CASE(sizes_are_shown_in_the_unit_that_fits) {
  BOOST_TEST(human_bytes(0) == "0 B");
  BOOST_TEST(human_bytes(1023) == "1023 B");
  BOOST_TEST(human_bytes(1024) == "1.0 KiB");
  BOOST_TEST(human_bytes(98'362'432) == "93.8 MiB");
  BOOST_TEST(human_bytes(~std::uint64_t{0}) == "16.0 EiB");
}

BOOST_AUTO_TEST_SUITE_END()
