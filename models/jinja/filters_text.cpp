// SPDX-License-Identifier: Apache-2.0
// Filters that make texts and numbers.
#include "models/jinja/filter_table.hpp"
#include "models/jinja/format.hpp"
#include "models/jinja/number_text.hpp"
#include "models/jinja/operators.hpp"
#include "models/jinja/text_operations.hpp"
#include "models/jinja/unicode.hpp"
#include "models/utf8.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace troupe::models::jinja {
namespace {

constexpr std::int64_t max_indent = 1000; // columns; a bound on what one line of output can cost

value filter_upper(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments none(e, "upper", a, {});
  return change_case(e, to_text(e, input), to_upper);
}

value filter_lower(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments none(e, "lower", a, {});
  return change_case(e, to_text(e, input), to_lower);
}

value filter_capitalize(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments none(e, "capitalize", a, {});
  return change_case(e, to_text(e, input), to_capitalized);
}

/// Jinja's own title case: words begin after white space and - ( { [ <, the rest of each is lowered.
std::string title_words(std::string_view text) {
  std::string out;
  std::size_t at = 0;
  while (at < text.size()) {
    const auto separator = [&](std::size_t i) {
      const char32_t c = decode_utf8(text, i).code;
      return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    };
    const bool separates = separator(at);
    std::size_t end = at;
    while (end < text.size() && separator(end) == separates) end += decode_utf8(text, end).length;
    const std::size_t first = decode_utf8(text, at).length;
    out += to_upper(text.substr(at, first));
    out += to_lower(text.substr(at + first, end - at - first));
    at = end;
  }
  return out;
}

value filter_title(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments none(e, "title", a, {});
  return change_case(e, to_text(e, input), title_words);
}

value filter_trim(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments b(e, "trim", a, {"chars"});
  return strip(e, to_text(e, input), b.has(0) && !b.at(0)->is_none() ? &b.text(0) : nullptr, true, true);
}

value filter_string(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments none(e, "string", a, {});
  return value::of(&to_text(e, input));
}

value filter_safe(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments none(e, "safe", a, {});
  text_builder out;
  write_text(e, out, input);
  return e.text(std::move(out), true);
}

value filter_escape(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments none(e, "escape", a, {});
  if (input.is_text() && input.as_text().markup) return input;
  return escape_markup(e, to_text(e, input));
}

value filter_forceescape(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments none(e, "forceescape", a, {});
  return escape_markup(e, to_text(e, input));
}

value filter_replace(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments b(e, "replace", a, {"old", "new", "count"}, 2);
  const bool all = !b.has(2) || b.at(2)->is_none();
  return replace(
      e, to_text(e, input), to_text(e, *b.at(0)), to_text(e, *b.at(1)), all ? -1 : b.integer(2, -1));
}

value filter_indent(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments b(e, "indent", a, {"width", "first", "blank"});
  if (input.is_undefined()) e.fail_undefined(input);
  if (!input.is_text()) e.fail("indent: can only indent str, not " + std::string(type_name(input)));
  const text_object* by = nullptr;
  if (b.has(0) && b.at(0)->is_text()) {
    by = &b.at(0)->as_text();
  } else {
    const std::int64_t width = b.integer(0, 4);
    if (width > max_indent) e.fail("indent: the width is above " + std::to_string(max_indent));
    by = e.memory().make_text(std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' '));
  }
  const bool first = b.flag(1, false), blank = b.flag(2, false);
  text_builder whole;
  whole.append(input.as_text());
  whole.append("\n");
  const text_object* text = e.memory().make_text(std::move(whole));
  text_builder out;
  bool begin = true;
  for (const value& line : split_lines(e, *text, false)) {
    if (!begin) out.append("\n");
    if (begin ? first : blank || line.as_text().length > 0) {
      e.memory().charge(by->bytes.size());
      out.append(*by);
    }
    begin = false;
    out.append(line.as_text());
  }
  return e.text(std::move(out), input.as_text().markup);
}

value filter_center(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments b(e, "center", a, {"width"});
  return justify(e, to_text(e, input), b.integer(0, 80), " ", true, true);
}

