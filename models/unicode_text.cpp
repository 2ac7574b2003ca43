// SPDX-License-Identifier: Apache-2.0
// Character classes, normal forms and cases over utf8proc.
#include "models/unicode_text.hpp"

#include "models/utf8.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

namespace troupe::models {
namespace {

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

 private:
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

  static auto combining_class(utf8proc_int32_t code) noexcept {
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
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(char32_t code) noexcept {
  const auto category = category_of(code);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

void append_lower(std::string& out, char32_t code) {
  if (code == 0x130) { // the one character whose lower case is two
    out += "i\xCC\x87";
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
  }
}

bool normalize(std::string_view text, normal_form form, std::string& out) {
  out.clear();
  normalizing pieces(form);
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && is_ascii(text[end])) ++end;
    // The last ASCII character may combine with what follows; nothing combines with one that follows.
    const std::size_t begin = end == text.size() || end == at ? end : end - 1;
    out += text.substr(at, begin - at);
    while (end < text.size() && !is_ascii(text[end])) ++end;
    if (end > begin) pieces.run(text.substr(begin, end - begin), out);
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
