// SPDX-License-Identifier: Apache-2.0
// The filter wordwrap. Where lines break is what Python's textwrap 3.11 does with the settings that
// Jinja2 3.1 gives it: tabs and other white space stay, white space at the ends of lines goes.
#include "models/jinja/filter_table.hpp"
#include "models/jinja/operators.hpp"
#include "models/jinja/text_operations.hpp"
#include "models/jinja/unicode.hpp"
#include "models/utf8.hpp"

#include <string>
#include <vector>

namespace troupe::models::jinja {
namespace {

struct wrap_options {
  double width = 79; ///< in code points; Python compares with fractions too
  bool whole_width = true;
  bool break_long_words = true;
  bool break_on_hyphens = true;
  /// break_on_hyphens, where textwrap asks for True itself and not for what is true.
  bool hyphens_end_pieces = true;
};

/// One paragraph, by code points. Python's pieces of it follow each other without gaps, so that a line is a
/// range and its last piece another.
class paragraph {
 public:
  paragraph(evaluation& e, const text_object& t, const wrap_options& options) : e_(e), options_(options) {
    e.step(1 + t.length / 4);
    e.memory().charge(t.length + 1, sizeof(char32_t) + 2 * sizeof(std::size_t));
    codes_.reserve(t.length);
    offsets_.reserve(t.length + 1);
    for (std::size_t at = 0; at < t.bytes.size();) {
      const utf8_step c = decode_utf8(t.bytes, at);
      codes_.push_back(c.code);
      offsets_.push_back(at);
      at += c.length;
    }
    offsets_.push_back(t.bytes.size());
  }

  /// Calls `line(begin, end)` with the bytes of every line.
  template<class Line>
  void wrap(Line line) {
    if (!(options_.width > 0)) e_.fail("invalid width " + shown_width() + " (must be > 0)");
    find_pieces();
    bool any = false;
    std::size_t at = 0,
                piece = 0; // the first piece that is left begins at `at`, inside it where it was broken
    while (piece < ends_.size()) {
      if (any && is_blank(at, ends_[piece])) at = ends_[piece++];
      const std::size_t begin = at;
      std::size_t last = at, count = 0; // the last piece of this line, and how many it has
      while (piece < ends_.size() && fits(ends_[piece] - begin)) {
        last = at;
        at = ends_[piece++];
        ++count;
      }
      if (piece < ends_.size() && !fits(ends_[piece] - at)) {
        if (options_.break_long_words) {
          last = at;
          at = break_word(begin, at, ends_[piece]);
          ++count;
        } else if (count == 0) {
          at = ends_[piece++];
          ++count;
        }
      }
      std::size_t end = at;
      if (count > 0 && is_blank(last, at)) {
        end = last;
        --count;
      }
      if (count == 0) continue;
      any = true;
      line(offsets_[begin], offsets_[end]);
    }
  }

 private:
  bool fits(std::size_t length) const noexcept { return static_cast<double>(length) <= options_.width; }

  std::string shown_width() const {
    return options_.whole_width ? std::to_string(static_cast<std::int64_t>(options_.width))
                                : std::to_string(options_.width);
  }

  /// Where the piece [at, end), which no line holds, is cut for the line that began at `begin`.
  std::size_t break_word(std::size_t begin, std::size_t at, std::size_t end) const {
    if (options_.width < 1) return at + 1;
    if (!options_.whole_width) e_.fail("slice indices must be integers or None or have an __index__ method");
    const std::size_t cut = begin + static_cast<std::size_t>(options_.width);
    if (!options_.break_on_hyphens || end <= cut) return cut;
    std::size_t hyphen = cut;
    while (hyphen > at && codes_[hyphen - 1] != '-') --hyphen; // behind the last one, or at the beginning
    std::size_t other = at;
    while (other < hyphen && codes_[other] == '-') ++other;
    return hyphen > at && other + 1 < hyphen ? hyphen : cut;
  }

  /// Whether [begin, end) is white space alone. Begins never go back, so that every character is looked at
  /// once.
  bool is_blank(std::size_t begin, std::size_t end) noexcept {
    if (solid_ < begin || !looked_) {
      looked_ = true;
      solid_ = begin;
      while (solid_ < codes_.size() && is_space(codes_[solid_])) ++solid_;
    }
    return solid_ >= end;
  }

  // Pieces: runs of white space and words; with break_on_hyphens also the parts of hyphenated words and
  // dashes between words.

