// SPDX-License-Identifier: Apache-2.0
// Character classes, normal forms and cases over utf8proc.
#include "models/unicode_text.hpp"

#include "models/code_ranges.hpp"
#include "models/utf8.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

namespace troupe::models {
namespace {

// HF tokenizers decides by tables of Unicode 8 (punctuation) and 9 (marks, decompositions); where they differ
// from today's, its tables are what vocabularies were made with. Found by trying every character of
// Unicode 14.
constexpr code_range other_marks[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xAFA, 0xAFF},
    {0xB55, 0xB55},     {0xC04, 0xC04},     {0xC3C, 0xC3C},     {0xD00, 0xD00},     {0xD3B, 0xD3C},
    {0xD81, 0xD81},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x180F, 0x180F},   {0x1ABF, 0x1ACE},
    {0x1CF2, 0x1CF3},   {0x1CF7, 0x1CF7},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0xA8FF, 0xA8FF},
    {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070},
    {0x11073, 0x11074}, {0x110C2, 0x110C2}, {0x11145, 0x11146}, {0x111C9, 0x111C9}, {0x111CE, 0x111CF},
    {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x1182C, 0x1183A}, {0x11930, 0x11935}, {0x11937, 0x11938},
    {0x1193B, 0x1193E}, {0x11940, 0x11940}, {0x11942, 0x11943}, {0x119D1, 0x119D7}, {0x119DA, 0x119E0},
    {0x119E4, 0x119E4}, {0x11A01, 0x11A0A}, {0x11A33, 0x11A39}, {0x11A3B, 0x11A3E}, {0x11A47, 0x11A47},
    {0x11A51, 0x11A5B}, {0x11A8A, 0x11A99}, {0x11D31, 0x11D36}, {0x11D3A, 0x11D3A}, {0x11D3C, 0x11D3D},
    {0x11D3F, 0x11D45}, {0x11D47, 0x11D47}, {0x11D8A, 0x11D8E}, {0x11D90, 0x11D91}, {0x11D93, 0x11D97},
    {0x11EF3, 0x11EF6}, {0x16F4F, 0x16F4F}, {0x16F7F, 0x16F87}, {0x16FE4, 0x16FE4}, {0x16FF0, 0x16FF1},
    {0x1CF00, 0x1CF2D}, {0x1CF30, 0x1CF46}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}};
constexpr code_range other_punctuation[] = {
    {0x61D, 0x61D},     {0x9FD, 0x9FD},     {0xA76, 0xA76},     {0xC77, 0xC77},     {0xC84, 0xC84},
    {0x166D, 0x166D},   {0x1B7D, 0x1B7E},   {0x2E43, 0x2E4F},   {0x2E52, 0x2E5D},   {0x10EAD, 0x10EAD},
    {0x10F55, 0x10F59}, {0x10F86, 0x10F89}, {0x111C9, 0x111C9}, {0x1144B, 0x1144F}, {0x1145A, 0x1145B},
    {0x1145D, 0x1145D}, {0x11660, 0x1166C}, {0x116B9, 0x116B9}, {0x1183B, 0x1183B}, {0x11944, 0x11946},
    {0x119E2, 0x119E2}, {0x11A3F, 0x11A46}, {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2}, {0x11C41, 0x11C45},
    {0x11C70, 0x11C71}, {0x11EF7, 0x11EF8}, {0x11FFF, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x16E97, 0x16E9A},
    {0x16FE2, 0x16FE2}, {0x1E95E, 0x1E95F}};
constexpr code_range undecomposed[] = {{0x11938, 0x11938}};
constexpr code_range incompatible[] = {{0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xAB69, 0xAB69},
                                       {0x10781, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA},
                                       {0x11938, 0x11938}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}};

