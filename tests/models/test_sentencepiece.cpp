// SPDX-License-Identifier: Apache-2.0
// SentencePiece vocabularies of GGUF files: merges by score, byte fallback, spaces, Unigram.
#include "models/detokenizer.hpp"
#include "models/utf8.hpp"
#include "tests/growth.hpp"
#include "tests/models/tokenizing.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <random>

using namespace troupe;
using namespace troupe::models;
using namespace troupe::models::test;

namespace {

constexpr token_id unknown = 0, bos = 1, eos = 2, first_byte = 3;

/// <unk> <s> </s>, 256 byte tokens, then the pieces with their scores: ids from 259 on.
vocabulary
spm(const std::vector<std::pair<std::string, float>>& pieces, std::string model = "llama",
    bool bytes = true) {
  vocabulary v;
  v.model = std::move(model);
  const auto add = [&](std::string text, token_type type, float score) {
    v.tokens.push_back(std::move(text));
    v.types.push_back(type);
    v.scores.push_back(score);
  };
  add("<unk>", token_type::unknown, 0);
  add("<s>", token_type::control, 0);
  add("</s>", token_type::control, 0);
  for (unsigned b = 0; b < 256; ++b)
    add(bytes ? byte_token_text(b) : "", bytes ? token_type::byte : token_type::unused, 0);
  for (const auto& [text, score] : pieces) add(text, token_type::normal, score);
  v.unknown = unknown;
  v.bos = bos;
  v.eos = eos;
  v.add_space_prefix = true;
  return v;
}

token_id id_of(const tokenizer& t, std::string_view text) {
  for (std::size_t i = 0; i < t.size(); ++i)
    if (t.vocab().tokens[i] == text) return static_cast<token_id>(i);
  return -1;
}

std::vector<std::pair<std::string, float>> letters() {
  return {{"\u2581", -9}, {"a", -10},      {"b", -11}, {"c", -12},           {"ab", -3},     {"bc", -2},
          {"abc", -5},    {"\u2581a", -4}, {"aa", -6}, {"\u2581\u2581", -7}, {"\u00e9", -13}};
}

/// The definition: of all neighbours whose joined text is a normal token the best score first, then the
/// leftmost; what is no token at the end becomes bytes.
ids_t merge_by_definition(const vocabulary& v, std::string_view text) {
  const auto find = [&](const std::string& piece) -> token_id {
    for (std::size_t i = 0; i < v.tokens.size(); ++i)
      if (v.types[i] == token_type::normal && v.tokens[i] == piece) return static_cast<token_id>(i);
    return -1;
  };
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < text.size(); at += decode_utf8(text, at).length)
    parts.emplace_back(text.substr(at, decode_utf8(text, at).length));
  while (true) {
    float best = -1e30f;
    std::size_t place = parts.size();
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const token_id id = find(parts[i] + parts[i + 1]);
      if (id >= 0 && v.scores[static_cast<std::size_t>(id)] > best)
        best = v.scores[static_cast<std::size_t>(id)], place = i;
    }
    if (place == parts.size()) break;
    parts[place] += parts[place + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
  ids_t ids;
  for (const std::string& part : parts) {
    if (const token_id id = find(part); id >= 0)
      ids.push_back(id);
    else
      for (const char c : part) ids.push_back(first_byte + static_cast<unsigned char>(c));
  }
  return ids;
}

} // namespace

BOOST_AUTO_TEST_SUITE(sentencepiece)

BOOST_AUTO_TEST_CASE(the_best_score_merges_first_and_a_space_stands_before_the_text) {
  const auto t = make(spm(letters()));
  check_ids(encode(*t, "abc"), {id_of(*t, "\u2581a"), id_of(*t, "bc")});
  check_ids(encode(*t, "cab"), {id_of(*t, "\u2581"), id_of(*t, "c"), id_of(*t, "ab")});
  check_ids(encode(*t, ""), {});
  check_ids(encode(*t, " "), {id_of(*t, "\u2581\u2581")});
}

BOOST_AUTO_TEST_CASE(without_the_prefix_nothing_stands_before_the_text) {
  vocabulary v = spm(letters());
  v.add_space_prefix = false;
  const auto t = make(std::move(v));
  check_ids(encode(*t, "ab"), {id_of(*t, "ab")});
  check_ids(encode(*t, " ab"), {id_of(*t, "\u2581"), id_of(*t, "ab")});
  BOOST_TEST(detokenize(*t, encode(*t, " ab")) == " ab");
}

BOOST_AUTO_TEST_CASE(random_words_merge_as_the_definition_says) {
  const vocabulary v = spm(letters());
  const auto t = make(spm(letters()));
  std::mt19937 random(5);
  const std::vector<std::string> units{"a", "b", "c", " ", "\u00e9", "\u4e00", "a"};
  for (int round = 0; round < 300; ++round) {
    std::string text, marked = "\u2581";
    for (std::size_t i = 1 + random() % 70; i > 0; --i) {
      const std::string& unit = units[random() % units.size()];
      text += unit;
      marked += unit == " " ? "\u2581" : unit;
    }
    BOOST_TEST_CONTEXT(text) check_ids(encode(*t, text), merge_by_definition(v, marked));
    BOOST_TEST(detokenize(*t, encode(*t, text)) == text);
  }
}

