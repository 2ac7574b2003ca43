// SPDX-License-Identifier: Apache-2.0
// Oniguruma's patterns in PCRE2's spelling: what they match, what is refused.
#include "models/oniguruma_pattern.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>

using namespace troupe;
using namespace troupe::models;

namespace {

/// The matches of `pattern`, each in brackets.
std::string matches(std::string_view pattern, std::string_view text) {
  auto compiled = compile_oniguruma(pattern);
  if (!compiled) BOOST_FAIL(compiled.error().message);
  std::string found;
  regex_scratch scratch;
  auto ok = compiled->each(text, scratch, [&](text_span m) -> result<void> {
    found.append("[").append(text.substr(m.begin, m.end - m.begin)).append("]");
    return {};
  });
  if (!ok) BOOST_FAIL(ok.error().message);
  return found;
}

} // namespace

BOOST_AUTO_TEST_SUITE(oniguruma_pattern)

BOOST_AUTO_TEST_CASE(classes_are_those_of_unicode) {
  BOOST_TEST(matches("\\s", "a\u0085b\u180Ec\u2003") == "[\u0085][\u2003]");
  BOOST_TEST(matches("[^\\s]+", "a \u180Eb") == "[a][\u180Eb]");
  BOOST_TEST(matches("[\\S\\n]+", "a\nb c") == "[a\nb][c]");
  BOOST_TEST(matches("\\w+", "e\u0301_1-\u24B6") == "[e\u0301_1][\u24B6]");
  BOOST_TEST(matches("\\w+", "\u00BD\u2460") == "[\u00BD]"); // in Latin-1 only, and not in a class
  BOOST_TEST(matches("[\\w]+", "\u00BD\u00B2") == "");
  BOOST_TEST(matches("\\b.", "\u00BD \u2460") == "[\u00BD][ ]");
  BOOST_TEST(matches("\\h+", "xBEef9g") == "[BEef9]");
  BOOST_TEST(matches("\\v", "\x0B\n") == "[\x0B]");
  BOOST_TEST(matches("\\p{Han}+|\\p{^L}", "\u4e00a1\u3001") == "[\u4e00][1][\u3001]"); // no script extensions
  BOOST_TEST(matches("\\p{Alpha}+", "ab1\u0345") == "[ab][\u0345]");
  BOOST_TEST(matches("\\u00e9", "e\u00e9") == "[\u00e9]");
}

BOOST_AUTO_TEST_CASE(nested_classes_add_up) {
  BOOST_TEST(matches("[a[bc]d]+", "abcde") == "[abcd]");
  BOOST_TEST(matches("[]a]+", "a]b") == "[a]]");
}

BOOST_AUTO_TEST_CASE(classes_may_be_cut_with_each_other) {
  BOOST_TEST(matches("[a-e&&c-z]+", "abcdefg") == "[cde]");
  BOOST_TEST(matches("[^a-e&&c-z]+", "abcdefg") == "[ab][fg]");
  BOOST_TEST(matches("[\\p{L}&&[^\\p{Han}]]+", "ab\u4e00c1") == "[ab][c]");
  BOOST_TEST(matches("[\\p{L}\\p{N}&&[^a]&&[^1]]?x", "ax1xbx2x") == "[x][x][bx][2x]");
  BOOST_TEST(matches("[a&b]+", "a&b") == "[a&b]");
  BOOST_TEST(matches("[]a&&[^a]]", "a]b") == "[]]");
}

BOOST_AUTO_TEST_CASE(posix_brackets_are_those_of_unicode) {
  BOOST_TEST(matches("[[:alpha:]_]+", "a\u00e9_1") == "[a\u00e9_]");
  BOOST_TEST(matches("[[:digit:]]", "1\u0663\u00BD") == "[1][\u0663]");
  BOOST_TEST(matches("[[:punct:]]+", "a!$\u20AC\u3002b") == "[!$\u20AC\u3002]");
  BOOST_TEST(matches("[^[:space:]]+", "a\u00A0b") == "[a][b]");
  BOOST_TEST(matches("[[:^space:]x]+", "a\u00A0b") == "[a][b]");
  BOOST_TEST(matches("[[:word:]]+", "e\u0301_1-") == "[e\u0301_1]");
  BOOST_TEST(matches("[[:ascii:]&&[^[:cntrl:]]]+", "a\tb\u00e9") == "[a][b]");
  BOOST_TEST(matches("[[:blank:]]+", "\n\t\u2003") == "[\t\u2003]");
}

BOOST_AUTO_TEST_CASE(anchors_are_those_of_lines_and_m_lets_the_dot_match_newlines) {
  BOOST_TEST(matches("^a|b$", "ab\nab\n") == "[a][b][a][b]");
  BOOST_TEST(matches("a.b", "a\nb") == "");
  BOOST_TEST(matches("(?m:a.b)", "a\nb") == "[a\nb]");
  BOOST_TEST(matches("(?i:a)b", "Abab aB") == "[Ab][ab]");
}

