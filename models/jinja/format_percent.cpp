// SPDX-License-Identifier: Apache-2.0
// Python's %-formatting of texts.
#include "models/jinja/format.hpp"
#include "models/jinja/operators.hpp"
#include "models/utf8.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace troupe::models::jinja {
namespace {

/// One conversion: its flags, width, precision and letter.
struct conversion {
  std::string flags;
  std::size_t width = 0;
  std::optional<std::size_t> precision;
  char letter = 0;

  bool has(char flag) const { return flags.find(flag) != std::string::npos; }
};

std::string spelled(const char* pattern, int precision, double d) {
  std::array<char, max_width + 400> text{};
  std::snprintf(text.data(), text.size(), pattern, precision, d);
  return text.data();
}

/// The digits of a number without its sign, and behind "0x" or "0o" where `#` asks for them.
struct number_parts {
  bool negative = false;
  std::string mark, digits;
};

number_parts integer_parts(evaluation& e, const conversion& c, const value& v) {
  const bool decimal = c.letter == 'd' || c.letter == 'i' || c.letter == 'u';
  if (!decimal && !v.is_integral())
    e.fail(std::string("%") + c.letter + " format: an integer is required, not float");
  if (!v.is_integral() && !(std::abs(v.as_real()) < 9.2e18)) e.fail("an integer does not fit 64 bits");
  const std::int64_t n = v.is_integral() ? v.as_integer() : static_cast<std::int64_t>(v.as_real());
  const auto size = n < 0 ? -static_cast<unsigned long long>(n) : static_cast<unsigned long long>(n);
  std::array<char, 32> text{};
  std::snprintf(
      text.data(), text.size(),
      c.letter == 'x'   ? "%llx"
      : c.letter == 'X' ? "%llX"
      : c.letter == 'o' ? "%llo"
                        : "%llu",
      size);
  number_parts out{n < 0, {}, text.data()};
  if (c.precision && *c.precision > out.digits.size())
    out.digits.insert(0, *c.precision - out.digits.size(), '0');
  if (!decimal && c.has('#')) out.mark = {'0', c.letter};
  return out;
}

number_parts real_parts(const conversion& c, const value& v) {
  const double d = v.as_real();
  std::string pattern = c.has('#') ? "%#.*" : "%.*";
  pattern += c.letter;
  const auto precision = static_cast<int>(c.precision.value_or(6));
  return {std::signbit(d) && !std::isnan(d), {}, spelled(pattern.c_str(), precision, std::abs(d))};
}

std::string format_number(evaluation& e, const conversion& c, const value& v) {
  if (!v.is_number())
    e.fail(
        std::string("%") + c.letter + " format: a real number is required, not " + std::string(type_name(v)));
  const bool real = std::string_view("fFeEgG").find(c.letter) != std::string_view::npos;
  number_parts parts = real ? real_parts(c, v) : integer_parts(e, c, v);
  const std::string sign = parts.negative ? "-" : c.has('+') ? "+" : c.has(' ') ? " " : "";
  const std::size_t size = sign.size() + parts.mark.size() + parts.digits.size();
  const std::string fill(c.width > size ? c.width - size : 0, c.has('0') && !c.has('-') ? '0' : ' ');
  if (c.has('-')) return sign + parts.mark + parts.digits + fill;
  return c.has('0') ? sign + parts.mark + fill + parts.digits : fill + sign + parts.mark + parts.digits;
}

/// %c: a character by its number, or a text of one.
void write_character(evaluation& e, text_builder& out, const value& v) {
  if (v.is_text() && v.as_text().length == 1) return out.append(v.as_text());
  if (!v.is_integral()) e.fail("%c requires int or char");
  const std::int64_t code = v.as_integer();
  if (code < 0 || code > 0x10FFFF) e.fail("%c arg not in range(0x110000)");
  if (code >= 0xD800 && code < 0xE000) e.fail("%c: surrogates are no characters");
  std::string bytes;
  append_utf8(bytes, static_cast<char32_t>(code));
  out.append(bytes);
}

/// ascii(v)
void write_ascii(evaluation& e, text_builder& out, const value& v) {
  text_builder spelled_out;
  write_repr(e, spelled_out, v);
  const text_object& whole = *e.memory().make_text(std::move(spelled_out));
  e.memory().charge(whole.bytes.size(), 3); // the most that a character grows by
  std::string ascii;
  for (std::size_t at = 0; at < whole.bytes.size();) {
    const utf8_step step = decode_utf8(whole.bytes, at);
    std::array<char, 16> escape{};
    if (step.code < 0x80)
      ascii += static_cast<char>(step.code);
    else
      ascii.append(
          escape.data(), static_cast<std::size_t>(std::snprintf(
                             escape.data(), escape.size(),
                             step.code < 0x100     ? "\\x%02x"
                             : step.code < 0x10000 ? "\\u%04x"
                                                   : "\\U%08x",
                             static_cast<unsigned>(step.code))));
    at += step.length;
  }
  out.append(ascii, !whole.untrusted.empty());
}

/// The conversions that take any value, cut and padded.
void write_piece(evaluation& e, text_builder& out, const conversion& c, const value& v) {
  text_builder piece;
  if (c.letter == 's') write_text(e, piece, v);
  if (c.letter == 'r') write_repr(e, piece, v);
  if (c.letter == 'a') write_ascii(e, piece, v);
  if (c.letter == 'c') write_character(e, piece, v);
  const text_object& whole = *e.memory().make_text(std::move(piece));
  const std::size_t kept =
      c.precision && c.letter != 'c' ? std::min(*c.precision, whole.length) : whole.length;
  const std::string fill(c.width > kept ? c.width - kept : 0, ' ');
  e.memory().charge(whole.bytes.size() + fill.size());
  if (!c.has('-')) out.append(fill);
  out.append(whole, 0, byte_offset(whole, kept));
  if (c.has('-')) out.append(fill);
}

/// Reads a pattern and takes its operands in turn.
class percent_reader {
 public:
  percent_reader(evaluation& e, const text_object& pattern, const value& operand) :
      e_(e), pattern_(pattern), operand_(operand),
      tuple_(operand.is_list() && operand.as_list().form == list_form::tuple) {}