BOOST_AUTO_TEST_CASE(a_character_without_a_token_may_still_take_part_in_a_merge) {
  const auto t = make(spm({{"\u2581", -1}, {"xy", -2}}));
  check_ids(encode(*t, "xy"), {id_of(*t, "\u2581"), id_of(*t, "xy")});
  check_ids(encode(*t, "x"), {id_of(*t, "\u2581"), first_byte + 'x'});
}

BOOST_AUTO_TEST_CASE(what_has_no_token_becomes_bytes_and_without_byte_tokens_unknown) {
  const auto t = make(spm(letters()));
  check_ids(
      encode(*t, "\u20ac"), {id_of(*t, "\u2581"), first_byte + 0xE2, first_byte + 0x82, first_byte + 0xAC});
  check_ids(encode(*t, "a\xFF"), {id_of(*t, "\u2581a"), first_byte + 0xFF});
  const auto poor = make(spm(letters(), "llama", false));
  check_ids(encode(*poor, "a\u20ac"), {id_of(*poor, "\u2581a"), unknown});
}

BOOST_AUTO_TEST_CASE(a_space_stands_behind_every_added_token_too) {
  vocabulary v = spm(letters());
  v.tokens.push_back("<tool>");
  v.types.push_back(token_type::user_defined);
  v.scores.push_back(0);
  const auto t = make(std::move(v));
  const token_id tool = id_of(*t, "<tool>"), space_a = id_of(*t, "\u2581a");
  check_ids(encode(*t, "a<tool>a<tool>"), {space_a, tool, space_a, tool});
  check_ids(encode(*t, "<s>a", {.parse_special = true}), {bos, space_a});
}

BOOST_AUTO_TEST_CASE(phi_3s_added_tokens_take_the_white_space_behind_them_along) {
  const auto with = [](bool strips) {
    vocabulary v = spm({{"\u2581", -9}, {"H", -10}, {"i", -11}, {"Hi", -3}, {"\u2581Hi", -2}, {"\n", -12}});
    for (const std::string_view text : {"<|user|>", "<|end|>", "<|assistant|>", "<|endoftext|>"}) {
      v.tokens.emplace_back(text);
      v.types.push_back(token_type::control);
      v.scores.push_back(0);
    }
    v.strips_behind_added = strips;
    return make(std::move(v));
  };
  const auto t = with(true), other = with(false);
  const token_id user = id_of(*t, "<|user|>"), hi = id_of(*t, "\u2581Hi"), end = id_of(*t, "<|end|>"),
                 assistant = id_of(*t, "<|assistant|>"), text_end = id_of(*t, "<|endoftext|>"),
                 space = id_of(*t, "\u2581"), line = id_of(*t, "\n");
  const encode_options special{.parse_special = true};
  check_ids(encode(*t, "<|user|>\nHi<|end|>\n<|assistant|>\n", special), {user, hi, end, assistant});
  check_ids(encode(*t, "<s>\n", special), {bos, space, line});
  check_ids(encode(*t, "<|endoftext|>\n", special), {text_end, space, line});
  check_ids(encode(*t, "</s> \n\tHi", special), {eos, hi});
  check_ids(
      encode(*other, "<|user|>\nHi<|end|>\n", special),
      {user, space, line, id_of(*t, "Hi"), end, space, line});
}

BOOST_AUTO_TEST_CASE(a_single_character_keeps_its_id_whatever_its_type) {
  for (const token_type type : {token_type::control, token_type::unused, token_type::unknown}) {
    vocabulary v = spm(letters());
    const auto a =
        static_cast<std::size_t>(std::find(v.tokens.begin(), v.tokens.end(), "c") - v.tokens.begin());
    v.types[a] = type;
    const auto t = make(std::move(v));
    check_ids(encode(*t, "c"), {id_of(*t, "\u2581"), static_cast<token_id>(a)});
  }
}

BOOST_AUTO_TEST_CASE(text_that_spells_a_control_or_byte_token_stays_text) {
  const auto t = make(spm(
      {{"\u2581", -1},
       {"<", -2},
       {"s", -3},
       {">", -4},
       {"<s", -5},
       {"0", -6},
       {"x", -7},
       {"A", -8},
       {"<0", -9},
       {"<0x", -10},
       {"<0x0", -11},
       {"<0x0A", -12}}));
  const ids_t control = encode(*t, "<s>"), byte = encode(*t, "<0x0A>");
  check_ids(control, {id_of(*t, "\u2581"), id_of(*t, "<s"), id_of(*t, ">")});
  check_ids(byte, {id_of(*t, "\u2581"), id_of(*t, "<0x0A"), id_of(*t, ">")});
}

