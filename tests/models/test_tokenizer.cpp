// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE: merging order, special tokens, any bytes, bad vocabularies, hostile lengths.
#include "models/detokenizer.hpp"
#include "tests/growth.hpp"
#include "tests/models/tiny_bpe.hpp"
#include "tests/models/tokenizing.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <map>
#include <random>

using namespace troupe;
using namespace troupe::models;
using namespace troupe::models::test;

namespace {

/// The definition, word by word: merge the leftmost pair of the lowest rank until there is none.
ids_t merge_by_definition(const vocabulary& v, std::string_view word) {
  std::map<std::string, token_id> id_of;
  for (std::size_t i = 0; i < v.tokens.size(); ++i) id_of.emplace(v.tokens[i], static_cast<token_id>(i));
  std::map<std::string, std::size_t> rank_of;
  for (std::size_t i = 0; i < v.merges.size(); ++i) rank_of.emplace(v.merges[i], i);
  std::vector<std::string> parts;
  for (const char c : word) parts.push_back(models::test::in_byte_alphabet(std::string(1, c)));
  while (true) {
    std::size_t best = v.merges.size(), at = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = rank_of.find(parts[i] + " " + parts[i + 1]);
      if (found != rank_of.end() && found->second < best) best = found->second, at = i;
    }
    if (best == v.merges.size()) break;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  ids_t ids;
  for (const std::string& part : parts) ids.push_back(id_of.at(part));
  return ids;
}

} // namespace

BOOST_AUTO_TEST_SUITE(tokenizer_)

BOOST_AUTO_TEST_CASE(words_are_split_and_merged_by_rank) {
  const auto t = make(tiny_bpe());
  check_ids(encode(*t, "hello world"), {259, 264});
  check_ids(encode(*t, "hell"), {258});
  check_ids(encode(*t, "aaaaa"), {266, 'a'});
  check_ids(encode(*t, "abc"), {271}); // "a b" outranks "b c"
  check_ids(encode(*t, "xbc"), {'x', 270});
  check_ids(encode(*t, "\u00e9"), {268});
  check_ids(encode(*t, ""), {});
}

BOOST_AUTO_TEST_CASE(encoding_ends_once_there_are_more_ids_than_asked_for) {
  const auto t = make(tiny_bpe());
  encode_options two;
  two.max_ids = 2;
  check_ids(encode(*t, "hello world", two), {259, 264});
  const auto more = t->encode("hello world hello", two);
  BOOST_REQUIRE(!more);
  BOOST_TEST((more.error().code == troupe::errc::context_length_exceeded));
}

BOOST_AUTO_TEST_CASE(short_and_long_words_merge_as_the_definition_says) {
  const vocabulary v = tiny_bpe();
  const auto t = make(tiny_bpe());
  std::mt19937 random(7);
  const std::string_view letters = "aaaabbchelord";
  for (int round = 0; round < 400; ++round) {
    std::string word;
    const std::size_t length = 1 + random() % (round % 4 == 0 ? 120 : 34);
    for (std::size_t i = 0; i < length; ++i) word += letters[random() % letters.size()];
    const ids_t got = encode(*t, word);
    BOOST_TEST_CONTEXT(word) check_ids(got, merge_by_definition(v, word));
  }
}

BOOST_AUTO_TEST_CASE(a_repeated_word_gets_the_same_ids_as_the_first_time) {
  const auto t = make(tiny_bpe());
  std::string text;
  ids_t want;
  for (int i = 0; i < 2000; ++i) { // long enough for the per-call word cache
    text += i % 3 == 0 ? " world" : i % 3 == 1 ? " hello" : " x";
    if (i % 3 == 0) want.push_back(264);
    if (i % 3 == 1) want.insert(want.end(), {' ', 259});
    if (i % 3 == 2) want.insert(want.end(), {' ', 'x'});
  }
  check_ids(encode(*t, text), want);
}

BOOST_AUTO_TEST_CASE(every_byte_string_round_trips) {
  const auto t = make(tiny_bpe());
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    std::string bytes = round == 0 ? all : std::string();
    for (int i = 0; round > 0 && i < 60; ++i) bytes += static_cast<char>(random());
    std::string back;
    for (const token_id id : encode(*t, bytes)) back += t->bytes_of(id);
    BOOST_TEST(back == bytes);
  }
}

