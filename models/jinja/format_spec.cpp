// SPDX-License-Identifier: Apache-2.0
// The format specifications of Python's str.format. Source: Python 3.11's documentation, "Format
// Specification Mini-Language".
#include "models/jinja/format_spec.hpp"

#include "models/jinja/format.hpp"
#include "models/jinja/operators.hpp"
#include "models/utf8.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

namespace troupe::models::jinja {
namespace {

struct format_spec {
  std::string fill = " ";
  char align = 0; ///< one of < > ^ =, 0: by type
  char sign = 0;  ///< one of + - and space
  bool alternate = false;
  std::size_t width = 0;
  char group = 0; ///< , or _
  std::optional<std::size_t> precision;
  char type = 0;
};

bool is_align(char c) noexcept {
  return c == '<' || c == '>' || c == '^' || c == '=';
}

std::size_t read_number(evaluation& e, std::string_view& rest) {
  std::size_t n = 0;
  while (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') {
    n = n * 10 + static_cast<std::size_t>(rest[0] - '0');
    if (n > max_width) e.fail("a format width above " + std::to_string(max_width));
    rest.remove_prefix(1);
  }
  return n;
}

format_spec parse_spec(evaluation& e, std::string_view rest, const value& v) {
  format_spec s;
  bool filled = false;
  const auto take = [&](std::string_view any) {
    if (rest.empty() || any.find(rest[0]) == std::string_view::npos) return '\0';
    const char c = rest[0];
    rest.remove_prefix(1);
    return c;
  };
  const std::size_t first = rest.empty() ? 0 : decode_utf8(rest, 0).length;
  if (first > 0 && rest.size() > first && is_align(rest[first])) {
    s.fill = rest.substr(0, first);
    s.align = rest[first];
    filled = true;
    rest.remove_prefix(first + 1);
  } else if (!rest.empty() && is_align(rest[0])) {
    s.align = take("<>^=");
  }
  if (const char sign = take("+- ")) s.sign = sign;
  s.alternate = take("#") != 0;
  if (take("0")) {
    if (!filled) s.fill = "0";
    if (s.align == 0) s.align = v.is_text() ? '<' : '=';
  }
  s.width = read_number(e, rest);
  s.group = take(",_");
  if (take(".")) {
    if (rest.empty() || rest[0] < '0' || rest[0] > '9') e.fail("Format specifier missing precision");
    s.precision = read_number(e, rest);
  }
  if (!rest.empty()) {
    s.type = rest[0];
    rest.remove_prefix(1);
  }
  if (!rest.empty()) e.fail("Invalid format specifier");
  return s;
}

[[noreturn]] void refuse(evaluation& e, const format_spec& s, const value& v) {
  e.fail(
      std::string("Unknown format code '") + s.type + "' for object of type '" + std::string(type_name(v)) +
      "'");
}

/// Marks every third digit of the whole part, or every fourth of other bases.
std::string grouped(const std::string& digits, char mark, std::size_t each) {
  const std::size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (std::size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % each == 0) out += mark;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

std::string integer_digits(const format_spec& s, std::uint64_t size) {
  const int base = s.type == 'x' || s.type == 'X' ? 16 : s.type == 'o' ? 8 : s.type == 'b' ? 2 : 10;
  std::array<char, 72> text{};
  std::string digits(text.data(), std::to_chars(text.data(), text.data() + text.size(), size, base).ptr);
  if (s.type == 'X')
    for (char& c : digits)
      if (c >= 'a') c = static_cast<char>(c - 32);
  return digits;
}

/// Without a type: as "g", but a number without an exponent has a point, and one digit less room before it.
std::string general_digits(double size, std::size_t precision, bool keep_zeros) {
  const int digits = static_cast<int>(std::max<std::size_t>(precision, 1));
  std::array<char, max_width + 400> text{};
  std::snprintf(text.data(), text.size(), "%.*e", digits - 1, size);
  std::string out = text.data(), exponent;
  const std::size_t mark = out.find('e');
  const int point = std::stoi(out.substr(mark + 1)) + 1;
  const bool scientific = point <= -4 || point > digits - 1;
  if (scientific) {
    exponent = out.substr(mark);
    out.resize(mark);
  } else {
    std::snprintf(text.data(), text.size(), "%.*f", digits - point, size);
    out = text.data();
  }
  if (!keep_zeros && out.find('.') != std::string::npos) {
    while (out.back() == '0') out.pop_back();
    if (out.back() == '.') out.pop_back();
  }
  if (out.find('.') == std::string::npos && (keep_zeros || !scientific)) out += scientific ? "." : ".0";
  return out + exponent;
}

std::string real_digits(const format_spec& s, double size) {
  if (std::isnan(size) || std::isinf(size)) {
    const bool upper = s.type == 'E' || s.type == 'F' || s.type == 'G';
    std::string text = std::isnan(size) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf");
    return s.type == '%' ? text + '%' : text;
  }
  if (s.type == 0 && !s.precision) return spell_real(size);
  if (s.type == 0) return general_digits(size, *s.precision, s.alternate);
  std::string letter(1, s.type == '%' ? 'f' : s.type);
  const std::string pattern = std::string("%") + (s.alternate ? "#" : "") + ".*" + letter;
  std::array<char, max_width + 400> text{};
  std::snprintf(
      text.data(), text.size(), pattern.c_str(), static_cast<int>(s.precision.value_or(6)),
      s.type == '%' ? size * 100 : size);
  return s.type == '%' ? std::string(text.data()) + '%' : text.data();
}

void put_padded(
    evaluation& e, text_builder& out, const format_spec& s, char align, std::string_view sign,
    const text_object& body, std::size_t length) {
  const std::size_t missing = s.width > length ? s.width - length : 0;
  e.memory().charge(missing * s.fill.size() + sign.size() + body.bytes.size());
  const auto pad = [&](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) out.append(s.fill);
  };
  const std::size_t before = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  pad(before);
  out.append(sign);
  if (align == '=') pad(missing);
  out.append(body);
  if (align != '=') pad(missing - before);
}

void write_text_field(evaluation& e, text_builder& out, const format_spec& s, const text_object& t) {
  if (s.type != 0 && s.type != 's') refuse(e, s, value::of(&t));
  if (s.sign != 0) e.fail("Sign not allowed in string format specifier");
  if (s.alternate) e.fail("Alternate form (#) not allowed in string format specifier");
  if (s.group != 0) e.fail(std::string("Cannot specify '") + s.group + "' with 's'.");
  if (s.align == '=') e.fail("'=' alignment not allowed in string format specifier");
  const std::size_t keep = s.precision ? std::min(*s.precision, t.length) : t.length;
  text_builder kept;
  kept.append(t, 0, byte_offset(t, keep));
  put_padded(e, out, s, s.align == 0 ? '<' : s.align, {}, *e.memory().make_text(std::move(kept)), keep);
}

void write_number_field(evaluation& e, text_builder& out, const format_spec& s, const value& v) {
  constexpr std::string_view reals = "eEfFgG%", integers = "bdoxX";
  const bool real = !v.is_integral() || reals.find(s.type) != std::string_view::npos;
  const bool known = s.type == 0 || reals.find(s.type) != std::string_view::npos ||
                     (v.is_integral() && integers.find(s.type) != std::string_view::npos);
  if (s.type == 'n' || s.type == 'c')
    e.fail(std::string("format(): the type '") + s.type + "' is not supported");
  if (!known) refuse(e, s, v);
  std::string digits, sign;
  bool negative = false;
  if (real) {
    const double d = v.as_real();
    negative = std::signbit(d) && !std::isnan(d);
    digits = real_digits(s, std::abs(d));
  } else {
    if (s.precision) e.fail("Precision not allowed in integer format specifier");
    const std::int64_t i = v.as_integer();
    negative = i < 0;
    digits = integer_digits(s, negative ? -static_cast<std::uint64_t>(i) : static_cast<std::uint64_t>(i));
  }
  if (s.group != 0) {
    if (s.fill == "0" && s.align == '=' && s.width > 0)
      e.fail("format(): grouping with zeros before is not supported");
    const bool decimal = real || s.type == 0 || s.type == 'd';
    if (!decimal && s.group == ',') e.fail(std::string("Cannot specify ',' with '") + s.type + "'.");
    digits = grouped(digits, s.group, decimal ? 3 : 4);
  }
  if (negative)
    sign = "-";
  else if (s.sign == '+' || s.sign == ' ')
    sign = s.sign;
  if (!real && s.alternate && s.type != 0 && s.type != 'd') sign += std::string("0") + s.type;
  const text_object* body = e.memory().make_text(digits);
  put_padded(e, out, s, s.align == 0 ? '>' : s.align, sign, *body, sign.size() + digits.size());
}

} // namespace

void write_formatted(evaluation& e, text_builder& out, const value& v, std::string_view spec) {
  if (!v.is_text() && !v.is_number())
    e.fail("unsupported format string passed to " + std::string(type_name(v)) + ".__format__");
  const format_spec s = parse_spec(e, spec, v);
  if (v.is_text())
    write_text_field(e, out, s, v.as_text());
  else
    write_number_field(e, out, s, v);
}

} // namespace troupe::models::jinja
