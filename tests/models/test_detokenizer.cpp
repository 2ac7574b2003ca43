// SPDX-License-Identifier: Apache-2.0
// Streaming detokenisation: whole characters only, the same text however it is cut.
#include "models/detokenizer.hpp"
#include "models/utf8.hpp"
#include "tests/models/tiny_bpe.hpp"

#include <boost/test/unit_test.hpp>

#include <random>

using namespace troupe;
using namespace troupe::models;

namespace {

std::unique_ptr<const tokenizer> tiny() {
  auto t = make_tokenizer(models::test::tiny_bpe());
  if (!t) BOOST_FAIL(t.error().message);
  return std::move(*t);
}

} // namespace

BOOST_AUTO_TEST_SUITE(detokenizer_)

BOOST_AUTO_TEST_CASE(a_character_split_over_tokens_appears_when_it_is_whole) {
  const auto t = tiny();
  detokenizer d(*t);
  BOOST_TEST(d.push('a') == "a");
  BOOST_TEST(d.push(0xE2) == "");
  BOOST_TEST(d.push(0x82) == "");
  BOOST_TEST(d.push(0xAC) == "\u20ac");
  BOOST_TEST(d.push(269) == ""); // F0 9F in one token
  BOOST_TEST(d.push(0xA6) == "");
  BOOST_TEST(d.push(0x99) == "\U0001F999");
  BOOST_TEST(d.flush() == "");
}

BOOST_AUTO_TEST_CASE(an_unfinished_character_becomes_one_replacement_at_the_end) {
  const auto t = tiny();
  detokenizer d(*t);
  BOOST_TEST(d.push(269) == "");
  BOOST_TEST(d.push(0xA6) == "");
  BOOST_TEST(d.flush() == "\uFFFD");
  BOOST_TEST(d.flush() == "");
}

BOOST_AUTO_TEST_CASE(bad_bytes_become_replacements_and_good_ones_survive) {
  const auto t = tiny();
  detokenizer d(*t);
  BOOST_TEST(d.push(0xFF) == "\uFFFD");
  BOOST_TEST(d.push(0xE2) == "");
  BOOST_TEST(d.push('a') == "\uFFFDa");
  BOOST_TEST(d.push(0xED) == "");
  BOOST_TEST(d.push(0xA0) == "\uFFFD\uFFFD"); // no surrogate can start so
}

BOOST_AUTO_TEST_CASE(special_tokens_are_left_out_unless_asked_for) {
  const auto t = tiny();
  const std::vector<token_id> ids{273, 259, 275, 264, 274, 277, -5, 99999};
  BOOST_TEST(detokenize(*t, ids) == "hello<think> world");
  BOOST_TEST(detokenize(*t, ids, true) == "<|start|>hello<think> world<|end|><unused>");
}

BOOST_AUTO_TEST_CASE(a_special_token_does_not_break_a_character_in_two) {
  const auto t = tiny();
  BOOST_TEST(detokenize(*t, std::vector<token_id>{0xC3, 274, 0xA9}) == "\u00e9");
}

BOOST_AUTO_TEST_CASE(pieces_are_valid_utf8_and_join_to_the_whole) {
  const auto t = tiny();
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    std::vector<token_id> ids;
    std::string bytes;
    for (int i = 0; i < 30; ++i) {
      const token_id id = random() % 3 == 0 ? static_cast<token_id>(random() % 273)
                                            : static_cast<token_id>(0x80 + random() % 0x80);
      ids.push_back(id);
      bytes += t->bytes_of(id);
    }
    detokenizer d(*t);
    std::string joined;
    for (const token_id id : ids) {
      const std::string piece = d.push(id);
      BOOST_TEST(is_valid_utf8(piece));
      joined += piece;
    }
    joined += d.flush();
    // The whole at once, by the rule of maximal subparts.
    std::string want;
    for (std::size_t at = 0; at < bytes.size();) {
      const utf8_step step = decode_utf8(bytes, at);
      append_utf8(want, step.code);
      at += step.length;
    }
    BOOST_TEST(joined == want);
  }
}

BOOST_AUTO_TEST_SUITE_END()
