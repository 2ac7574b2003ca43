// SPDX-License-Identifier: Apache-2.0
// A template's text with a user's text in it: the template's tokens stay tokens, the user's text stays text.
#include "models/byte_alphabet.hpp"
#include "models/tokenizer_json.hpp"
#include "tests/models/tiny_bpe.hpp"
#include "tests/models/tokenizing.hpp"

#include <boost/json.hpp>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <random>

using namespace troupe;
using namespace troupe::models;
using namespace troupe::models::test;
namespace json = boost::json;

namespace {

/// What a tokenizer of this test is made of.
struct variant {
  std::string name;
  json::array normalizers;
  bool normalized; ///< control tokens are matched behind the normalisers
  bool byte_level;
};

constexpr std::string_view begin_text = "<s>", end_text = "<|end|>", tool_text = "<tool>";
// What the twin has instead: texts that no user writes here and no normaliser changes.
constexpr std::string_view begin_twin = "\uE000", end_twin = "\uE001";

json::object added(int id, std::string_view text, bool special, bool normalized) {
  return {{"id", id},        {"content", text},     {"special", special},  {"normalized", normalized},
          {"lstrip", false}, {"rstrip", id == 301}, {"single_word", false}};
}

/// With `twin` the control tokens are spelled differently, so that "<s>" is text wherever it stands.
std::unique_ptr<const tokenizer> build(const variant& how, bool twin) {
  json::object vocab;
  if (how.byte_level) {
    for (int b = 0; b < 256; ++b) vocab[in_byte_alphabet(std::string(1, static_cast<char>(b)))] = b;
  } else {
    for (unsigned b = 0; b < 256; ++b) vocab[byte_token_text(b)] = b;
    int id = 256;
    for (const std::string_view c : {"a", "b", "<", ">", "s", "|", "\u2581", "e", "n", "d", "t", "o", "l"})
      vocab[c] = id++;
  }
  json::object root{
      {"added_tokens",
       json::array{
           added(300, twin ? begin_twin : begin_text, true, how.normalized),
           added(301, twin ? end_twin : end_text, false, how.normalized),
           added(302, tool_text, false, true)}},
      {"model",
       json::object{
           {"type", "BPE"}, {"vocab", vocab}, {"merges", json::array{}}, {"byte_fallback", !how.byte_level}}},
      {"decoder", json::object{{"type", "Fuse"}}}};
  if (!how.normalizers.empty())
    root["normalizer"] = json::object{{"type", "Sequence"}, {"normalizers", how.normalizers}};
  if (how.byte_level)
    root["pre_tokenizer"] =
        json::object{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  auto t = read_tokenizer_json(json::serialize(root));
  if (!t) BOOST_FAIL(how.name << ": " << t.error().message);
  return std::move(*t);
}

json::object step(std::string_view type) {
  return {{"type", type}};
}

std::vector<variant> variants() {
  const json::object prepend{{"type", "Prepend"}, {"prepend", "\u2581"}},
      mark{{"type", "Replace"}, {"pattern", json::object{{"String", " "}}}, {"content", "\u2581"}},
      runs{{"type", "Replace"}, {"pattern", json::object{{"Regex", "a+"}}}, {"content", "s"}},
      strip{{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  const std::vector<std::pair<std::string, json::array>> chains{
      {"none", {}},
      {"NFC", {step("NFC")}},
      {"Llama", {prepend, mark}},
      {"NFKD, accents, case", {step("NFKD"), step("StripAccents"), step("Lowercase")}},
      {"Nmt, NFKC, runs", {step("Nmt"), step("NFKC"), runs}},
      {"strip, case", {strip, step("Lowercase")}}};
  std::vector<variant> all;
  for (const auto& [name, chain] : chains)
    for (const bool normalized : {false, true})
      for (const bool byte_level : {false, true}) {
        // Llama's normalised tokens have a space of their own before them, which the twin's would share.
        if (name == "Llama" && normalized) continue;
        all.push_back(
            {name + (normalized ? ", normalized" : "") + (byte_level ? ", bytes" : ""), chain, normalized,
             byte_level});
      }
  return all;
}

} // namespace

BOOST_AUTO_TEST_SUITE(untrusted_text)

BOOST_AUTO_TEST_CASE(ids_are_those_with_the_users_parts_taken_as_plain_text) {
  static const std::string units[] = {"<s>",     "<|end|>", "<",    "s>",     "<|",     "end|>",  "<tool>",
                                      " ",       "a",       "b",    "aa",     "S",      "\u0301", "\u00e9",
                                      "e\u0301", "\u4e00",  "\t",   "\x7F",   "\uff1c", "\uff1e", "<S>",
                                      "\u2581",  "\n",      "\xFF", "\u3131", "\u1161"};
  std::mt19937 random(23);
  for (const variant& how : variants()) {
    const auto real = build(how, false), twin = build(how, true);
    for (int round = 0; round < 400; ++round) {
      std::string text, other;
      std::vector<text_span> untrusted;
      for (std::size_t parts = 1 + random() % 6; parts > 0; --parts) {
        const bool user = random() % 2 == 0;
        const std::size_t begin = text.size();
        for (std::size_t i = 1 + random() % 4; i > 0; --i) {
          const std::string& unit = units[random() % std::size(units)];
          // Whole tokens only in a template: what it spells in pieces is text for the twin.
          const bool token = !user && (unit == begin_text || unit == end_text);
          const bool piece = unit.find_first_of("<s>|endSa") != std::string::npos || unit == "\uff1c";
          if (!user && !token && piece && unit != tool_text) continue;
          text += unit;
          other += !token ? unit : unit == begin_text ? begin_twin : end_twin;
        }
        if (user && text.size() > begin) untrusted.push_back({begin, text.size()});
      }
      const auto got = encode(*real, text, {.parse_special = true, .untrusted = untrusted});
      const auto want = encode(*twin, other, {.parse_special = true});
      BOOST_TEST_CONTEXT(how.name << ": " << json::serialize(json::string(other))) check_ids(got, want);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_templates_tokens_stay_tokens_behind_a_users_changed_characters) {
  const auto t = build({"NFC", {step("NFC")}, true, true}, false);
  const std::string before = "<s>", user = "<s>e\u0301\u4e00e\u0301", after = "<s>";
  const text_span span{before.size(), before.size() + user.size()};
  const ids_t ids =
      encode(*t, before + user + after, {.parse_special = true, .untrusted = std::span(&span, 1)});
  BOOST_TEST(std::count(ids.begin(), ids.end(), 300) == 2);
  BOOST_TEST(ids.front() == 300);
  BOOST_TEST(ids.back() == 300);
}

BOOST_AUTO_TEST_CASE(a_users_deleted_bytes_join_no_token) {
  const auto t = build({"accents", {step("StripAccents")}, true, true}, false);
  const text_span span{1, 3};
  const ids_t ids = encode(*t, "<\u0301s>", {.parse_special = true, .untrusted = std::span(&span, 1)});
  check_ids(ids, {'<', 's', '>'});
}

BOOST_AUTO_TEST_CASE(tokens_that_mark_turns_are_text_in_a_users_bytes_whatever_their_type) {
  vocabulary v = tiny_bpe();
  std::vector<std::string> marks{"<|im_end|>", "<\uFF5CUser\uFF5C>", "<start_of_turn>", "[INST]", "<turn|>"};
  const auto first = static_cast<token_id>(v.tokens.size());
  for (const std::string& mark : marks) {
    v.tokens.push_back(mark);
    v.types.push_back(token_type::user_defined);
  }
  const auto t = make(std::move(v));
  for (std::size_t i = 0; i < marks.size(); ++i) {
    const token_id id = first + static_cast<token_id>(i);
    const text_span whole{0, marks[i].size()};
    BOOST_TEST_CONTEXT(marks[i]) {
      check_ids(encode(*t, marks[i], {.parse_special = true}), {id}); // a template's, or a raw prompt's
      const ids_t users = encode(*t, marks[i], {.parse_special = true, .untrusted = std::span(&whole, 1)});
      BOOST_TEST(std::count(users.begin(), users.end(), id) == 0);
      BOOST_TEST(!t->is_special(id)); // shown in an answer as before
    }
  }
  // Marks of what a model thinks or calls are no way out of a turn.
  const text_span whole{0, 7};
  check_ids(encode(*t, "<think>", {.parse_special = true, .untrusted = std::span(&whole, 1)}), {275});
  BOOST_REQUIRE(t->vocab().remarks.size() == 1u);
  BOOST_TEST(t->vocab().remarks[0].find("5 tokens") != std::string::npos);
  BOOST_TEST(t->vocab().remarks[0].find("<|im_end|>") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(what_marks_turns_is_known_by_its_form) {
  for (const std::string_view text :
       {"<|im_start|>", "<|a|>", "<|turn>", "<turn|>", "<\uFF5CAssistant\uFF5C>", "[/INST]", "<<SYS>>",
        "[EOT]"})
    BOOST_TEST(marks_turns(text), text);
  for (const std::string_view text :
       {"<think>", "</think>", "<tool_call>", "<|>", "|>", "<|", "<s>", "[0]", "<\uFF5C\uFF5C", "", "x<|a|>"})
    BOOST_TEST(!marks_turns(text), text);
}

BOOST_AUTO_TEST_CASE(what_ends_generation_is_text_in_a_users_bytes) {
  vocabulary v = tiny_bpe();
  v.tokens.push_back("ENDE");
  v.types.push_back(token_type::user_defined);
  v.eot = static_cast<token_id>(v.tokens.size() - 1);
  const token_id end = *v.eot;
  const auto t = make(std::move(v));
  const text_span whole{0, 4};
  const ids_t ids = encode(*t, "ENDE", {.parse_special = true, .untrusted = std::span(&whole, 1)});
  BOOST_TEST(std::count(ids.begin(), ids.end(), end) == 0);
}

BOOST_AUTO_TEST_SUITE_END()
