// SPDX-License-Identifier: Apache-2.0
// Normal forms and classes beyond what the tokenizer cases cover.
#include "models/unicode_text.hpp"
#include "models/utf8.hpp"
#include "tests/growth.hpp"

#include <boost/test/unit_test.hpp>
#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <random>

using namespace troupe::models;

namespace {

// The sanitizers see the same branches in every eleventh character.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr char32_t every = 11;
#else
constexpr char32_t every = 1;
#endif

std::string by_utf8proc(const std::string& text, normal_form form) {
  const auto chosen = form == normal_form::nfc    ? utf8proc_NFC
                      : form == normal_form::nfd  ? utf8proc_NFD
                      : form == normal_form::nfkc ? utf8proc_NFKC
                                                  : utf8proc_NFKD;
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> made(
      chosen(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str())), &std::free);
  return reinterpret_cast<const char*>(made.get());
}

/// Characters that HF tokenizers leaves as they are.
bool decomposed_late(char32_t code) {
  return code == 0x32FF || (code >= 0xA7F2 && code <= 0xA7F4) || code == 0xAB69 ||
         (code >= 0x10780 && code <= 0x107BF) || code == 0x11938 || code == 0x1F16C ||
         (code >= 0x1FBF0 && code <= 0x1FBF9) || (code >= 0x1E030 && code <= 0x1E08F);
}

/// Marks that HF tokenizers orders as letters, and letters that it orders as marks.
bool ordered_otherwise(char32_t code) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return is_mark(code) != (category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME);
}

std::string normal(std::string_view text, normal_form form) {
  std::string out;
  return normalize(text, form, out) ? out : std::string(text);
}

} // namespace

BOOST_AUTO_TEST_SUITE(unicode_text)

BOOST_AUTO_TEST_CASE(normal_forms_are_those_of_utf8proc_for_every_character_and_for_random_texts) {
  std::mt19937 random(9);
  const std::vector<char32_t> marks{0x301,  0x316, 0x327, 0x345,  0x1100, 0x1161,
                                    0x11A8, 'a',   0xE9,  0x212B, 0x9BE};
  for (const normal_form form : {normal_form::nfc, normal_form::nfd, normal_form::nfkc, normal_form::nfkd}) {
    for (char32_t code = 1; code < 0x110000; code += every) {
      if (code >= 0xD800 && code < 0xE000) continue;
      if (decomposed_late(code)) continue;
      std::string text;
      append_utf8(text, code);
      const std::string want = by_utf8proc(text, form);
      // Compared first: a million assertions take long.
      if (normal(text, form) != want) BOOST_ERROR("U+" << std::hex << static_cast<unsigned>(code));
    }
    for (int round = 0; round < 500; ++round) {
      std::string text;
      for (int i = 0; i < 20; ++i) {
        const char32_t code =
            random() % 2 ? marks[random() % marks.size()] : static_cast<char32_t>(0x20 + random() % 0x2000);
        if (!ordered_otherwise(code)) append_utf8(text, code);
      }
      BOOST_TEST(normal(text, form) == by_utf8proc(text, form));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_mark_that_is_younger_than_the_tables_stays_in_its_place) {
  BOOST_TEST(normal("e\u0345\u1DF9\u0316", normal_form::nfc) == "e\u0345\u1DF9\u0316");
  BOOST_TEST(normal("e\u0345\u0316", normal_form::nfc) == "e\u0316\u0345");
}

BOOST_AUTO_TEST_CASE(a_long_run_of_marks_in_the_wrong_order_is_sorted_in_near_linear_time) {
  const auto sort = [](std::size_t bytes) {
    std::string text = "a";
    while (text.size() < bytes) text += "\u0301\u0316";
    const std::string sorted = normal(text, normal_form::nfd);
    BOOST_TEST(sorted.size() == text.size());
    BOOST_TEST(sorted.substr(1, 4) == "\u0316\u0316");
  };
  BOOST_TEST(troupe::test::growth(240'000, sort) < troupe::test::near_linear);
}

BOOST_AUTO_TEST_CASE(clusters_end_where_unicode_ends_them) {
  const std::string text = "e\u0301\r\nx\U0001F468\u200D\U0001F469y";
  BOOST_TEST(grapheme_end(text, 0) == 3u);
  BOOST_TEST(grapheme_end(text, 3) == 5u);
  BOOST_TEST(grapheme_end(text, 6) == text.size() - 1);
}

BOOST_AUTO_TEST_SUITE_END()
