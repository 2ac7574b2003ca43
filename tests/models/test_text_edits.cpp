// SPDX-License-Identifier: Apache-2.0
// Where a rewritten text comes from: spans through edits, the edits of every normaliser.
#include "models/oniguruma_pattern.hpp"
#include "models/text_edits.hpp"
#include "models/text_stage.hpp"
#include "models/utf8.hpp"

#include <boost/test/unit_test.hpp>

#include <random>

using namespace troupe;
using namespace troupe::models;

namespace {

using spans_t = std::vector<text_span>;

void check_follow(const text_edits& edits, spans_t spans, const spans_t& want) {
  follow_edits(edits, spans);
  BOOST_REQUIRE(spans.size() == want.size());
  for (std::size_t i = 0; i < spans.size(); ++i) {
    BOOST_TEST(spans[i].begin == want[i].begin);
    BOOST_TEST(spans[i].end == want[i].end);
  }
}

/// `text` rewritten by `step`, and its edits.
std::pair<std::string, text_edits> traced(const normalizer& step, const std::string& text) {
  stage_scratch s;
  s.longest = std::size_t{1} << 30;
  s.traces = true;
  text_place place;
  std::string out;
  auto changed = step.apply(text, place, s, out);
  if (!changed) BOOST_FAIL(changed.error().message);
  return {*changed ? out : text, *changed ? s.edits : text_edits()};
}

std::string plain(const normalizer& step, const std::string& text) {
  stage_scratch s;
  s.longest = std::size_t{1} << 30;
  text_place place;
  std::string out;
  auto changed = step.apply(text, place, s, out);
  if (!changed) BOOST_FAIL(changed.error().message);
  BOOST_TEST(s.edits.empty());
  return *changed ? out : text;
}

/// Edits are in order and what lies between them is the same at both sides.
void check_edits(const std::string& before, const std::string& after, const text_edits& edits) {
  text_edit last{};
  const auto gap = [&](std::size_t from, std::size_t to) {
    BOOST_REQUIRE(from >= last.from.end);
    BOOST_REQUIRE(to >= last.to.end);
    BOOST_TEST(
        before.substr(last.from.end, from - last.from.end) == after.substr(last.to.end, to - last.to.end));
  };
  for (const text_edit& e : edits) {
    gap(e.from.begin, e.to.begin);
    last = e;
  }
  gap(before.size(), after.size());
}

struct named_step {
  std::string name;
  std::unique_ptr<const normalizer> step;
};

std::vector<named_step> every_step() {
  std::vector<named_step> steps;
  steps.push_back({"NFC", make_form_normalizer(normal_form::nfc)});
  steps.push_back({"NFD", make_form_normalizer(normal_form::nfd)});
  steps.push_back({"NFKC", make_form_normalizer(normal_form::nfkc)});
  steps.push_back({"NFKD", make_form_normalizer(normal_form::nfkd)});
  steps.push_back({"Lowercase", make_lowercase()});
  steps.push_back({"Strip", make_strip(true, true)});
  steps.push_back({"StripAccents", make_strip_accents()});
  steps.push_back({"Prepend", make_prepend("\u2581")});
  steps.push_back({"Nmt", make_nmt()});
  steps.push_back({"ByteLevel", make_byte_spelling_normalizer()});
  steps.push_back({"Replace", make_replace(" ", "\u2581")});
  steps.push_back({"Replace nothing", make_replace("a", "")});
  steps.push_back({"Replace pattern", make_replace(compile_oniguruma(" +").value(), "_")});
  steps.push_back({"Replace empty matches", make_replace(compile_oniguruma("b*").value(), "-")});
  return steps;
}

std::string random_text(std::mt19937& random) {
  static const std::string units[] = {
      "a",      "B",      " ",      "  ",     "e",      "\u0301", "\u0327", "\u0316", "\u00e9",
      "\u00c5", "\u1100", "\u1161", "\u11a8", "\uac00", "\u0e33", "\ufb01", "\uff9e", "\uff76",
      "\u09c7", "\u09be", "b",      "\u4e00", "\t",     "\x7F",   "\u200b", "\u0130", "\u212b",
      "<",      ">",      "\u0338", "\u0344", "\u1e9b", "\u0323", "\u0f73", "\u0f71", "\U0001D15E"};
  std::string text;
  for (std::size_t i = random() % 24; i > 0; --i) text += units[random() % std::size(units)];
  return text;
}

} // namespace