  text_builder run() {
    const std::string& text = pattern_.bytes;
    e_.step(scan_steps(text.size()));
    while (true) {
      const std::size_t mark = std::min(text.find('%', at_), text.size());
      e_.memory().charge(mark - at_);
      out_.append(pattern_, at_, mark);
      if (mark == text.size()) break;
      at_ = mark + 1;
      convert();
    }
    const bool surplus = tuple_ ? next_ < operand_.as_list().items.size() : next_ == 0 && !operand_.is_dict();
    if (surplus && !operand_.is_undefined() && !(operand_.is_list() && !tuple_))
      e_.fail("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  bool at_one_of(std::string_view characters) const {
    return at_ < pattern_.bytes.size() && characters.find(pattern_.bytes[at_]) != std::string_view::npos;
  }

  value take() {
    if (keyed_) return *std::exchange(keyed_, nullptr);
    if (next_ >= (tuple_ ? operand_.as_list().items.size() : 1))
      e_.fail("not enough arguments for format string");
    return tuple_ ? operand_.as_list().items[next_++] : (++next_, operand_);
  }

  /// The key in parentheses, which may hold pairs of them.
  void read_key() {
    const std::string& text = pattern_.bytes;
    const std::size_t begin = ++at_;
    for (std::size_t open = 1; open > 0; ++at_) {
      if (at_ == text.size()) e_.fail("incomplete format key");
      if (text[at_] == '(') ++open;
      if (text[at_] == ')') --open;
    }
    if (!operand_.is_dict()) e_.fail("format requires a mapping");
    e_.step(scan_steps(at_ - begin));
    keyed_ = operand_.as_dict().find(std::string_view(text).substr(begin, at_ - 1 - begin));
    if (!keyed_) e_.fail("no value for the key of a format");
    next_ = 1; // the mapping itself is no argument any more
  }

  std::size_t bounded(std::uint64_t n) const {
    if (n > max_width) e_.fail("a format width above " + std::to_string(max_width));
    return static_cast<std::size_t>(n);
  }

  /// A width or a precision: digits, or `*` for the next operand. Negative numbers are left to the caller.
  std::int64_t read_count() {
    if (at_one_of("*")) {
      ++at_;
      const value v = take();
      if (!v.is_integral()) e_.fail("* wants int");
      const std::int64_t n = v.as_integer();
      bounded(n < 0 ? -static_cast<std::uint64_t>(n) : static_cast<std::uint64_t>(n));
      return n;
    }
    std::uint64_t n = 0;
    while (at_one_of("0123456789"))
      n = bounded(n * 10 + static_cast<std::uint64_t>(pattern_.bytes[at_++] - '0'));
    return static_cast<std::int64_t>(n);
  }

  void convert() {
    if (at_one_of("%")) {
      ++at_;
      return out_.append("%");
    }
    if (at_one_of("(")) read_key();
    conversion c;
    while (at_one_of("-+ 0#")) {
      if (!c.has(pattern_.bytes[at_])) c.flags += pattern_.bytes[at_];
      ++at_;
    }
    const std::int64_t width = read_count();
    if (width < 0) c.flags += '-';
    c.width = static_cast<std::size_t>(std::abs(width));
    if (at_one_of(".")) {
      ++at_;
      c.precision = static_cast<std::size_t>(std::max<std::int64_t>(read_count(), 0));
    }
    if (at_one_of("hlL")) ++at_; // C's length modifiers mean nothing to Python
    if (at_ == pattern_.bytes.size()) e_.fail("incomplete format");
    c.letter = pattern_.bytes[at_++];
    if (std::string_view("srac").find(c.letter) != std::string_view::npos) {
      write_piece(e_, out_, c, take());
    } else if (std::string_view("diuxXofFeEgG").find(c.letter) != std::string_view::npos) {
      const std::string number = format_number(e_, c, take());
      e_.memory().charge(number.size());
      out_.append(number);
    } else {
      e_.fail(std::string("unsupported format character '") + c.letter + "'");
    }
  }

  evaluation& e_;
  const text_object& pattern_;
  const value operand_;
  const bool tuple_;
  std::size_t at_ = 0, next_ = 0;
  const value* keyed_ = nullptr; ///< what a key named, until it is taken
  text_builder out_;
};

} // namespace

value format_percent(evaluation& e, const text_object& pattern, const value& operand) {
  return e.text(percent_reader(e, pattern, operand).run(), pattern.markup);
}

} // namespace troupe::models::jinja
