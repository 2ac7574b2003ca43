// SPDX-License-Identifier: Apache-2.0
// Stop strings across token borders.
#include "models/stop_matcher.hpp"

#include <boost/test/unit_test.hpp>

#include <random>

using namespace troupe::models;

namespace {

struct outcome {
  std::string text;
  std::optional<std::size_t> matched;
};

/// Feeds `text` in pieces of `size` bytes.
outcome run(const std::vector<std::string>& stops, std::string_view text, std::size_t size) {
  stop_matcher m(stops);
  outcome out;
  for (std::size_t at = 0; at < text.size(); at += size) {
    auto step = m.push(text.substr(at, size));
    out.text += step.text;
    if (step.matched) {
      out.matched = step.matched;
      return out;
    }
  }
  out.text += m.flush();
  return out;
}

/// By definition: the earliest end, then the longest.
outcome by_definition(const std::vector<std::string>& stops, const std::string& text) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < stops.size(); ++i) {
      if (stops[i].empty() || !std::string_view(text).substr(0, end).ends_with(stops[i])) continue;
      if (!best || stops[i].size() > stops[*best].size()) best = i;
    }
    if (best) return {text.substr(0, end - stops[*best].size()), best};
  }
  return {text, std::nullopt};
}

} // namespace

BOOST_AUTO_TEST_SUITE(stop_matcher_)

BOOST_AUTO_TEST_CASE(a_stop_string_in_three_pieces_is_found_and_cut_off) {
  const std::vector<std::string> stops{"\nQuestion:"};
  stop_matcher m(stops);
  BOOST_TEST(m.push("42.\nQue").text == "42.");
  BOOST_TEST(m.push("st").text == "");
  const auto last = m.push("ion: what");
  BOOST_TEST(last.text == "");
  BOOST_REQUIRE(last.matched.has_value());
  BOOST_TEST(*last.matched == 0u);
  BOOST_TEST(m.push("more").text == "");
  BOOST_TEST(m.flush() == "");
}

BOOST_AUTO_TEST_CASE(only_what_may_become_a_stop_string_is_held_back) {
  const std::vector<std::string> stops{"abcd", "bx"};
  stop_matcher m(stops);
  BOOST_TEST(m.push("zab").text == "z");
  BOOST_TEST(m.push("c").text == "");
  BOOST_TEST(m.push("e").text == "abce");
  BOOST_TEST(m.push("ab").text == "");
  BOOST_TEST(m.flush() == "ab");
}

BOOST_AUTO_TEST_CASE(no_stop_strings_hold_nothing_back) {
  const std::vector<std::string> none, empty{""};
  BOOST_TEST(stop_matcher(none).push("abc").text == "abc");
  const auto step = stop_matcher(empty).push("abc");
  BOOST_TEST(step.text == "abc");
  BOOST_TEST(!step.matched.has_value());
}

BOOST_AUTO_TEST_CASE(the_stop_string_that_ends_first_wins_then_the_longest) {
  BOOST_TEST(run({"abcd", "bc"}, "xabcd", 100).text == "xa");
  BOOST_TEST(*run({"abcd", "bc"}, "xabcd", 100).matched == 1u);
  BOOST_TEST(run({"c", "bc", "abc"}, "xabc", 1).text == "x");
  BOOST_TEST(*run({"c", "bc", "abc"}, "xabc", 1).matched == 2u);
}

BOOST_AUTO_TEST_CASE(any_cutting_gives_the_answer_of_the_definition) {
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops(1 + random() % 4);
    for (auto& stop : stops) {
      for (std::size_t i = random() % 5; i > 0; --i) stop += static_cast<char>('a' + random() % 2);
    }
    std::string text;
    for (std::size_t i = random() % 24; i > 0; --i) text += static_cast<char>('a' + random() % 3);
    const outcome want = by_definition(stops, text);
    for (std::size_t size = 1; size <= 5; ++size) {
      const outcome got = run(stops, text, size);
      BOOST_TEST(got.text == want.text);
      BOOST_TEST(got.matched.has_value() == want.matched.has_value());
      if (got.matched && want.matched) BOOST_TEST(stops[*got.matched] == stops[*want.matched]);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
