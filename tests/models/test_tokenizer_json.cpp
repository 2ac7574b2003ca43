// SPDX-License-Identifier: Apache-2.0
// tokenizer.json: every stage against what HF tokenizers makes of the same texts, options, bad files.
#include "models/byte_alphabet.hpp"
#include "models/detokenizer.hpp"
#include "models/tokenizer_json.hpp"
#include "models/tokenizer_json_stages.hpp"
#include "models/utf8.hpp"
#include "tests/growth.hpp"
#include "tests/models/shared_files.hpp"
#include "tests/models/tokenizing.hpp"

#include <boost/json.hpp>
#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::models;
using namespace troupe::models::test;
namespace json = boost::json;

namespace {

const json::value& cases() {
  static const json::value all = json::parse(models::test::read_file(
      std::filesystem::path(TROUPE_TEST_DATA).parent_path() / "models" / "tokenizer_json_cases.json"));
  return all;
}

/// The words of `text`, spelled as the reference spells them.
std::vector<std::string> words_of(
    const std::vector<std::unique_ptr<const normalizer>>& normalizers, const json_word_stages& words,
    std::string text) {
  stage_scratch s;
  s.longest = 1 << 20;
  std::string out;
  for (const auto& step : normalizers) {
    text_place place;
    auto changed = step->apply(text, place, s, out);
    if (!changed) BOOST_FAIL(changed.error().message);
    if (*changed) text = out;
  }
  if (text.empty()) return {};
  word_list list{text, {{0, text.size()}}, {}};
  const auto spelling = make_byte_spelling();
  for (const auto& stage : words.stages)
    if (auto ok = stage->apply(list, s); !ok) BOOST_FAIL(ok.error().message);
  if (words.byte_level) BOOST_REQUIRE(spelling->apply(list, s).has_value());
  std::vector<std::string> found;
  for (const text_span& word : list.words)
    found.emplace_back(list.text.substr(word.begin, word.end - word.begin));
  return found;
}

std::string small(std::string_view change, std::string_view with) {
  std::string text = R"({"version": "1.0", "added_tokens": [{"id": 4, "content": "<s>", "special": true}],
    "normalizer": null, "pre_tokenizer": null,
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
      {"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [4]}}},
    "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "unk_token": null, "vocab": {"a": 0, "b": 1, "ab": 2, "<s>": 4}, "merges": ["a b"]}})";
  if (!change.empty()) {
    const auto at = text.find(change);
    BOOST_REQUIRE(at != std::string::npos);
    text.replace(at, change.size(), with);
  }
  return text;
}

std::unique_ptr<const tokenizer> read(std::string_view text, const tokenizer_settings& settings = {}) {
  auto t = read_tokenizer_json(text, settings);
  if (!t) BOOST_FAIL(t.error().message);
  return std::move(*t);
}

} // namespace

BOOST_AUTO_TEST_SUITE(tokenizer_json_)

BOOST_AUTO_TEST_CASE(every_stage_makes_the_words_of_hf_tokenizers) {
  const json::array& texts = cases().at("texts").as_array();
  for (const json::value& entry : cases().at("stages").as_array()) {
    auto root = json_object::of(entry, "case");
    BOOST_REQUIRE(root.has_value());
    auto normalizers = read_normalizers(*root);
    if (!normalizers) BOOST_FAIL(normalizers.error().message);
    auto words = read_word_stages(*root);
    if (!words) BOOST_FAIL(words.error().message);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto want = json::value_to<std::vector<std::string>>(entry.at("words").at(i));
      const auto got = words_of(*normalizers, *words, std::string(texts[i].as_string()));
      BOOST_TEST_CONTEXT(entry.at("name") << ": " << texts[i]) {
        BOOST_CHECK_EQUAL_COLLECTIONS(got.begin(), got.end(), want.begin(), want.end());
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(every_decoder_gives_the_text_of_hf_tokenizers) {
  const json::array& sequences = cases().at("sequences").as_array();
  for (const json::value& entry : cases().at("decoders").as_array()) {
    auto root = json_object::of(entry, "case");
    BOOST_REQUIRE(root.has_value());
    auto decoder = read_decoder(*root);
    if (!decoder) BOOST_FAIL(decoder.error().message);
    regex_scratch scratch;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      std::string text;
      bool first = true;
      for (const auto& token : json::value_to<std::vector<std::string>>(sequences[i])) {
        text += decoder->decode(token, first, scratch).value();
        first = false;
      }
      const std::string_view want = entry.at("texts").at(i).as_string();
      BOOST_TEST_CONTEXT(entry.at("name") << ": " << sequences[i]) {
        // Bytes that are no character: replaced one by one there, by maximal subparts here, in the
        // detokenizer.
        if (is_valid_utf8(text)) BOOST_TEST(text == want);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(added_tokens_of_every_kind_match_as_in_hf_tokenizers) {
  const auto t = read(json::serialize(cases().at("added_tokenizer")));
  const json::array& texts = cases().at("added_texts").as_array();
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto want = json::value_to<ids_t>(cases().at("added_ids").at(i));
    BOOST_TEST_CONTEXT(texts[i]) check_ids(encode(*t, texts[i].as_string(), {.parse_special = true}), want);
  }
}

BOOST_AUTO_TEST_CASE(special_tokens_in_text_stay_text_unless_asked_for) {
  const auto t = read(small("", ""));
  check_ids(encode(*t, "ab<s>"), {2});
  check_ids(encode(*t, "ab<s>", {.parse_special = true}), {2, 4});
  check_ids(encode(*t, "ab", {.add_bos = true}), {4, 2});
  check_ids(encode(*t, "<s>ab", {.parse_special = true, .add_bos = true}), {4, 2});
  BOOST_TEST(t->vocab().add_bos);
  BOOST_TEST(*t->vocab().bos == 4);
  BOOST_TEST(t->is_special(4));
  BOOST_TEST(detokenize(*t, ids_t{4, 2}) == "ab");
  const text_span user{0, 3};
  check_ids(encode(*t, "<s>", {.parse_special = true, .untrusted = std::span(&user, 1)}), {});
}

BOOST_AUTO_TEST_CASE(a_users_bytes_hide_control_tokens_that_are_matched_after_normalising) {
  const auto t = read(small(R"("special": true)", R"("special": true, "normalized": true)"));
  check_ids(encode(*t, "a<s>", {.parse_special = true}), {0, 4});
  const text_span user{4, 8};
  check_ids(
      encode(*t, "a<s><s>a<s>b", {.parse_special = true, .untrusted = std::span(&user, 1)}),
      {0, 4, 0, 4, 1}); // the user's "<s>" has no tokens here
}

BOOST_AUTO_TEST_CASE(an_added_token_that_the_model_has_under_another_id_is_the_models) {
  const auto t = read(small(R"("id": 4)", R"("id": 5)"));
  check_ids(encode(*t, "a<s>", {.parse_special = true}), {0, 4});
  BOOST_REQUIRE(t->vocab().remarks.size() == 1u);
  BOOST_TEST(t->vocab().remarks[0].find("'<s>' has the id 5") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_normaliser_may_spell_the_bytes) {
  json::object vocab;
  for (int b = 0; b < 256; ++b) {
    std::string text;
    append_utf8(text, gpt2_alphabet.code_of[static_cast<std::size_t>(b)]);
    vocab[text] = b;
  }
  const auto t = read(json::serialize(json::object{
      {"normalizer", json::object{{"type", "ByteLevel"}}},
      {"decoder", json::object{{"type", "ByteLevel"}}},
      {"model", json::object{{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array{}}}}}));
  std::string all = " \u00e9\n";
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  std::string back;
  for (const token_id id : encode(*t, all)) back += t->bytes_of(id);
  BOOST_TEST(back == all);
}

BOOST_AUTO_TEST_CASE(a_pattern_that_needs_too_much_for_a_text_is_the_requests_error) {
  const auto t = read(small(
      R"("pre_tokenizer": null)",
      R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(?:(a+)+){2,}b|x(a|b)*\\1$"}, "behavior": "Isolated"})"));
  const auto ids = t->encode(std::string(60, 'a') + "c", {});
  BOOST_REQUIRE(!ids);
  BOOST_TEST((ids.error().code == errc::bad_request));
  BOOST_TEST(ids.error().message.find("(?:(a+)+)") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_files_beside_it_name_special_tokens_and_override_the_template) {
  tokenizer_settings settings;
  settings.eos = "b";
  settings.add_bos = false;
  settings.generation_ends = {0, 77};
  added_token extra;
  extra.id = 9;
  extra.text = "<x>";
  settings.added.push_back(extra);
  const auto t = read(small("", ""), settings);
  BOOST_TEST(!t->vocab().add_bos);
  BOOST_TEST(*t->vocab().eos == 1);
  BOOST_TEST(t->size() == 10u);
  check_ids(encode(*t, "a<x>"), {0, 9});
  check_ids(end_of_generation_ids(t->vocab()), {0, 1});
}

BOOST_AUTO_TEST_CASE(both_spellings_of_merges_and_a_model_without_a_type_are_read) {
  check_ids(encode(*read(small(R"("a b")", R"(["a", "b"])")), "ab"), {2});
  check_ids(encode(*read(small(R"("type": "BPE", "unk_token")", R"("unk_token")")), "ab"), {2});
}

BOOST_AUTO_TEST_CASE(metaspace_first_sees_a_stripped_beginning_as_hf_tokenizers_does) {
  const auto t = read(R"({"normalizer": {"type": "Strip", "strip_left": true, "strip_right": true},
    "pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": true},
    "model": {"type": "BPE", "vocab": {"a": 0, "_": 1, "_a": 2}, "merges": ["_ a"]}})");
  check_ids(encode(*t, "a a"), {2, 2});
  check_ids(encode(*t, " a a"), {0, 2});
}

BOOST_AUTO_TEST_CASE(a_text_whose_first_character_is_stripped_in_part_still_begins_there) {
  const auto t = read(
      R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKD"}, {"type": "StripAccents"}]},
    "pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": true},
    "model": {"type": "BPE", "vocab": {"a": 0, "_": 1, "\u0e32": 2}, "merges": []}})");
  check_ids(encode(*t, "\u0e33"), {1, 2}); // U+0E33 is U+0E4D, a mark, and U+0E32
  check_ids(encode(*t, "\u0301a"), {0});
}

BOOST_AUTO_TEST_CASE(bytes_that_are_no_text_do_not_begin_a_text_anew) {
  const auto t =
      read(R"({"pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"},
    "model": {"type": "BPE", "unk_token": "?", "vocab": {"a": 0, "_": 1, "_a": 2, "?": 3}, "merges": ["_ a"]}})");
  check_ids(
      encode(
          *t, "a\xFF\xFE"
              "a a"),
      {2, 3, 0, 2});
}

BOOST_AUTO_TEST_CASE(bad_files_are_refused_with_the_place) {
  const auto refused = [](const std::string& text, std::string_view needle, errc code = errc::bad_file) {
    const auto t = read_tokenizer_json(text);
    BOOST_REQUIRE_MESSAGE(!t, "accepted: " << needle);
    BOOST_TEST_CONTEXT(t.error().message) {
      BOOST_TEST((t.error().code == code));
      BOOST_TEST(t.error().message.find(needle) != std::string::npos);
    }
  };
  refused("", "not JSON");
  refused(R"({"model": {"type": "W\nP"}})", "is of type 'W?P'", errc::unsupported); // on one line
  refused("[]", "not an object");
  refused("{}", "has no model");
  refused(std::string(100, '[') + std::string(100, ']'), "not JSON");
  refused(small(R"("type": "BPE")", R"("type": "WordPiece")"), "'WordPiece'", errc::unsupported);
  refused(small(R"("type": "BPE")", R"("type": "BPE", "dropout": 0.1)"), "dropout", errc::unsupported);
  refused(
      small(R"("type": "BPE")", R"("type": "BPE", "end_of_word_suffix": "</w>")"), "end_of_word_suffix",
      errc::unsupported);
  refused(small(R"("b": 1)", R"("b": -1)"), "'b' an id");
  refused(small(R"("b": 1)", R"("b": 4294967295)"), "'b' an id");
  refused(small(R"("b": 1)", R"("b": 1.5)"), "'b' an id");
  refused(small(R"("b": 1)", R"("b": 0)"), "the id 0");
  refused(small(R"("ab": 2)", R"("ac": 2)"), "needs the token 'ab'");
  refused(small(R"("a b")", R"("a b c")"), "merge 0");
  refused(small(R"("a b")", "7"), "merge 0");
  refused(small(R"("id": 4)", R"("id": 99999999)"), "added_tokens[0].id");
  refused(small(R"("ids": [4])", R"("ids": [7])"), "adds the id 7");
  refused(small(R"("ids": [4])", R"("ids": ["x"])"), "an id that is none");
  refused(
      small(R"("normalizer": null)", R"("normalizer": {"type": "BertNormalizer"})"), "'BertNormalizer'",
      errc::unsupported);
  refused(
      small(R"("pre_tokenizer": null)", R"("pre_tokenizer": {"type": "UnicodeScripts"})"), "'UnicodeScripts'",
      errc::unsupported);
  refused(small(R"("type": "Fuse")", R"("type": "WordPiece")"), "'WordPiece'", errc::unsupported);
  refused(
      small(
          R"("pre_tokenizer": null)",
          R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[[a&&b]]"}, "behavior": "Isolated"})"),
      "'&&'", errc::unsupported);
  refused(
      small(
          R"("pre_tokenizer": null)",
          R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"})"),
      "regex", errc::unsupported);
  refused(
      small(R"("normalizer": null)", R"("normalizer": {"type": "Precompiled", "precompiled_charsmap": "!"})"),
      "base64");
  refused(
      small(
          R"("normalizer": null)",
          R"("normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////w=="})"),
      "says its array");
  refused(R"({"model": {"type": "Unigram", "vocab": []}})", "0 tokens");
  refused(R"({"model": {"type": "Unigram", "vocab": [["a"]]}})", "piece 0");
  refused(R"({"model": {"type": "Unigram", "unk_id": 4, "vocab": [["a", -1]]}})", "unk_id");
  refused(R"({"model": {"type": "Unigram", "vocab": [["a", -1], ["a", -2]]}})", "token 1 repeats");
}

BOOST_AUTO_TEST_CASE(a_long_run_of_one_letter_or_of_spaces_is_encoded_in_near_linear_time) {
  const auto folder = std::filesystem::path(TROUPE_TEST_DATA) / "tokenizers_tiny";
  for (const std::string name : {"bpe_llama3", "bpe_nfc", "spm_bpe", "unigram"}) {
    const auto t = read(models::test::read_file(folder / (name + ".json")));
    for (const std::string_view unit :
         {"a", " ", "1", "\n", "\xE4\xB8\x80", "\xCC\x81\xCC\x96", "\xFF", "<s", "<tool>"}) {
      const auto encode = [&](std::size_t bytes) {
        std::string text;
        while (text.size() < bytes) text += unit;
        BOOST_TEST(t->encode(text, {.parse_special = true}).has_value());
      };
      BOOST_TEST_CONTEXT(name << ": " << unit)
      BOOST_TEST(troupe::test::growth(96'000, encode) < troupe::test::near_linear);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