value filter_truncate(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments b(e, "truncate", a, {"length", "killwords", "end", "leeway"});
  const std::int64_t length = b.integer(0, 255), leeway = b.integer(3, 5);
  const text_object* end = b.has(2) ? &b.text(2) : e.memory().make_text("...");
  const auto end_length = static_cast<std::int64_t>(end->length);
  if (length < end_length)
    e.fail("expected length >= " + std::to_string(end_length) + ", got " + std::to_string(length));
  if (leeway < 0) e.fail("expected leeway >= 0, got " + std::to_string(leeway));
  if (static_cast<std::int64_t>(jinja::length(e, input)) - leeway <= length) return input;
  if (!input.is_text()) e.fail("truncate: can only cut str, not " + std::string(type_name(input)));
  const text_object& t = input.as_text();
  value kept = text_range(e, t, 0, static_cast<std::size_t>(length - end_length));
  if (!b.flag(1, false)) {
    if (const std::size_t space = kept.as_text().bytes.rfind(' '); space != std::string::npos) {
      const std::size_t points = count_code_points(std::string_view(kept.as_text().bytes).substr(0, space));
      kept = text_range(e, kept.as_text(), 0, points);
    }
  }
  return arithmetic(e, operation::add, kept, value::of(end));
}

value filter_wordcount(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments none(e, "wordcount", a, {});
  const std::string& text = to_text(e, input).bytes;
  e.step(1 + text.size() / 16);
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const utf8_step c = decode_utf8(text, at);
    const bool word = is_word(c.code);
    words += word && !inside;
    inside = word;
    at += c.length;
  }
  return value::of(words);
}

value filter_format(evaluation& e, const value& input, const arguments& a) {
  if (!a.positional.empty() && !a.named.empty())
    e.fail("can't handle positional and keyword arguments at the same time");
  value operand = e.list(a.positional, list_form::tuple);
  if (!a.named.empty()) {
    dict_object* named = e.memory().make_dict();
    for (const auto& [name, v] : a.named) named->set(value::of(name), v);
    operand = value::of(named);
  }
  return format_percent(e, to_text(e, input), operand);
}

value filter_tojson(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments b(e, "tojson", a, {"ensure_ascii", "indent", "separators", "sort_keys"});
  // As in Hugging Face's chat templates the first positional argument is ensure_ascii; nothing is escaped for
  // HTML.
  json_style style;
  style.ensure_ascii = b.flag(0, false);
  style.sort_keys = b.flag(3, false);
  if (b.has(1) && !b.at(1)->is_none()) {
    if (b.at(1)->is_text()) {
      style.indent = b.at(1)->as_text().bytes;
    } else {
      const std::int64_t width = b.integer(1, 0);
      if (width > max_indent) e.fail("tojson: the indent is above " + std::to_string(max_indent));
      style.indent = std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
    }
    style.item_separator = ",";
  }
  if (b.has(2) && !b.at(2)->is_none()) {
    const std::vector<value> both = iterate(e, *b.at(2));
    if (both.size() != 2 || !both[0].is_text() || !both[1].is_text())
      e.fail("tojson: separators must be two texts");
    style.item_separator = both[0].as_text().bytes;
    style.key_separator = both[1].as_text().bytes;
  }
  text_builder out;
  write_json(e, out, input, style);
  return e.text(std::move(out));
}

// Numbers.

/// `text` as int() and float() read it: white space and decimal digits of any script as those of ASCII, and
/// '?' for the first character that is neither. The blanks 1C to 1F stay as they are, as in Python.
std::string ascii_number(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const utf8_step step = decode_utf8(text, at);
    const int digit = decimal_value(step.code);
    if (step.code < 0x80)
      out += static_cast<char>(step.code);
    else if (is_space(step.code))
      out += ' ';
    else if (digit >= 0)
      out += static_cast<char>('0' + digit);
    else
      return out + '?';
    at += step.length;
  }
  return out;
}