utf8proc_category_t category_of(char32_t code) noexcept {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

bool is_ascii(char c) noexcept {
  return static_cast<unsigned char>(c) < 0x80;
}

/// Below this code point every character is its own normal form.
char32_t first_changed(normal_form form) noexcept {
  switch (form) {
  case normal_form::nfc:
    return 0x300;
  case normal_form::nfd:
    return 0xC0;
  case normal_form::nfkc:
  case normal_form::nfkd:
    break;
  }
  return 0xA0;
}

/// Normalises pieces of a text one after the other; keeps its memory.
class normalizing {
 public:
  explicit normalizing(normal_form form) noexcept : form_(form) {}

  void run(std::string_view piece, std::string& out) {
    if (settled(piece)) {
      out += piece;
      return;
    }
    codes_.clear();
    for (std::size_t at = 0; at < piece.size();) {
      const utf8_step step = decode_utf8(piece, at);
      decompose(step.code);
      at += step.length;
    }
    order_marks();
    auto count = static_cast<utf8proc_ssize_t>(codes_.size());
    if (form_ == normal_form::nfc || form_ == normal_form::nfkc) {
      count = utf8proc_normalize_utf32(
          codes_.data(), count, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    }
    for (utf8proc_ssize_t i = 0; i < count; ++i)
      append_utf8(out, static_cast<char32_t>(codes_[static_cast<std::size_t>(i)]));
  }

  /// The end of the part of `piece` that begins at `at` and is normalised the same with or without its
  /// neighbours: before a character that neither composes with the one before it nor is reordered.
  std::size_t part_end(std::string_view piece, std::size_t at) {
    for (at += decode_utf8(piece, at).length; at < piece.size();) {
      const utf8_step step = decode_utf8(piece, at);
      if (begins_anew(step.code)) return at;
      at += step.length;
    }
    return piece.size();
  }

 private:
  bool begins_anew(char32_t code) {
    codes_.clear();
    decompose(code);
    const auto first = static_cast<char32_t>(codes_.front());
    const auto category = category_of(first);
    const bool mark = category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
    // Vowels and final consonants of Hangul compose with what is before them without being marks.
    return !mark && !(first >= 0x1160 && first <= 0x11FF);
  }

  bool settled(std::string_view piece) const noexcept {
    for (std::size_t at = 0; at < piece.size();) {
      const utf8_step step = decode_utf8(piece, at);
      if (step.code >= first_changed(form_)) return false;
      at += step.length;
    }
    return true;
  }

  void decompose(char32_t code) {
    const bool compatible = form_ == normal_form::nfkc || form_ == normal_form::nfkd;
    if (compatible ? is_in(incompatible, code) : is_in(undecomposed, code)) {
      codes_.push_back(static_cast<utf8proc_int32_t>(code));
      return;
    }
    const auto options = static_cast<utf8proc_option_t>(
        UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
    std::array<utf8proc_int32_t, 64> parts; // the longest decomposition has 18
    int boundary = 0;
    const auto count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(code), parts.data(), parts.size(), options, &boundary);
    if (count <= 0 || count > static_cast<utf8proc_ssize_t>(parts.size())) {
      codes_.push_back(static_cast<utf8proc_int32_t>(code));
    } else {
      codes_.insert(codes_.end(), parts.begin(), parts.begin() + count);
    }
  }

  static int combining_class(utf8proc_int32_t code) noexcept {
    if (is_in(other_marks, static_cast<char32_t>(code))) return 0; // not in the older tables
    return utf8proc_get_property(code)->combining_class;
  }

  // utf8proc orders marks by exchanging neighbours, which is quadratic in a run of them.
  void order_marks() {
    for (auto at = codes_.begin(); at != codes_.end();) {
      if (combining_class(*at) == 0) {
        ++at;
        continue;
      }
      const auto end = std::find_if(at, codes_.end(), [](auto code) { return combining_class(code) == 0; });
      const auto less = [](auto a, auto b) { return combining_class(a) < combining_class(b); };
      if (!std::is_sorted(at, end, less)) std::stable_sort(at, end, less);
      at = end;
    }
  }

  normal_form form_;
  std::vector<utf8proc_int32_t> codes_;
};

/// Normalises `piece`, which stands at `from`, part by part.
void normalize_traced(
    normalizing& pieces, std::string_view piece, std::size_t from, std::string& out, text_edits& edits) {
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t end = pieces.part_end(piece, at), begin = out.size();
    const std::string_view part = piece.substr(at, end - at);
    pieces.run(part, out);
    if (std::string_view(out).substr(begin) != part)
      edits.push_back({{from + at, from + end}, {begin, out.size()}});
    at = end;
  }
}

} // namespace

bool is_white_space(char32_t code) noexcept {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F ||
         code == 0x205F || code == 0x3000;
}

bool is_numeric(char32_t code) noexcept {
  const auto category = category_of(code);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t code) noexcept {
  const auto category = category_of(code);
  return (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO) !=
         is_in(other_punctuation, code);
}

bool is_mark(char32_t code) noexcept {
  const auto category = category_of(code);
  return (category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME) != is_in(other_marks, code);
}

void append_lower(std::string& out, char32_t code) {
  if (code == 0x130) { // the one character whose lower case is two
    out += "i\xCC\x87";
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
  }
}

bool normalize(std::string_view text, normal_form form, std::string& out, text_edits* edits) {
  out.clear();
  normalizing pieces(form);
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && is_ascii(text[end])) ++end;
    // The last ASCII character may combine with what follows; nothing combines with one that follows.
    const std::size_t begin = end == text.size() || end == at ? end : end - 1;
    out += text.substr(at, begin - at);
    while (end < text.size() && !is_ascii(text[end])) ++end;
    const std::string_view piece = text.substr(begin, end - begin);
    if (edits)
      normalize_traced(pieces, piece, begin, out, *edits);
    else if (!piece.empty())
      pieces.run(piece, out);
    at = end;
  }
  return out != text;
}

std::size_t grapheme_end(std::string_view text, std::size_t at) noexcept {
  utf8_step step = decode_utf8(text, at);
  utf8proc_int32_t state = 0;
  while (true) {
    at += step.length;
    if (at >= text.size()) return text.size();
    const utf8_step next = decode_utf8(text, at);
    if (utf8proc_grapheme_break_stateful(
            static_cast<utf8proc_int32_t>(step.code), static_cast<utf8proc_int32_t>(next.code), &state))
      return at;
    step = next;
  }
}

} // namespace troupe::models
