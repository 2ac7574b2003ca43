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
  BOOST_TEST(one_line("half \xE2\x80") == "half \\xe2\\x80");
  BOOST_TEST(
      one_line("\xC2\x9B"
               "31m") == "\\xc2\\x9b31m"); // a control character of two bytes
  BOOST_TEST(escaped("a\n") == "a\\n");
}

BOOST_AUTO_TEST_CASE(what_is_left_out_of_a_text_is_said_in_one_sentence) {
  BOOST_TEST(
      lost_note("the prompt", 1, 0) ==
      "1 byte of the prompt has no token in the vocabulary and is left out, the first at offset 0");
  BOOST_TEST(
      lost_note("the text", 3, 17) ==
      "3 bytes of the text have no token in the vocabulary and are left out, the first at offset 17");
}

BOOST_AUTO_TEST_SUITE_END()