  static bool is_gap(char32_t c) noexcept { return (c >= '\t' && c <= '\r') || c == ' '; }
  static bool is_letter(char32_t c) noexcept { return is_word(c) && !is_decimal(c); }
  static bool ends_word(char32_t c) noexcept {
    return is_word(c) || c == '!' || c == '"' || c == '\'' || c == '&' || c == '.' || c == ',' || c == '?';
  }

  /// Two dashes or more between words begin at `at`: their end, or `at`.
  std::size_t dashes(std::size_t at) const noexcept {
    if (at == 0 || !ends_word(codes_[at - 1])) return at;
    std::size_t end = at;
    while (end < codes_.size() && codes_[end] == '-') ++end;
    return end - at >= 2 && end < codes_.size() && is_word(codes_[end]) ? end : at;
  }

  /// The hyphen at `at` joins the parts of a word: two letters before it, or one and a hyphen and one; behind
  /// it two letters, which may have a hyphen between.
  bool joins(std::size_t at) const noexcept {
    const auto letter = [&](std::size_t i) { return i < codes_.size() && is_letter(codes_[i]); };
    if (at < 2 || !letter(at - 1)) return false;
    const bool before = letter(at - 2) || (at >= 3 && codes_[at - 2] == '-' && letter(at - 3));
    if (!before || !letter(at + 1)) return false;
    return letter(at + 2) || (at + 2 < codes_.size() && codes_[at + 2] == '-' && letter(at + 3));
  }

  std::size_t piece_end(std::size_t at) const noexcept {
    if (is_gap(codes_[at])) {
      while (at < codes_.size() && is_gap(codes_[at])) ++at;
      return at;
    }
    if (options_.hyphens_end_pieces)
      if (const std::size_t end = dashes(at); end > at) return end;
    for (++at; at < codes_.size() && !is_gap(codes_[at]); ++at) {
      if (!options_.hyphens_end_pieces || codes_[at] != '-') continue;
      if (joins(at)) return at + 1;
      if (dashes(at) > at) return at;
    }
    return at;
  }

  void find_pieces() {
    for (std::size_t at = 0; at < codes_.size();) {
      at = piece_end(at);
      ends_.push_back(at);
    }
  }

  evaluation& e_;
  const wrap_options options_;
  std::vector<char32_t> codes_;
  std::vector<std::size_t> offsets_; ///< of each code point in bytes, and the end
  std::vector<std::size_t> ends_;    ///< of the pieces
  std::size_t solid_ = 0; ///< the first character from where `is_blank` last looked that is no space
  bool looked_ = false;
};

/// What is no number fails once there is a line to measure.
wrap_options read_options(evaluation& e, const bound_arguments& b) {
  wrap_options options;
  if (b.has(0)) {
    const value& width = *b.at(0);
    if (width.is_undefined()) e.fail_undefined(width);
    if (!width.is_number())
      e.fail("'<=' not supported between instances of '" + std::string(type_name(width)) + "' and 'int'");
    options.width = width.as_real();
    options.whole_width = width.is_integral();
  }
  options.break_long_words = b.flag(1, true);
  options.break_on_hyphens = b.flag(3, true);
  options.hyphens_end_pieces = !b.has(3) || (b.at(3)->is(value_type::boolean) && b.at(3)->as_bool());
  return options;
}

} // namespace

value filter_wordwrap(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments b(e, "wordwrap", a, {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  if (input.is_undefined()) e.fail_undefined(input);
  if (!input.is_text()) e.fail("wordwrap: can only wrap str, not " + std::string(type_name(input)));
  const text_object* between = b.has(2) && !b.at(2)->is_none() ? &b.text(2) : e.memory().make_text("\n");
  const std::vector<value> paragraphs = split_lines(e, input.as_text(), false);
  std::vector<value> wrapped;
  if (paragraphs.empty()) return join(e, *between, wrapped);
  const wrap_options options = read_options(e, b);
  for (const value& p : paragraphs) {
    bool any = false;
    paragraph(e, p.as_text(), options).wrap([&](std::size_t begin, std::size_t end) {
      any = true;
      text_builder line;
      e.memory().charge(end - begin + sizeof(value));
      line.append(p.as_text(), begin, end);
      const value v = e.text(std::move(line));
      wrapped.push_back(between->markup ? escape_markup(e, v.as_text()) : v);
    });
    if (!any) wrapped.push_back(e.text("")); // an empty paragraph stays a line
  }
  const value joined = join(e, *between, wrapped);
  if (!between->markup) return joined;
  text_builder out;
  out.append(joined.as_text());
  return e.text(std::move(out), true);
}

} // namespace troupe::models::jinja