BOOST_AUTO_TEST_CASE(intervals_may_lack_their_beginning) {
  BOOST_TEST(matches("xa{,2}", "xaaa") == "[xaa]");
  BOOST_TEST(matches("a{2}", "aaa") == "[aa]");
  BOOST_TEST(matches("a{", "a{") == "[a{]");
  BOOST_TEST(matches("a?+b*+", "ab") == "[ab]");
}

BOOST_AUTO_TEST_CASE(an_empty_match_behind_a_match_does_not_count) {
  BOOST_TEST(matches("b*", "abba") == "[][bb][]");
  BOOST_TEST(matches("", "\u00e9") == "[][]");
}

BOOST_AUTO_TEST_CASE(a_plus_behind_an_interval_repeats_it) {
  // HF tokenizers 0.23 finds the same.
  BOOST_TEST(matches("a{2}+", "aaaaa") == "[aaaa]");
  BOOST_TEST(matches("xa{2,3}+a", "xaaaaaxaa") == "[xaaaa]");
  BOOST_TEST(matches("\\A\\p{Nd}{1,2}(?=\\p{Nd}{3}+\\z)", "12345678") == "[12]");
  BOOST_TEST(matches("\\A\\p{Nd}{1,2}(?=\\p{Nd}{3}+\\z)", "123456") == "");
  BOOST_TEST(matches("[ab]{2}+b", "ababab") == "[babab]");
}

BOOST_AUTO_TEST_CASE(quoted_text_matches_itself_alone) {
  const std::string text = "a.b*[c]\\d{2}^$ |#-\n\u00e9";
  auto compiled = regex::compile(quote_pattern(text));
  BOOST_REQUIRE(compiled.has_value());
  regex_scratch scratch;
  text_span found;
  BOOST_TEST(compiled->find("x" + text, 0, scratch, found) == 1);
  BOOST_TEST(found.begin == 1u);
  BOOST_TEST(compiled->find("aXb*[c]\\d{2}^$ |#-\n\u00e9", 0, scratch, found) == 0);
}

BOOST_AUTO_TEST_CASE(what_has_no_equal_is_refused_by_name) {
  for (const auto& [pattern, needle] :
       {std::pair("[a[b&&c]]", "'&&'"),
        {"[a&&]", "'&&'"},
        {"[[a&&b]&&c]", "'&&'"},
        {"(a){1,2}+", "'+'"},
        {"a{1,2}++", "'+'"},
        {"\u00e9{2}+", "'+'"},
        {"a+{2}+", "'+'"},
        {"\\y", "\\y"},
        {"(?~a)", "absent"},
        {"[a[^b]]", "negated"},
        {"[\\W]", "\\W"},
        {"[[:graph:]]", "POSIX"},
        {"[[:^alpha:]]", "POSIX"},
        {"[[:alpha]", "POSIX"},
        {"(?s:a)", "option s"},
        {"a\\", "backslash"},
        {"[a", "end"},
        {"\\p{x=y}", "property"},
        {"(*FAIL)", "verb"},
        {"(?R)", "group"},
        {"\\g<1>", "\\g"},
        {"\\Qa", "\\Q"}}) {
    const auto translated = translate_oniguruma(pattern);
    BOOST_REQUIRE_MESSAGE(!translated, pattern);
    BOOST_TEST((translated.error().code == errc::unsupported));
    BOOST_TEST_CONTEXT(translated.error().message) {
      BOOST_TEST(translated.error().message.find(needle) != std::string::npos);
    }
  }
  BOOST_TEST(!compile_oniguruma("\\p{Klingon}"));
  BOOST_TEST(!compile_oniguruma(std::string(100, '[')));
  BOOST_TEST(!compile_oniguruma("\xFF"));
}

BOOST_AUTO_TEST_CASE(what_is_refused_is_shown_in_one_line) {
  for (const std::string pattern : {"a\n(b", "a\n\\y"}) {
    const auto compiled = compile_oniguruma(pattern);
    BOOST_REQUIRE(!compiled);
    const std::string& message = compiled.error().message;
    BOOST_TEST_CONTEXT(message)
    BOOST_TEST(std::ranges::none_of(message, [](char c) { return static_cast<unsigned char>(c) < 0x20; }));
  }
}

BOOST_AUTO_TEST_CASE(a_pattern_that_explodes_ends_with_an_error) {
  auto compiled = compile_oniguruma("(a+)+$");
  BOOST_REQUIRE(compiled.has_value());
  regex_scratch scratch;
  text_span found;
  std::string text(40, 'a');
  text += 'b';
  const int code = compiled->find(text, 0, scratch, found);
  BOOST_TEST(code <= 0);
  if (code < 0) BOOST_TEST((compiled->fault(code).code == errc::bad_request));
}

BOOST_AUTO_TEST_SUITE_END()