BOOST_AUTO_TEST_CASE(streaming_drops_the_first_space_of_the_whole_output_only) {
  const auto t = make(spm(letters()));
  const token_id space_a = id_of(*t, "\u2581a"), spaces = id_of(*t, "\u2581\u2581");
  detokenizer whole(*t);
  BOOST_TEST(whole.push(bos) == "");
  BOOST_TEST(whole.push(space_a) == "a");
  BOOST_TEST(whole.push(space_a) == " a");
  BOOST_TEST(whole.push(first_byte + 0xE2) == "");
  BOOST_TEST(whole.push(first_byte + 0x82) == "");
  BOOST_TEST(whole.push(first_byte + 0xAC) == "\u20ac");
  BOOST_TEST(whole.push(spaces) == "  ");
  detokenizer further(*t, false, true);
  BOOST_TEST(further.push(space_a) == " a");
  BOOST_TEST(detokenize(*t, ids_t{spaces}) == " ");
}

BOOST_AUTO_TEST_CASE(a_vocabulary_without_scores_is_refused) {
  vocabulary v = spm(letters());
  v.scores.clear();
  const auto t = make_tokenizer(std::move(v));
  BOOST_REQUIRE(!t);
  BOOST_TEST(t.error().message.find("scores") != std::string::npos);
  vocabulary longer = spm({{std::string(600, 'a'), -1}});
  BOOST_TEST(!make_tokenizer(std::move(longer)));
}

BOOST_AUTO_TEST_CASE(unigram_takes_the_path_of_the_best_sum) {
  const auto t =
      make(spm({{"\u2581", -2}, {"a", -3}, {"b", -3}, {"ab", -5}, {"\u2581a", -3.5f}, {"abab", -20}}, "t5"));
  check_ids(encode(*t, "ab"), {id_of(*t, "\u2581a"), id_of(*t, "b")});
  check_ids(encode(*t, "bab"), {id_of(*t, "\u2581"), id_of(*t, "b"), id_of(*t, "ab")});
  check_ids(
      encode(*t, "b\u00e9"), {id_of(*t, "\u2581"), id_of(*t, "b"), first_byte + 0xC3, first_byte + 0xA9});
}

BOOST_AUTO_TEST_CASE(unknown_neighbours_are_one_token_without_byte_tokens) {
  const auto t = make(spm({{"\u2581", -2}, {"a", -3}}, "t5", false));
  check_ids(encode(*t, "axya"), {id_of(*t, "\u2581"), id_of(*t, "a"), unknown, id_of(*t, "a")});
}

BOOST_AUTO_TEST_CASE(merges_over_characters_with_space_marks_stay_within_lines) {
  vocabulary v =
      spm({{"\u2581", 0}, {"a", 0}, {"b", 0}, {"\n", 0}, {"\u2581a", 0}, {"\n\n", 0}, {"ab", 0}}, "gemma4");
  v.scores.clear();
  v.add_space_prefix = false;
  v.merges = {"\u2581 a", "\n \n", "a b"};
  const auto t = make(std::move(v));
  check_ids(
      encode(*t, " ab\n\n\nab\u20ac"),
      {id_of(*t, "\u2581a"), id_of(*t, "b"), id_of(*t, "\n\n"), id_of(*t, "\n"), id_of(*t, "ab"),
       first_byte + 0xE2, first_byte + 0x82, first_byte + 0xAC});
}

BOOST_AUTO_TEST_CASE(words_between_white_space_are_merged_over_characters) {
  vocabulary v;
  v.model = "whitespace";
  v.tokens = {"<unk>", "\u4f60", "\u597d", "\u4f60\u597d", "a", "b", "ab", ",", "!", "!!"};
  v.types.assign(v.tokens.size(), token_type::normal);
  v.types[0] = token_type::unknown;
  v.unknown = 0;
  v.merges = {"\u4f60 \u597d", "a b", "! !"};
  v.lowercase = true;
  const auto t = make(std::move(v));
  // HF tokenizers 0.23 with Lowercase, Whitespace and the same merges.
  check_ids(encode(*t, "\u4f60\u597d Ab,\tx"), {3, 6, 7, 0});
  check_ids(encode(*t, "a b"), {4, 5});
  check_ids(encode(*t, "ab!!,  \u597d\u4f60\u597dxyA"), {6, 9, 7, 2, 3, 0, 0, 4});
  check_ids(encode(*t, "x\u00a0y"), {0, 0});
  check_ids(encode(*t, " \n "), {});
  check_ids(
      encode(
          *t, "a\xFF"
              "b"),
      {4, 0, 5});
  BOOST_TEST(detokenize(*t, ids_t{6, 7, 3}) == "ab,\u4f60\u597d");
}

BOOST_AUTO_TEST_CASE(a_long_run_of_one_letter_or_of_spaces_is_encoded_in_near_linear_time) {
  for (const std::string model : {"llama", "t5"}) {
    const auto t = make(spm(letters(), model));
    for (const std::string_view unit : {"a", " ", "ab", "\u4e00", "\xFF", "a ", "<s"}) {
      const auto take = [&](std::size_t bytes) {
        std::string text;
        while (text.size() < bytes) text += unit;
        BOOST_TEST(!encode(*t, text, {.parse_special = true}).empty());
      };
      BOOST_TEST_CONTEXT(model << ": " << unit)
      BOOST_TEST(troupe::test::growth(96'000, take) < troupe::test::near_linear);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