/// The text without white space and underscores between digits, as int() and float() read it.
std::optional<std::string> number_text(std::string_view whole) {
  const std::string read = ascii_number(whole);
  std::string_view text = read;
  const auto space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  std::string out;
  const auto alphanumeric = [](char c) {
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() || !alphanumeric(text[i - 1]) || !alphanumeric(text[i + 1])) {
      return std::nullopt;
    }
  }
  return out;
}

std::optional<double> read_real(std::string_view text) {
  auto number = number_text(text);
  if (!number || number->empty()) return std::nullopt;
  std::string_view rest = *number;
  bool negative = false;
  if (rest.front() == '+' || rest.front() == '-') {
    negative = rest.front() == '-';
    rest.remove_prefix(1);
  }
  if (rest.empty() || rest.front() == '+' || rest.front() == '-') return std::nullopt;
  double d = 0;
  std::string lower(rest);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  if (lower.find('(') != std::string::npos) return std::nullopt; // nan(...) is not Python
  const auto parsed = std::from_chars(lower.data(), lower.data() + lower.size(), d);
  if (parsed.ptr != lower.data() + lower.size()) return std::nullopt;
  if (parsed.ec == std::errc::result_out_of_range) {
    d = beyond_range(lower);
  } else if (parsed.ec != std::errc()) {
    return std::nullopt;
  }
  return negative ? -d : d;
}

std::optional<std::int64_t> read_integer(evaluation& e, std::string_view text, std::int64_t base) {
  auto number = number_text(text);
  if (!number || number->empty()) return std::nullopt;
  std::string_view rest = *number;
  std::string digits;
  if (rest.front() == '+' || rest.front() == '-') {
    if (rest.front() == '-') digits = "-";
    rest.remove_prefix(1);
  }
  if (rest.size() > 2 && rest[0] == '0') {
    const char mark = static_cast<char>(rest[1] | 32);
    const std::int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == marked || base == 0)) {
      rest.remove_prefix(2);
      base = marked;
    }
  }
  if (base == 0) base = 10;
  if (rest.empty() || rest.front() == '+' || rest.front() == '-') return std::nullopt;
  digits += rest;
  std::int64_t out = 0;
  const auto parsed =
      std::from_chars(digits.data(), digits.data() + digits.size(), out, static_cast<int>(base));
  if (parsed.ptr != digits.data() + digits.size()) return std::nullopt;
  if (parsed.ec == std::errc::result_out_of_range) e.fail("an integer does not fit 64 bits");
  if (parsed.ec != std::errc()) return std::nullopt;
  return out;
}

std::optional<std::int64_t> truncated(evaluation& e, double d) {
  if (std::isnan(d)) return std::nullopt;
  if (std::isinf(d)) e.fail("cannot convert float infinity to integer");
  if (!(std::abs(d) < 9.2e18)) e.fail("an integer does not fit 64 bits");
  return static_cast<std::int64_t>(d);
}

value filter_int(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments b(e, "int", a, {"default", "base"});
  const value otherwise = b.has(0) ? *b.at(0) : value::of(std::int64_t{0});
  const std::int64_t base = b.integer(1, 10);
  if (base != 0 && (base < 2 || base > 36)) return otherwise;
  if (input.is_undefined()) e.fail_undefined(input);
  if (input.is_integral()) return value::of(input.as_integer());
  std::optional<std::int64_t> out;
  if (input.is(value_type::real)) out = truncated(e, input.as_real());
  if (input.is_text()) {
    out = read_integer(e, input.as_text().bytes, base);
    if (!out) { // "42.23" gives 42
      if (const auto d = read_real(input.as_text().bytes))
        out = std::isinf(*d) ? std::nullopt : truncated(e, *d);
    }
  }
  return out ? value::of(*out) : otherwise;
}

value filter_float(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments b(e, "float", a, {"default"});
  if (input.is_undefined()) e.fail_undefined(input);
  if (input.is_number()) return value::of(input.as_real());
  if (input.is_text()) {
    if (const auto d = read_real(input.as_text().bytes)) return value::of(*d);
  }
  return b.has(0) ? *b.at(0) : value::of(0.0);
}

