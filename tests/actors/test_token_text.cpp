// SPDX-License-Identifier: Apache-2.0
#include "actors/token_text.hpp"
#include "models/folder_tokenizer.hpp"
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
  const auto text = make_token_text(*t, {stops});
  std::string shown;
  bool stopped = false;
  for (const auto id : encode(*t, "hello world")) {
    const auto piece = text->push(id, true);
    shown += piece.text;
    stopped |= piece.stopped;
  }
  BOOST_TEST(stopped);
  BOOST_TEST(shown == "hel");
  BOOST_TEST(text->flush().text.empty());
}

BOOST_AUTO_TEST_CASE(half_a_character_waits_for_its_rest) {
  const auto t = models::make_tokenizer(models::test::tiny_bpe()).value();
  const auto text = make_token_text(*t, {});
  BOOST_TEST(text->push(0xC3, true).text.empty());
  BOOST_TEST(text->push(0xA9, true).text == "\xC3\xA9");
  BOOST_TEST(text->push(0xC3, true).text.empty());
  BOOST_TEST(text->flush().text == "\xEF\xBF\xBD");
}

BOOST_AUTO_TEST_CASE(a_near_miss_is_shown_at_the_end) {
  const auto t = models::make_tokenizer(models::test::tiny_bpe()).value();
  const std::vector<std::string> stops{"world!"};
  const auto text = make_token_text(*t, {stops});
  std::string shown;
  for (const auto id : encode(*t, "hello world")) shown += text->push(id, true).text;
  BOOST_TEST(shown == "hello ");
  BOOST_TEST(text->flush().text == "world");
}

BOOST_AUTO_TEST_CASE(a_stop_string_that_may_not_stop_yet_is_text_and_one_that_only_begins_there_stops) {
  const auto t = models::make_tokenizer(models::test::tiny_bpe()).value();
  const std::vector<std::string> stops{"o", "rld"};
  const auto text = make_token_text(*t, {stops});
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

BOOST_AUTO_TEST_CASE(a_stop_string_that_only_the_end_completes_stops) {
  const auto t = models::make_tokenizer(models::test::tiny_bpe()).value();
  const std::vector<std::string> stops{"\xEF\xBF\xBD"};
  for (const bool may_stop : {true, false}) {
    const auto text = make_token_text(*t, {stops});
    BOOST_TEST(text->push('a', true).text == "a");
    BOOST_TEST(text->push(0xC3, may_stop).text.empty()); // half a character, which nothing completes
    const auto last = text->flush();
    BOOST_TEST(last.stopped == may_stop);
    BOOST_TEST(last.text == (may_stop ? "" : stops[0]));
  }
}

BOOST_AUTO_TEST_CASE(a_text_is_echoed_as_given_and_ids_with_their_special_tokens) {
  const auto t = models::make_tokenizer_from_json(TROUPE_TEST_DATA "/tokenizers_tiny/spm_bpe.json").value();
  models::encode_options how;
  how.parse_special = how.add_bos = true;
  for (const std::string given : {"the river", "  two", "a</s>b", "<s>the", "\xC3\xA9!"}) {
    const auto ids = t->encode(given, how).value();
    BOOST_TEST_REQUIRE(ids.at(0) == 1);
    text_options options;
    BOOST_TEST(make_token_text(*t, options)->echo(ids).starts_with("<s>"));
    options.given = std::make_shared<const std::string>(given);
    BOOST_TEST(make_token_text(*t, options)->echo(ids) == given);
    // Token by token it is the text of the tokens, in which only the BOS that was put before has no place.
    const auto parts = make_token_text(*t, options);
    std::string joined, named;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const token_name name = parts->echo_name_of(ids[i]);
      if (name.shown) named += name.bytes;
      BOOST_TEST(name.shown == (i > 0 || given.starts_with("<s>")));
      joined += parts->echo_next(ids[i], i + 1 == ids.size());
    }
    BOOST_TEST(joined == named);
    if (given.find('<') == std::string::npos) BOOST_TEST(joined == given);
  }
}

BOOST_AUTO_TEST_CASE(tokens_are_named_by_what_they_add_where_they_stand) {
  const auto t = models::make_tokenizer_from_json(TROUPE_TEST_DATA "/tokenizers_tiny/spm_bpe.json").value();
  const auto ids = encode(*t, "to the river");
  for (const bool continues : {false, true}) {
    text_options options;
    options.continues = continues;
    const auto text = make_token_text(*t, options);
    std::string joined, named;
    for (const auto id : ids) {
      named += text->name_of(id).bytes;
      joined += text->push(id, true).text;
    }
    BOOST_TEST(joined == named);
    BOOST_TEST(joined == (continues ? " to the river" : "to the river"));
    BOOST_TEST(!text->name_of(2).shown);
  }
}

BOOST_AUTO_TEST_SUITE_END()
