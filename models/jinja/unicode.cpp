// SPDX-License-Identifier: Apache-2.0
// What Python's str methods know about characters.
#include "models/jinja/unicode.hpp"

#include "models/code_ranges.hpp"
#include "models/jinja/unicode_case.hpp"
#include "models/utf8.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>

namespace troupe::models::jinja {
namespace {

utf8proc_category_t category(char32_t code) noexcept {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

// Unicode 14: Numeric_Type=Digit, and the letters of Numeric_Type=Numeric.
constexpr code_range digit_forms[] = {
    {0xB2, 0xB3},     {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},   {0x2070, 0x2070},
    {0x2074, 0x2079}, {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247C},   {0x2488, 0x2490},
    {0x24EA, 0x24EA}, {0x24F5, 0x24FD},   {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},
    {0x278A, 0x2792}, {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
constexpr code_range numeric_letters[] = {
    {0x3405, 0x3405},   {0x3483, 0x3483},   {0x382A, 0x382A},   {0x3B4D, 0x3B4D},   {0x4E00, 0x4E00},
    {0x4E03, 0x4E03},   {0x4E07, 0x4E07},   {0x4E09, 0x4E09},   {0x4E5D, 0x4E5D},   {0x4E8C, 0x4E8C},
    {0x4E94, 0x4E94},   {0x4E96, 0x4E96},   {0x4EBF, 0x4EC0},   {0x4EDF, 0x4EDF},   {0x4EE8, 0x4EE8},
    {0x4F0D, 0x4F0D},   {0x4F70, 0x4F70},   {0x5104, 0x5104},   {0x5146, 0x5146},   {0x5169, 0x5169},
    {0x516B, 0x516B},   {0x516D, 0x516D},   {0x5341, 0x5341},   {0x5343, 0x5345},   {0x534C, 0x534C},
    {0x53C1, 0x53C4},   {0x56DB, 0x56DB},   {0x58F1, 0x58F1},   {0x58F9, 0x58F9},   {0x5E7A, 0x5E7A},
    {0x5EFE, 0x5EFF},   {0x5F0C, 0x5F0E},   {0x5F10, 0x5F10},   {0x62FE, 0x62FE},   {0x634C, 0x634C},
    {0x67D2, 0x67D2},   {0x6F06, 0x6F06},   {0x7396, 0x7396},   {0x767E, 0x767E},   {0x8086, 0x8086},
    {0x842C, 0x842C},   {0x8CAE, 0x8CAE},   {0x8CB3, 0x8CB3},   {0x8D30, 0x8D30},   {0x9621, 0x9621},
    {0x9646, 0x9646},   {0x964C, 0x964C},   {0x9678, 0x9678},   {0x96F6, 0x96F6},   {0xF96B, 0xF96B},
    {0xF973, 0xF973},   {0xF978, 0xF978},   {0xF9B2, 0xF9B2},   {0xF9D1, 0xF9D1},   {0xF9D3, 0xF9D3},
    {0xF9FD, 0xF9FD},   {0x20001, 0x20001}, {0x20064, 0x20064}, {0x200E2, 0x200E2}, {0x20121, 0x20121},
    {0x2092A, 0x2092A}, {0x20983, 0x20983}, {0x2098C, 0x2098C}, {0x2099C, 0x2099C}, {0x20AEA, 0x20AEA},
    {0x20AFD, 0x20AFD}, {0x20B19, 0x20B19}, {0x22390, 0x22390}, {0x22998, 0x22998}, {0x23B1B, 0x23B1B},
    {0x2626D, 0x2626D}, {0x2F890, 0x2F890}};

const special_case* find_special(char32_t code) noexcept {
  const auto at = std::lower_bound(
      std::begin(special_cases), std::end(special_cases), code,
      [](const special_case& s, char32_t c) { return s.code < c; });
  return at != std::end(special_cases) && at->code == code ? at : nullptr;
}

void append_mapped(std::string& out, const std::array<char32_t, 3>& codes) {
  for (const char32_t code : codes) {
    if (code != 0) append_utf8(out, code);
  }
}

void append_upper(std::string& out, char32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code >= 'a' && code <= 'z' ? code - 32 : code);
  } else if (const special_case* s = find_special(code)) {
    append_mapped(out, s->upper);
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code))));
  }
}

void append_title(std::string& out, char32_t code) {
  if (code < 0x80) {
    append_upper(out, code);
  } else if (const special_case* s = find_special(code)) {
    append_mapped(out, s->title);
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code))));
  }
}

bool is_case_ignorable(char32_t code) noexcept {
  switch (code) { // word-break classes MidLetter, MidNumLet and Single_Quote
  case '\'':
  case '.':
  case ':':
  case 0xB7:
  case 0x387:
  case 0x55F:
  case 0x5F4:
  case 0x2018:
  case 0x2019:
  case 0x2024:
  case 0x2027:
  case 0xFE13:
  case 0xFE52:
  case 0xFE55:
  case 0xFF07:
  case 0xFF0E:
  case 0xFF1A:
    return true;
  default:
    break;
  }
  switch (category(code)) {
  case UTF8PROC_CATEGORY_MN:
  case UTF8PROC_CATEGORY_ME:
  case UTF8PROC_CATEGORY_CF:
  case UTF8PROC_CATEGORY_LM:
  case UTF8PROC_CATEGORY_SK:
    return true;
  default:
    return false;
  }
}

