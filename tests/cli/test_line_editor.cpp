// SPDX-License-Identifier: Apache-2.0
// Typed bytes to lines: what each key does to the text and to the screen.
#include "cli/line_editor.hpp"

#include <boost/test/unit_test.hpp>

#include <vector>

using namespace troupe::cli;

namespace {

/// All that came of what was typed.
struct seen {
  std::vector<std::string> lines;
  std::string shown, rest;
  bool ended = false;
};

seen type(line_editor& editor, std::string_view typed) {
  seen all;
  while (true) {
    switch (editor.take(typed, all.shown)) {
    case line_editor::outcome::more:
      all.rest = editor.text();
      return all;
    case line_editor::outcome::line:
      all.lines.push_back(editor.text());
      break;
    case line_editor::outcome::end:
      all.ended = true;
      return all;
    }
  }
}

seen type(std::string_view typed) {
  line_editor editor;
  return type(editor, typed);
}

const std::string step_back = "\b \b";

} // namespace

BOOST_AUTO_TEST_SUITE(line_editor_)

BOOST_AUTO_TEST_CASE(typed_text_is_shown_and_a_line_ends_at_enter) {
  const seen all = type("one\ntwo\r\nthr");
  BOOST_TEST(all.lines == (std::vector<std::string>{"one", "two", ""}), boost::test_tools::per_element());
  BOOST_TEST(all.shown == "one\ntwo\n\nthr");
  BOOST_TEST(all.rest == "thr");
}

BOOST_AUTO_TEST_CASE(a_line_may_be_of_any_length_and_come_in_any_parts) {
  const std::string text(100'000, 'x');
  line_editor editor;
  for (std::size_t at = 0; at < text.size(); at += 4096) (void)type(editor, text.substr(at, 4096));
  BOOST_TEST((type(editor, "\n").lines == std::vector<std::string>{text}));
}

BOOST_AUTO_TEST_CASE(erasing_takes_whole_characters_and_their_columns) {
  BOOST_TEST(type("ab\x7F").rest == "a");
  BOOST_TEST(type("ab\x7F").shown == "ab" + step_back);
  BOOST_TEST(type("a\b\b").shown == "a" + step_back); // nothing left to erase
  BOOST_TEST(type("a\xC3\xA9\x7F").rest == "a");
  BOOST_TEST(type("\xC3\xA9\x7F").shown == "\xC3\xA9" + step_back);
  BOOST_TEST(type("\xE4\xBD\xA0\x7F").shown == "\xE4\xBD\xA0" + step_back + step_back); // two columns
  BOOST_TEST(type("\xF0\x9F\x98\x80\x7F").rest.empty());
  BOOST_TEST(type("e\xCC\x81\x7F").shown == "e\xCC\x81"); // a combining accent has no column of its own
  BOOST_TEST(type("e\xCC\x81\x7F").rest == "e");
  BOOST_TEST(type("a\xFF\x7F").rest == "a"); // no UTF-8
  BOOST_TEST(type("a\x80\x80\x7F").rest == "a\x80");
}

BOOST_AUTO_TEST_CASE(words_and_lines_are_erased_at_once) {
  BOOST_TEST(type("one two  \x17").rest == "one ");
  BOOST_TEST(type("one\ttwo\x17\x17").rest.empty());
  BOOST_TEST(type("one two\x15three").rest == "three");
  BOOST_TEST(type("ab\x15").shown == "ab" + step_back + step_back);
}

BOOST_AUTO_TEST_CASE(the_end_key_ends_on_an_empty_line_only) {
  BOOST_TEST(type("\x04").ended);
  BOOST_TEST(type("one\n\x04").ended);
  const seen all = type("o\x04ne\n");
  BOOST_TEST(!all.ended);
  BOOST_TEST(all.lines.at(0) == "one");
}

BOOST_AUTO_TEST_CASE(a_tab_stays_in_the_text_and_is_a_space_on_the_screen) {
  BOOST_TEST(type("a\tb").rest == "a\tb");
  BOOST_TEST(type("a\tb").shown == "a b");
  BOOST_TEST(type("\t\x7F").shown == " " + step_back);
}

BOOST_AUTO_TEST_CASE(keys_that_move_and_other_control_characters_do_nothing) {
  BOOST_TEST(
      type("a\x1B[D\x1B[3~\x1B[1;5C\x1BOH\x1B"
           "fb\x07\x0C"
           "c")
          .rest == "abc");
  BOOST_TEST(type("a\x1B[D\x1BOH\x01").shown == "a");
  line_editor editor;
  (void)type(editor, "a\x1B"); // a sequence may come in parts
  (void)type(editor, "[1;");
  BOOST_TEST(type(editor, "5Cb").rest == "ab");
  BOOST_TEST(type("a\x1B\n").lines.size() == 1U); // Escape alone does not swallow Enter
}

BOOST_AUTO_TEST_CASE(the_keys_are_those_that_were_chosen) {
  line_editor editor(line_keys{'#', '%', '@', '!'});
  BOOST_TEST(type(editor, "one two#").rest == "one tw");
  BOOST_TEST(type(editor, "%").rest == "one ");
  BOOST_TEST(type(editor, "@").rest.empty());
  BOOST_TEST(type(editor, "!").ended);
}

BOOST_AUTO_TEST_CASE(a_line_that_is_cleared_is_forgotten) {
  line_editor editor;
  (void)type(editor, "one\x1B");
  editor.clear();
  BOOST_TEST((type(editor, "[two\n").lines == std::vector<std::string>{"[two"}));
}

BOOST_AUTO_TEST_SUITE_END()