BOOST_AUTO_TEST_CASE(every_byte_round_trips_when_any_one_of_them_is_a_special_token_too) {
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  for (const token_type type :
       {token_type::control, token_type::user_defined, token_type::unknown, token_type::unused}) {
    for (int b = 0; b < 256; ++b) {
      vocabulary v = tiny_bpe();
      v.types[static_cast<std::size_t>(b)] = type;
      const auto t = make(std::move(v));
      const std::string byte(1, static_cast<char>(b));
      BOOST_TEST_CONTEXT("byte " << b << " of type " << static_cast<int>(type)) {
        check_ids(encode(*t, byte), {b});
        for (const bool special : {false, true}) {
          std::string back;
          for (const token_id id : encode(*t, all, {.parse_special = special})) back += t->bytes_of(id);
          BOOST_TEST(back == all);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(ill_formed_bytes_are_words_of_their_own) {
  const auto t = make(tiny_bpe());
  check_ids(encode(*t, "he\xFFllo"), {256, 0xFF, 257, 'o'});
  check_ids(encode(*t, "\xC3"), {0xC3});                     // a character cut short
  check_ids(encode(*t, "\xED\xA0\x80"), {0xED, 0xA0, 0x80}); // a surrogate
  check_ids(encode(*t, "\xF0\x9F"), {269});
}

BOOST_AUTO_TEST_CASE(control_tokens_in_text_stay_text_unless_asked_for) {
  const auto t = make(tiny_bpe());
  const ids_t plain = encode(*t, "<|end|>");
  BOOST_TEST(plain.size() == 7u);
  BOOST_TEST(std::count(plain.begin(), plain.end(), 274) == 0);
  check_ids(encode(*t, "<|start|>hello<|end|>", {.parse_special = true}), {273, 259, 274});
  check_ids(
      encode(*t, "<|end|>more<|end|>mor", {.parse_special = true}), {276, 274, 'm', 261}); // longest first
  check_ids(encode(*t, "<|<|end|>", {.parse_special = true}), {'<', '|', 274});
}

BOOST_AUTO_TEST_CASE(user_defined_tokens_always_match) {
  const auto t = make(tiny_bpe());
  check_ids(encode(*t, "hello<think>hello"), {259, 275, 259});
}

BOOST_AUTO_TEST_CASE(unused_tokens_never_match) {
  const auto t = make(tiny_bpe());
  BOOST_TEST(encode(*t, "<unused>", {.parse_special = true}).size() == 8u);
}

BOOST_AUTO_TEST_CASE(untrusted_spans_hide_control_tokens_that_touch_them) {
  const auto t = make(tiny_bpe());
  const std::string text = "<|end|>a<|end|>b<|end|>";
  const std::vector<text_span> user{{7, 16}};
  const ids_t ids = encode(*t, text, {.parse_special = true, .untrusted = user});
  BOOST_TEST(ids.front() == 274);
  BOOST_TEST(ids.back() == 274);
  BOOST_TEST(std::count(ids.begin(), ids.end(), 274) == 2);
  // One byte from the user at either end of the text of a token is enough.
  for (const text_span part : {text_span{0, 1}, text_span{6, 7}, text_span{3, 4}}) {
    const ids_t broken = encode(*t, "<|end|>", {.parse_special = true, .untrusted = std::span(&part, 1)});
    BOOST_TEST(std::count(broken.begin(), broken.end(), 274) == 0);
  }
  // User-defined tokens are not a way out of the text: they match there too.
  const text_span whole{0, 7};
  check_ids(encode(*t, "<think>", {.parse_special = true, .untrusted = std::span(&whole, 1)}), {275});
}

BOOST_AUTO_TEST_CASE(bos_and_eos_are_added_once) {
  const auto t = make(tiny_bpe());
  const encode_options both{.parse_special = true, .add_bos = true, .add_eos = true};
  check_ids(encode(*t, "hello", both), {273, 259, 274});
  check_ids(encode(*t, "<|start|>hello<|end|>", both), {273, 259, 274});
  check_ids(encode(*t, "", both), {273, 274});
}

BOOST_AUTO_TEST_CASE(a_byte_without_a_token_is_left_out_before_merging) {
  vocabulary v = tiny_bpe();
  v.tokens[0x01] = "<one>";
  const auto t = make(std::move(v));
  check_ids(encode(*t, "!\x01!"), {'!', '!'});
  check_ids(encode(*t, "\x01"), {});
}

BOOST_AUTO_TEST_CASE(bytes_that_are_left_out_are_counted_and_the_first_is_found) {
  vocabulary v = tiny_bpe();
  v.tokens[0x01] = "<one>";
  v.tokens[0xE2] = "<e2>"; // the first byte of many characters of three
  v.tokens[0xFF] = "<ff>"; // no UTF-8
  const auto t = make(std::move(v));
  const auto lost = [&](std::string_view text) {
    const auto found = find_lost(*t, text, {});
    BOOST_REQUIRE(found);
    return std::pair(found->count, found->first);
  };
  using pair = std::pair<std::size_t, std::size_t>;
  BOOST_TEST((lost("") == pair(0, 0)));
  BOOST_TEST((lost("hello world") == pair(0, 0)));
  BOOST_TEST((lost("\x01") == pair(1, 0)));
  BOOST_TEST((lost("hello \x01 world \x01\x01") == pair(3, 6)));
  BOOST_TEST((lost("\xC3\xA9 \xE2\x82\xAC!") == pair(1, 3))); // the euro sign's other bytes have tokens
  BOOST_TEST((lost("ab\xFF") == pair(1, 2)));
  std::string repeated;
  for (int i = 0; i < 2000; ++i) repeated += "hello x\x01y ";
  BOOST_TEST((lost(repeated) == pair(2000, 7))); // words seen before count too
}

BOOST_AUTO_TEST_CASE(byte_tokens_stand_for_their_byte) {
  vocabulary v = tiny_bpe();
  v.tokens.push_back("<0x41>");
  v.types.push_back(token_type::byte);
  const auto t = make(std::move(v));
  BOOST_TEST(t->bytes_of(static_cast<token_id>(t->size() - 1)) == "A");
  check_ids(encode(*t, "A"), {'A'}); // the plain token still comes first
}

BOOST_AUTO_TEST_CASE(whole_words_win_over_merges_in_the_llama_3_family) {
  vocabulary v = tiny_bpe();
  v.tokens.push_back("xyz");
  v.types.push_back(token_type::normal);
  const auto whole = static_cast<token_id>(v.tokens.size() - 1);
  vocabulary llama = v;
  llama.pre = "llama-bpe";
  check_ids(encode(*make(std::move(llama)), "xyz"), {whole});
  check_ids(encode(*make(std::move(v)), "xyz"), {'x', 'y', 'z'});
}

BOOST_AUTO_TEST_CASE(bytes_of_an_id_out_of_range_are_empty) {
  const auto t = make(tiny_bpe());
  BOOST_TEST(t->bytes_of(-1).empty());
  BOOST_TEST(t->bytes_of(1 << 20).empty());
  BOOST_TEST(t->bytes_of(264) == " world");
  BOOST_TEST(t->bytes_of(273) == "<|start|>");
}

BOOST_AUTO_TEST_CASE(end_of_generation_ids_hold_eos_and_the_known_turn_ends) {
  vocabulary v = tiny_bpe();
  check_ids(end_of_generation_ids(v), {274});
  v.tokens.push_back("<|eot_id|>");
  v.types.push_back(token_type::control);
  v.tokens.push_back("<|im_end|>");
  v.types.push_back(token_type::normal); // the same text, but no added token
  check_ids(end_of_generation_ids(v), {274, 278});
  for (const std::string_view text : {"_<EOT>", "[EOT]", "<end_of_utterance>"}) {
    v.tokens.emplace_back(text);
    v.types.push_back(token_type::user_defined);
  }
  check_ids(end_of_generation_ids(v), {274, 278, 280, 281, 282});
}

BOOST_AUTO_TEST_CASE(the_end_of_a_harmony_message_ends_no_generation) {
  vocabulary v = tiny_bpe();
  v.eos.reset();
  check_ids(end_of_generation_ids(v), {274});
  for (const std::string_view text : {"<|return|>", "<|call|>"}) {
    v.tokens.emplace_back(text);
    v.types.push_back(token_type::control);
  }
  check_ids(end_of_generation_ids(v), {278, 279});
}

BOOST_AUTO_TEST_CASE(qwens_words_are_composed_first_as_its_tokenizer_json_says) {
  for (const auto& [family, composes] :
       {std::pair("qwen2", true),
        {"qwen35", true},
        {"command-r", true},
        {"llama-bpe", false},
        {"gpt-2", false}}) {
    vocabulary v = tiny_bpe();
    v.pre = family;
    const auto t = make(std::move(v));
    BOOST_TEST_CONTEXT(family)
    check_ids(encode(*t, "e\u0301"), composes ? ids_t{268} : ids_t{'e', 0xCC, 0x81});
  }
}

BOOST_AUTO_TEST_CASE(bad_vocabularies_are_refused_with_the_place) {
  const auto refused = [](auto change, std::string_view needle, errc code = errc::bad_file) {
    vocabulary v = tiny_bpe();
    change(v);
    auto t = make_tokenizer(std::move(v));
    BOOST_REQUIRE_MESSAGE(!t, "accepted: " << needle);
    BOOST_TEST((t.error().code == code));
    BOOST_TEST_CONTEXT(t.error().message) BOOST_TEST(t.error().message.find(needle) != std::string::npos);
  };
  refused([](vocabulary& v) { v.tokens.clear(); }, "0 tokens");
  refused([](vocabulary& v) { v.types.pop_back(); }, "token types");
  refused([](vocabulary& v) { v.types[3] = static_cast<token_type>(9); }, "token 3 has type 9");
  refused([](vocabulary& v) { v.scores.assign(3, 0.0f); }, "token scores");
  refused([](vocabulary& v) { v.tokens[5] = v.tokens[6]; }, "token 6 repeats");
  refused([](vocabulary& v) { v.tokens[5] = std::string(5000, 'a'); }, "token 5 is 5000 bytes");
  refused([](vocabulary& v) { v.tokens[5] = "\xFF"; }, "token 5 is not valid UTF-8");
  refused([](vocabulary& v) { v.merges[2] = "nospace"; }, "merge 2");
  refused([](vocabulary& v) { v.merges[2] = "a b c"; }, "merge 2");
  refused([](vocabulary& v) { v.merges[2] = " b"; }, "merge 2");
  refused([](vocabulary& v) { v.merges[2] = "b "; }, "merge 2");
  refused([](vocabulary& v) { v.merges[2] = "q q"; }, "needs the token 'qq'");
  refused([](vocabulary& v) { v.bos = 100000; }, "bos token id 100000");
  refused([](vocabulary& v) { v.eos = -1; }, "eos token id -1");
  refused([](vocabulary& v) { v.bos.reset(), v.add_bos = true; }, "add_bos_token");
  refused([](vocabulary& v) { v.pre = "klingon"; }, "smollm", errc::unsupported);
  refused([](vocabulary& v) { v.model = "rwkv"; }, "gpt2", errc::unsupported);
}

BOOST_AUTO_TEST_CASE(a_long_run_of_anything_is_encoded_in_near_linear_time) {
  for (const std::string_view family :
       {"gpt-2",      "smollm",      "llama-bpe",      "qwen2",   "deepseek-llm", "default",   "gpt-4o",
        "tekken",     "deepseek-v3", "deepseek-coder", "falcon",  "qwen35",       "bloom",     "bailingmoe",
        "seed-coder", "exaone-moe",  "jais-2",         "kimi-k2", "youtu",        "chameleon", "spark2_5",
        "minicpm5",   "afmoe",       "tiny_aya",       "laguna",  "superbpe"}) {
    vocabulary v = tiny_bpe();
    v.pre = family;
    const auto t = make(std::move(v));
    const auto check = [&](std::string_view unit, std::string_view end, std::size_t size) {
      const auto take = [&](std::size_t bytes) {
        std::string text;
        while (text.size() < bytes) text += unit;
        text += end;
        std::size_t given = 0;
        for (const token_id id : encode(*t, text, {.parse_special = true})) given += t->bytes_of(id).size();
        BOOST_TEST(given == text.size());
      };
      BOOST_TEST_CONTEXT(family << ": " << unit << end)
      BOOST_TEST(troupe::test::growth(size, take) < troupe::test::near_linear);
    };
    for (const std::string_view unit : {"a", " "}) check(unit, "", 96'000);
    // What follows decides whether a regex has to turn back.
    for (const std::string_view unit :
         {"a", " ", "'", "\n", " \n", "1", "!", "\xFF", "<|", "<|end|", "\xE4\xB8\x80"})
      for (const std::string_view end : {"x", "\u4e00"}) check(unit, end, 16'000);
  }
}

BOOST_AUTO_TEST_SUITE_END()