/// Whether the capital sigma at [begin, end) ends a word (Unicode 3.13, Final_Sigma).
bool is_final_sigma(std::string_view text, std::size_t begin, std::size_t end) {
  bool after_cased = false;
  for (std::size_t at = begin; at > 0;) {
    do --at;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
    const char32_t code = decode_utf8(text, at).code;
    if (is_case_ignorable(code)) continue;
    after_cased = is_cased(code);
    break;
  }
  if (!after_cased) return false;
  for (std::size_t at = end; at < text.size();) {
    const utf8_step step = decode_utf8(text, at);
    at += step.length;
    if (is_case_ignorable(step.code)) continue;
    return !is_cased(step.code);
  }
  return true;
}

void append_lower(std::string& out, std::string_view text, std::size_t at, const utf8_step& step) {
  if (step.code < 0x80) {
    out += static_cast<char>(step.code >= 'A' && step.code <= 'Z' ? step.code + 32 : step.code);
  } else if (step.code == 0x130) { // the one lower-case mapping of two code points
    out += "i\u0307";
  } else if (step.code == 0x3A3) {
    append_utf8(out, is_final_sigma(text, at, at + step.length) ? 0x3C2 : 0x3C3);
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(step.code))));
  }
}

} // namespace

bool is_space(char32_t c) noexcept {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_line_break(char32_t c) noexcept {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_printable(char32_t c) noexcept {
  if (c < 0x7F) return c >= 0x20;
  switch (category(c)) {
  case UTF8PROC_CATEGORY_CC:
  case UTF8PROC_CATEGORY_CF:
  case UTF8PROC_CATEGORY_CS:
  case UTF8PROC_CATEGORY_CO:
  case UTF8PROC_CATEGORY_CN:
  case UTF8PROC_CATEGORY_ZL:
  case UTF8PROC_CATEGORY_ZP:
  case UTF8PROC_CATEGORY_ZS:
    return false;
  default:
    return true;
  }
}

bool is_word(char32_t c) noexcept {
  return c == '_' || is_alphabetic(c) || is_numeric(c);
}

bool is_upper(char32_t c) noexcept {
  return category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F) ||
         (c >= 0x24B6 && c <= 0x24CF) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

bool is_lower(char32_t c) noexcept {
  return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA || (c >= 0x2B0 && c <= 0x2B8) ||
         c == 0x2C0 || c == 0x2C1 || (c >= 0x2E0 && c <= 0x2E4) || c == 0x345 || c == 0x37A ||
         (c >= 0x1D2C && c <= 0x1D6A) || c == 0x1D78 || (c >= 0x1D9B && c <= 0x1DBF) || c == 0x2071 ||
         c == 0x207F || (c >= 0x2090 && c <= 0x209C) || (c >= 0x2170 && c <= 0x217F) ||
         (c >= 0x24D0 && c <= 0x24E9) || c == 0x2C7C || c == 0x2C7D;
}

bool is_cased(char32_t c) noexcept {
  return is_upper(c) || is_lower(c) || category(c) == UTF8PROC_CATEGORY_LT;
}

bool is_alphabetic(char32_t c) noexcept {
  switch (category(c)) {
  case UTF8PROC_CATEGORY_LU:
  case UTF8PROC_CATEGORY_LL:
  case UTF8PROC_CATEGORY_LT:
  case UTF8PROC_CATEGORY_LM:
  case UTF8PROC_CATEGORY_LO:
    return true;
  default:
    return false;
  }
}

bool is_numeric(char32_t c) noexcept {
  switch (category(c)) {
  case UTF8PROC_CATEGORY_ND:
  case UTF8PROC_CATEGORY_NL:
  case UTF8PROC_CATEGORY_NO:
    return true;
  default:
    return is_in(numeric_letters, c);
  }
}

bool is_titled(char32_t c) noexcept {
  return category(c) == UTF8PROC_CATEGORY_LT;
}

bool is_digit_like(char32_t c) noexcept {
  return is_decimal(c) || is_in(digit_forms, c);
}

bool is_decimal(char32_t c) noexcept {
  return category(c) == UTF8PROC_CATEGORY_ND;
}

int decimal_value(char32_t code) noexcept {
  if (!is_decimal(code)) return -1;
  // Every script's digits stand in order from zero, ten to a run; some runs (1D7CE to 1D7FF) touch.
  char32_t before = 0;
  while (is_decimal(code - before - 1)) ++before;
  return static_cast<int>(before % 10);
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const utf8_step step = decode_utf8(text, at);
    append_upper(out, step.code);
    at += step.length;
  }
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const utf8_step step = decode_utf8(text, at);
    append_lower(out, text, at, step);
    at += step.length;
  }
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool after_cased = false;
  for (std::size_t at = 0; at < text.size();) {
    const utf8_step step = decode_utf8(text, at);
    if (after_cased) {
      append_lower(out, text, at, step);
    } else {
      append_title(out, step.code);
    }
    after_cased = is_cased(step.code);
    at += step.length;
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const utf8_step step = decode_utf8(text, at);
    if (at == 0) {
      append_title(out, step.code);
    } else {
      append_lower(out, text, at, step);
    }
    at += step.length;
  }
  return out;
}

std::string fold_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const utf8_step step = decode_utf8(text, at);
    at += step.length;
    std::array<utf8proc_int32_t, 8> folded; // three at most
    int boundary = 0;
    const auto count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(step.code), folded.data(), folded.size(), UTF8PROC_CASEFOLD, &boundary);
    for (utf8proc_ssize_t i = 0; i < count; ++i)
      append_utf8(out, static_cast<char32_t>(folded[static_cast<std::size_t>(i)]));
  }
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const utf8_step step = decode_utf8(text, at);
    if (is_upper(step.code)) {
      append_lower(out, text, at, step);
    } else {
      is_lower(step.code) ? append_upper(out, step.code) : append_utf8(out, step.code);
    }
    at += step.length;
  }
  return out;
}

} // namespace troupe::models::jinja
