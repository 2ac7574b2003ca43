// SPDX-License-Identifier: Apache-2.0
// Oniguruma's patterns in PCRE2's spelling. Source: Oniguruma 6.9, doc/RE; PCRE2 10.42, pcre2pattern.
#include "models/oniguruma_pattern.hpp"

#include "models/json_document.hpp"
#include "models/utf8.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace troupe::models {
namespace {

constexpr std::size_t longest_pattern = 64u << 10;
constexpr int deepest = 64;
// A run of 16 million characters may be given back one by one; a pattern that explodes ends within a second.
constexpr std::uint32_t pattern_match_limit = 1u << 24;

// The inside of a class: White_Space and its complement, word characters (Oniguruma's Word) and theirs.
constexpr std::string_view space_inside =
    "\\t-\\r\\x20\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";
constexpr std::string_view not_space_inside =
    "\\x00-\\x08\\x0E-\\x1F\\x21-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}\\x{1681}-\\x{1FFF}\\x{200B}-\\x{"
    "2027}"
    "\\x{202A}-\\x{202E}\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{D7FF}\\x{E000}-\\x{10FFFF}";
constexpr std::string_view word_inside = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
// By themselves, not in a class, Oniguruma's words have the raised digits and fractions of Latin-1 too.
constexpr std::string_view word_alone =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";
constexpr std::string_view hexadecimal_inside = "0-9A-Fa-f";

constexpr std::array<std::string_view, 38> general_categories{
    "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",
    "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi",
    "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs", "Any"};

// Names of POSIX brackets that \\p{} does not know.
constexpr std::string_view bracket_names[][2] = {
    {"ascii", "\\x00-\\x7F"}, {"blank", "\\t\\p{Zs}"}, {"cntrl", "\\p{Cc}"}, {"punct", "\\p{P}\\p{S}"}};

struct long_name {
  std::string_view name, inside; // of a class
};
constexpr long_name long_names[] = {
    {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"alpha", "\\p{Alphabetic}"},
    {"alphabetic", "\\p{Alphabetic}"},
    {"digit", "\\p{Nd}"},
    {"letter", "\\p{L}"},
    {"lower", "\\p{Lowercase}"},
    {"lowercase", "\\p{Lowercase}"},
    {"lowercaseletter", "\\p{Ll}"},
    {"mark", "\\p{M}"},
    {"number", "\\p{N}"},
    {"other", "\\p{C}"},
    {"punctuation", "\\p{P}"},
    {"separator", "\\p{Z}"},
    {"space", space_inside},
    {"symbol", "\\p{S}"},
    {"upper", "\\p{Uppercase}"},
    {"uppercase", "\\p{Uppercase}"},
    {"uppercaseletter", "\\p{Lu}"},
    {"whitespace", space_inside},
    {"word", word_inside},
    {"xdigit", hexadecimal_inside},
};

bool is_letter(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}
bool is_hexadecimal(char c) noexcept {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/// Reads left to right and writes the translation; stops at the first thing without an equal.
class translator {
 public:
  explicit translator(std::string_view pattern) noexcept : in_(pattern) {}

  result<std::string> run() {
    while (at_ < in_.size()) {
      const std::size_t begin = out_.size();
      const char first = peek();
      if (auto ok = item(); !ok) return ok.error();
      atom_ = begin;
      after_atom_ = first == '\\' || first == '[' || first == '.' || is_letter(first) || is_digit(first);
    }
    return std::move(out_);
  }

 private:
  error refuse(std::string_view what) const {
    return {
        errc::unsupported,
        "tokenizer: the pattern '" + for_message(in_, 200) + "' uses " + for_message(what) + " at byte " +
            std::to_string(at_) + ", which is not supported",
        {},
        0};
  }

  char peek(std::size_t ahead = 0) const noexcept {
    return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0';
  }

  void copy(std::size_t count) {
    out_ += in_.substr(at_, count);
    at_ += count;
  }

  result<void> item() {
    switch (peek()) {
    case '\\':
      return escape(false);
    case '[':
      return has_intersection() ? intersection() : character_class(0);
    case '(':
      return group();
    case '{':
      return interval();
    default:
      copy(1);
      return {};
    }
  }

  result<void> group() {
    if (peek(1) == '*') return refuse("a verb");
    if (peek(1) != '?') {
      copy(1);
      return {};
    }
    const char kind = peek(2);
    if (kind == '~') return refuse("an absent operator");
    if (kind == '#' || kind == '(' || kind == '{' || kind == '&' || kind == 'P' || kind == 'R' ||
        is_digit(kind))
      return refuse("this kind of group");
    if (!is_letter(kind) && kind != '-') {
      copy(3);
      return {};
    }
    copy(2);
    for (; is_letter(peek()) || peek() == '-'; ++at_) {
      const char flag = peek();
      if (flag == 'i' || flag == 'x' || flag == '-')
        out_ += flag;
      else if (flag == 'm')
        out_ += 's'; // Ruby: the dot matches a newline
      else
        return refuse(std::string("the option ") + flag);
    }
    return {};
  }

  /// {n}, {n,}, {n,m}, {,n}; anything else is text.
  result<void> interval() {
    std::size_t end = at_ + 1;
    while (end < in_.size() && (is_digit(in_[end]) || in_[end] == ',')) ++end;
    const std::string_view inside = in_.substr(at_ + 1, end - at_ - 1);
    const bool counts = end < in_.size() && in_[end] == '}' && !inside.empty() && inside != "," &&
                        std::count(inside.begin(), inside.end(), ',') <= 1;
    if (!counts) {
      out_ += "\\{";
      ++at_;
      return {};
    }
    // Oniguruma repeats the repetition, PCRE2 would make it possessive.
    const bool repeated = end + 1 < in_.size() && in_[end + 1] == '+';
    const char behind = end + 2 < in_.size() ? in_[end + 2] : '\0';
    if (repeated && (!after_atom_ || behind == '+' || behind == '?' || behind == '*' || behind == '{')) {
      at_ = end + 1;
      return refuse("'+' after an interval of this kind");
    }
    if (repeated) out_.insert(atom_, "(?:");
    out_ += inside.front() == ',' ? "{0" : "{";
    out_ += inside;
    out_ += repeated ? "})" : "}";
    at_ = end + 1;
    return {};
  }

  void put_class(std::string_view inside, bool in_class, bool negated = false) {
    if (!in_class) out_ += negated ? "[^" : "[";
    out_ += inside;
    if (!in_class) out_ += ']';
  }

  result<void> escape(bool in_class) {
    if (at_ + 1 >= in_.size()) return refuse("a backslash at the end");
    const char c = peek(1);
    switch (c) {
    case 's':
    case 'S':
      at_ += 2;
      put_class(c == 's' ? space_inside : not_space_inside, in_class);
      return {};
    case 'w':
      at_ += 2;
      put_class(in_class ? word_inside : word_alone, in_class);
      return {};
    case 'W':
      if (in_class) return refuse("\\W in a class");
      at_ += 2;
      put_class(word_alone, false, true);
      return {};
    case 'h':
      at_ += 2;
      put_class(hexadecimal_inside, in_class);
      return {};
    case 'H':
      if (in_class) return refuse("\\H in a class");
      at_ += 2;
      put_class(hexadecimal_inside, false, true);
      return {};
    case 'b':
    case 'B':
      if (in_class) return refuse("\\b in a class");
      at_ += 2;
      put_boundary(c == 'B');
      return {};
    case 'p':
    case 'P':
      return property(in_class);
    case 'u':
      return code_point();
    case 'v':
      at_ += 2;
      out_ += "\\x0B";
      return {};
    case 'x':
      return hexadecimal_escape();
    default:
      break;
    }
    constexpr std::string_view same = "adDefnrtAzZG0123456789R";
    if (is_letter(c) || is_digit(c)) {
      if (same.find(c) == std::string_view::npos) return refuse(std::string("\\") + c);
      if (in_class && (c == 'A' || c == 'z' || c == 'Z' || c == 'G' || c == 'R'))
        return refuse("an anchor in a class");
    }
    copy(2);
    return {};
  }

  void put_boundary(bool negated) {
    const std::string w = "[" + std::string(word_alone) + "]";
    out_ += negated ? "(?:(?<=" + w + ")(?=" + w + ")|(?<!" + w + ")(?!" + w + "))"
                    : "(?:(?<=" + w + ")(?!" + w + ")|(?<!" + w + ")(?=" + w + "))";
  }

  result<void> hexadecimal_escape() {
    if (peek(2) == '{') {
      const std::size_t end = in_.find('}', at_);
      const std::string_view inside =
          end == std::string_view::npos ? std::string_view() : in_.substr(at_ + 3, end - at_ - 3);
      if (inside.empty() || inside.size() > 8 || !std::all_of(inside.begin(), inside.end(), is_hexadecimal))
        return refuse("\\x{...} that is not one code point");
      copy(end + 1 - at_);
      return {};
    }
    std::size_t count = 2;
    while (count < 4 && is_hexadecimal(peek(count))) ++count;
    if (count == 2) return refuse("\\x without digits");
    copy(count);
    return {};
  }

  result<void> code_point() {
    for (std::size_t i = 2; i < 6; ++i)
      if (!is_hexadecimal(peek(i))) return refuse("\\u without four digits");
    out_ += "\\x{";
    out_ += in_.substr(at_ + 2, 4);
    out_ += '}';
    at_ += 6;
    return {};
  }

  /// \p{Name}, \p{^Name}, \P{Name}.
  result<void> property(bool in_class) {
    const std::size_t end = in_.find('}', at_);
    if (peek(2) != '{' || end == std::string_view::npos) return refuse("a property without braces");
    std::string_view name = in_.substr(at_ + 3, end - at_ - 3);
    bool negated = peek(1) == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    if (name.empty() || name.size() > 40 || !std::all_of(name.begin(), name.end(), [](char c) {
          return is_letter(c) || c == '_' || c == ' ' || c == '-';
        }))
      return refuse("a property of an unknown form");
    if (std::find(general_categories.begin(), general_categories.end(), name) != general_categories.end()) {
      out_ += negated ? "\\P{" : "\\p{";
      out_ += name;
      out_ += '}';
    } else if (const long_name* known = find_long_name(name)) {
      if (negated && in_class) return refuse("a negated property in a class");
      put_class(known->inside == word_inside && !in_class ? word_alone : known->inside, in_class, negated);
    } else {
      // A script by itself: since 10.40 PCRE2 takes a bare name for the script and its extensions.
      out_ += negated ? "\\P{sc:" : "\\p{sc:";
      out_ += name;
      out_ += '}';
    }
    at_ = end + 1;
    return {};
  }

  static const long_name* find_long_name(std::string_view name) {
    std::string plain;
    for (const char c : name)
      if (is_letter(c)) plain += static_cast<char>(c | 0x20);
    const auto found = std::find_if(
        std::begin(long_names), std::end(long_names), [&](const auto& n) { return n.name == plain; });
    return found == std::end(long_names) ? nullptr : found;
  }

  /// [:name:] or [:^name:] within a class.
  result<void> posix_bracket() {
    const std::size_t end = in_.find(":]", at_ + 2);
    if (end == std::string_view::npos) return refuse("a POSIX bracket without an end");
    std::string_view name = in_.substr(at_ + 2, end - at_ - 2);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    std::string_view inside;
    for (const auto& [known, members] : bracket_names)
      if (name == known) inside = members;
    if (const long_name* known = find_long_name(name); known && known->name == name) inside = known->inside;
    if (negated) {
      if (inside != space_inside) return refuse("a negated POSIX bracket");
      inside = not_space_inside;
    }
    if (inside.empty()) return refuse("an unknown POSIX bracket");
    out_ += inside;
    at_ = end + 2;
    return {};
  }

  /// The end of the class that begins at `at`, behind its bracket, and the places of its own "&&". Nothing
  /// where it has no end.
  std::optional<std::size_t> class_end(std::size_t at, std::vector<std::size_t>& cuts) const {
    int depth = 0;
    bool first = false;
    for (; at < in_.size(); ++at) {
      const char c = in_[at];
      const bool literal = first && c == ']';
      first = first && c == '^';
      if (c == '\\') {
        ++at;
      } else if (c == '[' && depth > 0 && in_.substr(at).starts_with("[:")) {
        const std::size_t end = in_.find(":]", at);
        if (end == std::string_view::npos) return std::nullopt;
        at = end + 1;
      } else if (c == '[') {
        ++depth;
        first = true;
      } else if (c == ']' && !literal) {
        if (--depth == 0) return at + 1;
      } else if (c == '&' && depth == 1 && in_.substr(at).starts_with("&&")) {
        cuts.push_back(at++);
      }
    }
    return std::nullopt;
  }

  bool has_intersection() const {
    std::vector<std::size_t> cuts;
    return class_end(at_, cuts) && !cuts.empty();
  }

  /// [A&&B&&C]: every part but the last becomes a look-ahead.
  result<void> intersection() {
    std::vector<std::size_t> cuts;
    const std::size_t end = *class_end(at_, cuts);
    const bool negated = peek(1) == '^';
    std::size_t begin = at_ + (negated ? 2 : 1);
    cuts.push_back(end - 1);
    out_ += negated ? "(?:(?!" : "(?:";
    for (const std::size_t cut : cuts) {
      const std::string_view part = in_.substr(begin, cut - begin);
      if (part.empty() || part.front() == '^') return refuse("'&&' with such a part");
      // A part that is one class stands for itself, so that it may be negated.
      std::vector<std::size_t> inner;
      const bool whole = part.front() == '[' && !part.starts_with("[:") && class_end(begin, inner) == cut;
      if (!inner.empty()) return refuse("'&&' in an inner class");
      auto translated = translator(whole ? std::string(part) : '[' + std::string(part) + ']').run();
      if (!translated) return translated.error();
      const bool last = cut == cuts.back();
      out_ += last ? "" : "(?=";
      out_ += *translated;
      out_ += last ? "" : ")";
      begin = cut + 2;
    }
    out_ += negated ? ")[\\x00-\\x{10FFFF}])" : ")";
    at_ = end;
    return {};
  }

  /// At '['. A class within a class adds to it.
  result<void> character_class(int depth) {
    if (depth > deepest) return refuse("classes nested too deep");
    ++at_;
    const bool negated = peek() == '^';
    if (negated) ++at_;
    if (depth > 0 && negated) return refuse("a negated class in a class");
    if (depth == 0) out_ += negated ? "[^" : "[";
    bool first = true;
    for (;; first = false) {
      if (at_ >= in_.size()) return refuse("a class without an end");
      const char c = peek();
      if (c == ']' && !first) {
        ++at_;
        if (depth == 0) out_ += ']';
        return {};
      }
      if (c == '&' && peek(1) == '&') return refuse("'&&' in an inner class");
      if (c == '[' && peek(1) == ':') {
        if (auto ok = posix_bracket(); !ok) return ok;
      } else if (c == '[') {
        if (auto ok = character_class(depth + 1); !ok) return ok;
      } else if (c == '\\') {
        if (auto ok = escape(true); !ok) return ok;
      } else if (c == ']') {
        out_ += "\\]";
        ++at_;
      } else {
        copy(1);
      }
    }
  }

  std::string_view in_;
  std::size_t at_ = 0;
  std::string out_;
  std::size_t atom_ = 0;    ///< where in `out_` the item before the one at hand begins
  bool after_atom_ = false; ///< which is a single character, class or escape
};

} // namespace

result<std::string> translate_oniguruma(std::string_view pattern) {
  if (pattern.size() > longest_pattern)
    return error{errc::unsupported, "tokenizer: a pattern is longer than 64 KiB", {}, 0};
  if (!is_valid_utf8(pattern)) return error{errc::bad_file, "tokenizer: a pattern is not valid UTF-8", {}, 0};
  return translator(pattern).run();
}

result<regex> compile_oniguruma(std::string_view pattern) {
  auto translated = translate_oniguruma(pattern);
  if (!translated) return translated.error();
  // Ruby's ^ and $ are those of lines.
  return regex::compile(*translated, true, pattern_match_limit);
}

std::string quote_pattern(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\0') {
      out += "\\x00";
      continue;
    }
    const bool plain = is_letter(c) || is_digit(c) || static_cast<unsigned char>(c) >= 0x80 || c == '\n';
    if (!plain) out += '\\';
    out += c;
  }
  return out;
}

} // namespace troupe::models
