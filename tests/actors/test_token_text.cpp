// SPDX-License-Identifier: Apache-2.0
#include "actors/token_text.hpp"
#include "models/tokenizer.hpp"
#include "tiny_bpe.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::actors;

namespace {

std::vector<std::int32_t> encode(const models::tokenizer& t, std::string_view text) {
  return t.encode(text, {}).value();
}

} // namespace

BOOST_AUTO_TEST_SUITE(text_of_tokens)

BOOST_AUTO_TEST_CASE(a_stop_string_is_found_across_tokens_and_never_shown) {
  const auto t = models::make_tokenizer(models::test::tiny_bpe()).value();
  const std::vector<std::string> stops{"lo wo"};
  const auto text = make_token_text(*t, stops, false);
  std::string shown;
  bool stopped = false;
  for (const auto id : encode(*t, "hello world")) {
    const auto piece = text->push(id, true);
    shown += piece.text;
    stopped |= piece.stopped;
  }
  BOOST_TEST(stopped);
  BOOST_TEST(shown == "hel");
  BOOST_TEST(text->flush().empty());
}

BOOST_AUTO_TEST_CASE(half_a_character_waits_for_its_rest) {
  const auto t = models::make_tokenizer(models::test::tiny_bpe()).value();
  const auto text = make_token_text(*t, {}, false);
  BOOST_TEST(text->push(0xC3, true).text.empty());
  BOOST_TEST(text->push(0xA9, true).text == "\xC3\xA9");
  BOOST_TEST(text->push(0xC3, true).text.empty());
  BOOST_TEST(text->flush() == "\xEF\xBF\xBD");
}

BOOST_AUTO_TEST_CASE(a_near_miss_is_shown_at_the_end) {
  const auto t = models::make_tokenizer(models::test::tiny_bpe()).value();
  const std::vector<std::string> stops{"world!"};
  const auto text = make_token_text(*t, stops, false);
  std::string shown;
  for (const auto id : encode(*t, "hello world")) shown += text->push(id, true).text;
  BOOST_TEST(shown == "hello ");
  BOOST_TEST(text->flush() == "world");
}

BOOST_AUTO_TEST_CASE(a_stop_string_that_may_not_stop_yet_is_text_and_one_that_only_begins_there_stops) {
  const auto t = models::make_tokenizer(models::test::tiny_bpe()).value();
  const std::vector<std::string> stops{"o", "rld"};
  const auto text = make_token_text(*t, stops, false);
  std::string shown;
  bool stopped = false;
  for (const char c : std::string_view("hello wor")) {
    const auto piece = text->push(encode(*t, std::string(1, c)).at(0), false);
    shown += piece.text;
    stopped |= piece.stopped;
  }
  BOOST_TEST(!stopped);
  BOOST_TEST(shown == "hello wo"); // the r may become a stop string
  for (const char c : std::string_view("ld")) {
    const auto piece = text->push(encode(*t, std::string(1, c)).at(0), true);
    shown += piece.text;
    stopped |= piece.stopped;
  }
  BOOST_TEST(stopped);
  BOOST_TEST(shown == "hello wo");
}

BOOST_AUTO_TEST_SUITE_END()