value filter_abs(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments none(e, "abs", a, {});
  if (input.is(value_type::real)) return value::of(std::abs(input.as_real()));
  if (input.is_integral()) return input.as_integer() < 0 ? negate(e, input) : value::of(input.as_integer());
  if (input.is_undefined()) e.fail_undefined(input);
  e.fail("bad operand type for abs(): '" + std::string(type_name(input)) + "'");
}

/// Half to even at 10^-places, which is above 1.
std::int64_t round_integer(evaluation& e, std::int64_t i, std::int64_t places) {
  if (places < -19) return 0; // half of 10^20 is above every integer
  std::uint64_t unit = 1;
  for (std::int64_t n = places; n < 0; ++n) unit *= 10;
  const std::uint64_t size = i < 0 ? -static_cast<std::uint64_t>(i) : static_cast<std::uint64_t>(i);
  const std::uint64_t rest = size % unit, to_next = unit - rest;
  const bool up = rest > to_next || (rest == to_next && size / unit % 2 != 0);
  std::uint64_t rounded = 0;
  const std::uint64_t largest = static_cast<std::uint64_t>(INT64_MAX) + (i < 0 ? 1 : 0);
  if (__builtin_add_overflow(size - rest, up ? unit : 0, &rounded) || rounded > largest)
    e.fail("an integer does not fit 64 bits");
  return static_cast<std::int64_t>(i < 0 ? -rounded : rounded);
}

/// Half to even at a decimal place, decided on the exact value.
double round_real(evaluation& e, double d, std::int64_t places) {
  if (!std::isfinite(d) || places > 323) return d;
  if (places < -308) return std::copysign(0.0, d);
  if (places >= 0) { // printf rounds the exact binary value half to even
    std::string text(400 + static_cast<std::size_t>(places), '\0');
    const int n = std::snprintf(text.data(), text.size(), "%.*f", static_cast<int>(places), d);
    double out = 0;
    std::from_chars(text.data(), text.data() + n, out);
    return out;
  }
  const double unit = std::pow(10.0, static_cast<double>(-places));
  const double out = std::nearbyint(d / unit) * unit;
  if (std::isinf(out)) e.fail("rounded value too large to represent");
  return out;
}

/// floor and ceil at a decimal place.
double round_towards(evaluation& e, double d, std::int64_t places, bool up) {
  if (places > 308) e.fail("int too large to convert to float");
  const double unit = std::pow(10.0, static_cast<double>(places));
  if (unit == 0) e.fail("float division by zero");
  const double scaled = d * unit;
  if (!std::isfinite(scaled)) e.fail("cannot convert float infinity or NaN to integer");
  // Python's integers have no negative zero.
  return ((up ? std::ceil(scaled) : std::floor(scaled)) + 0.0) / unit;
}

value filter_round(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments b(e, "round", a, {"precision", "method"});
  const std::int64_t places = b.integer(0, 0);
  const std::string method = b.has(1) ? b.text(1).bytes : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    e.fail("method must be common, ceil or floor");
  if (input.is_undefined()) e.fail_undefined(input);
  if (!input.is_number())
    e.fail("type " + std::string(type_name(input)) + " doesn't define __round__ method");
  if (method == "common") {
    if (!input.is_integral()) return value::of(round_real(e, input.as_real(), places));
    return value::of(places >= 0 ? input.as_integer() : round_integer(e, input.as_integer(), places));
  }
  return value::of(round_towards(e, input.as_real(), places, method == "ceil"));
}

constexpr filter_entry text_filter_table[] = {
    {"abs", filter_abs},
    {"capitalize", filter_capitalize},
    {"center", filter_center},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"float", filter_float},
    {"forceescape", filter_forceescape},
    {"format", filter_format},
    {"indent", filter_indent},
    {"int", filter_int},
    {"lower", filter_lower},
    {"replace", filter_replace},
    {"round", filter_round},
    {"safe", filter_safe},
    {"string", filter_string},
    {"title", filter_title},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"truncate", filter_truncate},
    {"upper", filter_upper},
    {"wordcount", filter_wordcount},
    {"wordwrap", filter_wordwrap},
};

} // namespace

std::span<const filter_entry> text_filters() noexcept {
  return text_filter_table;
}

} // namespace troupe::models::jinja