BOOST_AUTO_TEST_SUITE(text_edits_)

BOOST_AUTO_TEST_CASE(spans_move_with_their_bytes) {
  check_follow({}, {{1, 3}}, {{1, 3}});
  check_follow({{{0, 0}, {0, 3}}}, {{0, 1}, {4, 6}}, {{3, 4}, {7, 9}}); // something put before
  check_follow({{{2, 5}, {2, 3}}}, {{0, 2}, {5, 6}}, {{0, 2}, {3, 4}}); // an edit between
  check_follow({{{2, 5}, {2, 9}}}, {{4, 6}}, {{2, 10}});                // one that a span touches
  check_follow({{{2, 5}, {2, 9}}}, {{0, 3}}, {{0, 9}});
  check_follow({{{2, 5}, {2, 9}}}, {{0, 3}, {4, 6}}, {{0, 10}});        // and two
  check_follow({{{3, 3}, {3, 4}}}, {{0, 3}, {3, 6}}, {{0, 3}, {4, 7}}); // put between two spans
  check_follow({{{3, 3}, {3, 4}}}, {{0, 6}}, {{0, 7}});                 // and within one
  check_follow({{{2, 4}, {2, 2}}}, {{2, 4}}, {{2, 2}});                 // bytes that are gone
  check_follow({{{1, 3}, {1, 2}}}, {{2, 2}}, {{1, 2}});                 // a place within an edit
  check_follow({{{2, 2}, {2, 3}}}, {{2, 2}}, {{2, 3}});                 // something put in a gone one's place
  check_follow({{{0, 1}, {0, 0}}, {{3, 4}, {2, 5}}}, {{0, 1}, {4, 9}}, {{0, 0}, {5, 10}});
}

BOOST_AUTO_TEST_CASE(every_normaliser_says_what_it_has_replaced) {
  std::mt19937 random(17);
  const auto steps = every_step();
  for (int round = 0; round < 3000; ++round) {
    const std::string text = random_text(random);
    for (const named_step& s : steps) {
      const auto [out, edits] = traced(*s.step, text);
      BOOST_TEST_CONTEXT(s.name << ": " << text) {
        BOOST_TEST(out == plain(*s.step, text));
        check_edits(text, out, edits);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(normal_forms_part_by_part_are_those_of_the_whole) {
  const auto decomposed = make_form_normalizer(normal_form::nfd);
  const auto nfc = make_form_normalizer(normal_form::nfc), nfkc = make_form_normalizer(normal_form::nfkc);
  for (char32_t code = 1; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text = "a";
    append_utf8(text, code);
    const std::string parts = plain(*decomposed, text) + "\u4e00";
    for (const normalizer* form : {nfc.get(), nfkc.get()})
      for (const std::string& t : {text, parts}) {
        const auto [out, edits] = traced(*form, t);
        if (out != plain(*form, t)) BOOST_ERROR("code point " << static_cast<unsigned>(code));
      }
  }
}

BOOST_AUTO_TEST_CASE(a_changed_character_leaves_its_neighbours_alone) {
  const auto nfc = make_form_normalizer(normal_form::nfc);
  const auto [out, edits] = traced(*nfc, "\u4e00e\u0301\u4e8c");
  BOOST_TEST(out == "\u4e00\u00e9\u4e8c");
  BOOST_REQUIRE(edits.size() == 1u);
  BOOST_TEST(edits[0].from.begin == 3u);
  BOOST_TEST(edits[0].from.end == 6u);
  BOOST_TEST(edits[0].to.begin == 3u);
  BOOST_TEST(edits[0].to.end == 5u);
}

BOOST_AUTO_TEST_SUITE_END()
