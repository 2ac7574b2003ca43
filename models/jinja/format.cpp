// SPDX-License-Identifier: Apache-2.0
// Values as text: str(), repr(), JSON, str.format, dates.
#include "models/jinja/format.hpp"

#include "models/jinja/format_spec.hpp"
#include "models/jinja/operators.hpp"
#include "models/jinja/unicode.hpp"
#include "models/utf8.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace troupe::models::jinja {
namespace {

void put(evaluation& e, text_builder& out, std::string_view bytes, bool untrusted = false) {
  e.memory().charge(bytes.size());
  out.append(bytes, untrusted);
}

std::string hex(std::uint32_t code, int digits) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%0*x", digits, code);
  return text.data();
}

void write_items(evaluation& e, text_builder& out, const std::vector<value>& items) {
  bool first = true;
  for (const value& item : items) {
    if (!first) put(e, out, ", ");
    first = false;
    write_repr(e, out, item);
  }
}

void write_list_repr(evaluation& e, text_builder& out, const list_object& l) {
  switch (l.form) {
  case list_form::list:
    put(e, out, "[");
    write_items(e, out, l.items);
    put(e, out, "]");
    return;
  case list_form::tuple:
    put(e, out, "(");
    write_items(e, out, l.items);
    put(e, out, l.items.size() == 1 ? ",)" : ")");
    return;
  case list_form::generator:
    put(e, out, "<generator object>");
    return;
  case list_form::keys:
  case list_form::values:
  case list_form::items:
    put(e, out,
        l.form == list_form::keys     ? "dict_keys(["
        : l.form == list_form::values ? "dict_values(["
                                      : "dict_items([");
    write_items(e, out, l.items);
    put(e, out, "])");
    return;
  case list_form::range:
    break;
  }
  // range(start, stop[, step]) from the numbers it holds
  const std::size_t n = l.items.size();
  const std::int64_t start = n > 0 ? l.items[0].as_integer() : 0;
  const std::int64_t by = n > 1 ? l.items[1].as_integer() - start : 1;
  const std::int64_t stop = n > 0 ? l.items[n - 1].as_integer() + (by > 0 ? 1 : -1) : 0;
  put(e, out,
      "range(" + std::to_string(start) + ", " + std::to_string(stop) +
          (by == 1 ? "" : ", " + std::to_string(by)) + ")");
}

void write_json_text(evaluation& e, text_builder& out, const text_object& t, bool ensure_ascii) {
  const bool untrusted = !t.untrusted.empty();
  put(e, out, "\"");
  std::string escaped;
  for (std::size_t at = 0; at < t.bytes.size();) {
    const utf8_step step = decode_utf8(t.bytes, at);
    const char32_t c = step.code;
    switch (c) {
    case '"':
      escaped += "\\\"";
      break;
    case '\\':
      escaped += "\\\\";
      break;
    case '\n':
      escaped += "\\n";
      break;
    case '\r':
      escaped += "\\r";
      break;
    case '\t':
      escaped += "\\t";
      break;
    case '\f':
      escaped += "\\f";
      break;
    case '\b':
      escaped += "\\b";
      break;
    default:
      if (c < 0x20) {
        escaped += "\\u" + hex(c, 4);
      } else if (c < 0x7F || !ensure_ascii) {
        escaped.append(t.bytes, at, step.length);
      } else if (c < 0x10000) {
        escaped += "\\u" + hex(c, 4);
      } else {
        escaped +=
            "\\u" + hex(0xD800 + ((c - 0x10000) >> 10), 4) + "\\u" + hex(0xDC00 + ((c - 0x10000) & 0x3FF), 4);
      }
    }
    at += step.length;
  }
  put(e, out, escaped, untrusted);
  put(e, out, "\"");
}

std::string json_real(double d) {
  if (std::isnan(d)) return "NaN";
  if (std::isinf(d)) return d > 0 ? "Infinity" : "-Infinity";
  return spell_real(d);
}

void write_newline(evaluation& e, text_builder& out, const json_style& style, std::size_t level) {
  if (!style.indent) return;
  put(e, out, "\n");
  for (std::size_t i = 0; i < level; ++i) put(e, out, *style.indent);
}

void write_json_at(
    evaluation& e, text_builder& out, const value& v, const json_style& style, std::size_t level);

void write_json_key(evaluation& e, text_builder& out, const value& key, bool ensure_ascii) {
  switch (key.type()) {
  case value_type::text:
    write_json_text(e, out, key.as_text(), ensure_ascii);
    return;
  case value_type::boolean:
    put(e, out, key.as_bool() ? "\"true\"" : "\"false\"");
    return;
  case value_type::none:
    put(e, out, "\"null\"");
    return;
  case value_type::integer:
    put(e, out, "\"" + std::to_string(key.as_integer()) + "\"");
    return;
  case value_type::real:
    put(e, out, "\"" + json_real(key.as_real()) + "\"");
    return;
  default:
    e.fail("keys must be str, int, float, bool or None, not " + std::string(type_name(key)));
  }
}

void write_json_dict(
    evaluation& e, text_builder& out, const dict_object& d, const json_style& style, std::size_t level) {
  if (d.entries.empty()) return put(e, out, "{}");
  std::vector<const std::pair<value, value>*> entries;
  for (const auto& entry : d.entries) entries.push_back(&entry);
  if (style.sort_keys) {
    std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
      return ordered(e, operation::less, a->first, b->first);
    });
  }
  put(e, out, "{");
  bool first = true;
  for (const auto* entry : entries) {
    if (!first) put(e, out, style.item_separator);
    first = false;
    write_newline(e, out, style, level + 1);
    write_json_key(e, out, entry->first, style.ensure_ascii);
    put(e, out, style.key_separator);
    write_json_at(e, out, entry->second, style, level + 1);
  }
  write_newline(e, out, style, level);
  put(e, out, "}");
}

void write_json_at(
    evaluation& e, text_builder& out, const value& v, const json_style& style, std::size_t level) {
  e.step();
  const evaluation::nesting nested(e);
  switch (v.type()) {
  case value_type::none:
    return put(e, out, "null");
  case value_type::boolean:
    return put(e, out, v.as_bool() ? "true" : "false");
  case value_type::integer:
    return put(e, out, std::to_string(v.as_integer()));
  case value_type::real:
    return put(e, out, json_real(v.as_real()));
  case value_type::text:
    return write_json_text(e, out, v.as_text(), style.ensure_ascii);
  case value_type::dict:
    return write_json_dict(e, out, v.as_dict(), style, level);
  case value_type::list:
    if (v.as_list().form == list_form::list || v.as_list().form == list_form::tuple) {
      const std::vector<value>& items = v.as_list().items;
      if (items.empty()) return put(e, out, "[]");
      put(e, out, "[");
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (i > 0) put(e, out, style.item_separator);
        write_newline(e, out, style, level + 1);
        write_json_at(e, out, items[i], style, level + 1);
      }
      write_newline(e, out, style, level);
      return put(e, out, "]");
    }
    break;
  default:
    break;
  }
  e.fail("Object of type " + std::string(type_name(v)) + " is not JSON serializable");
}

} // namespace

std::string spell_real(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  std::array<char, 40> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), d, std::chars_format::scientific).ptr;
  std::string digits(text.data(), end); // [-]d[.ddd]e[+-]dd
  const std::size_t mark = digits.find('e');
  const int exponent = std::stoi(digits.substr(mark + 1));
  digits.resize(mark);
  std::string sign;
  if (digits[0] == '-') sign = "-", digits.erase(0, 1);
  if (digits.size() > 1) digits.erase(1, 1); // the point
  const int n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    std::string out = sign + digits[0];
    if (n > 1) out += "." + digits.substr(1);
    std::array<char, 16> power{};
    std::snprintf(power.data(), power.size(), "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    return out + power.data();
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  if (n <= exponent + 1)
    return sign + digits + std::string(static_cast<std::size_t>(exponent + 1 - n), '0') + ".0";
  const auto whole = static_cast<std::size_t>(exponent + 1);
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string quote(std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char mark = single ? '"' : '\'';
  std::string out(1, mark);
  for (std::size_t at = 0; at < text.size();) {
    const utf8_step step = decode_utf8(text, at);
    const char32_t c = step.code;
    if (c == static_cast<char32_t>(mark) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out += text.substr(at, step.length);
    } else if (c < 0x100) {
      out += "\\x" + hex(c, 2);
    } else if (c < 0x10000) {
      out += "\\u" + hex(c, 4);
    } else {
      out += "\\U" + hex(c, 8);
    }
    at += step.length;
  }
  return out + mark;
}

void write_repr(evaluation& e, text_builder& out, const value& v) {
  e.step();
  switch (v.type()) {
  case value_type::text: {
    const bool markup = v.as_text().markup;
    return put(
        e, out, markup ? "Markup(" + quote(v.as_text().bytes) + ")" : quote(v.as_text().bytes),
        !v.as_text().untrusted.empty());
  }
  case value_type::undefined:
    return put(e, out, "Undefined");
  case value_type::list: {
    const evaluation::nesting nested(e);
    return write_list_repr(e, out, v.as_list());
  }
  case value_type::dict: {
    const evaluation::nesting nested(e);
    put(e, out, "{");
    bool first = true;
    for (const auto& [key, item] : v.as_dict().entries) {
      if (!first) put(e, out, ", ");
      first = false;
      write_repr(e, out, key);
      put(e, out, ": ");
      write_repr(e, out, item);
    }
    return put(e, out, "}");
  }
  case value_type::space: {
    if (v.as_space().is_self) return put(e, out, "<TemplateReference None>"); // templates have no name here
    const evaluation::nesting nested(e);
    put(e, out, "<Namespace {");
    bool first = true;
    for (const auto& [key, item] : v.as_space().attributes.entries) {
      if (!first) put(e, out, ", ");
      first = false;
      write_repr(e, out, key);
      put(e, out, ": ");
      write_repr(e, out, item);
    }
    return put(e, out, "}>");
  }
  case value_type::loop:
    return put(e, out, "<LoopContext>");
  case value_type::helper:
    return put(e, out, "<" + std::string(type_name(v)) + ">");
  case value_type::function:
    if (v.as_function().method) // as long as Python's, with the address of nothing
      return put(
          e, out,
          "<built-in method " + std::string(v.as_function().name) + " of " +
              std::string(type_name(v.as_function().receiver)) + " object at 0x7f0000000000>");
    return put(e, out, "<" + std::string(type_name(v)) + " " + quote(v.as_function().name) + ">");
  default:
    return write_text(e, out, v);
  }
}

void write_text(evaluation& e, text_builder& out, const value& v) {
  switch (v.type()) {
  case value_type::undefined:
    return;
  case value_type::none:
    return put(e, out, "None");
  case value_type::boolean:
    return put(e, out, v.as_bool() ? "True" : "False");
  case value_type::integer:
    return put(e, out, std::to_string(v.as_integer()));
  case value_type::real:
    return put(e, out, spell_real(v.as_real()));
  case value_type::text:
    e.memory().charge(v.as_text().bytes.size());
    return out.append(v.as_text());
  default:
    return write_repr(e, out, v);
  }
}

const text_object& to_text(evaluation& e, const value& v) {
  if (v.is_text()) return v.as_text();
  text_builder out;
  write_text(e, out, v);
  return *e.memory().make_text(std::move(out));
}

void write_json(evaluation& e, text_builder& out, const value& v, const json_style& style) {
  write_json_at(e, out, v, style, 0);
}

value format_braces(evaluation& e, const text_object& pattern, const arguments& a) {
  text_builder out;
  const std::string& text = pattern.bytes;
  std::size_t next = 0;
  bool counted = false; // a field with a number was seen
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t mark = std::min(text.find_first_of("{}", at), text.size());
    e.memory().charge(mark - at);
    out.append(pattern, at, mark);
    if (mark == text.size()) break;
    if (mark + 1 < text.size() && text[mark + 1] == text[mark]) {
      put(e, out, std::string_view(text).substr(mark, 1));
      at = mark + 2;
      continue;
    }
    const std::size_t close = text.find('}', mark);
    if (text[mark] == '}') e.fail("Single '}' encountered in format string");
    if (close == std::string::npos) e.fail("expected '}' before end of string");
    std::string_view field = std::string_view(text).substr(mark + 1, close - mark - 1);
    const std::string_view whole = field;
    char conversion = 0;
    std::string_view spec;
    if (const std::size_t colon = field.find(':'); colon != std::string_view::npos) {
      spec = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    if (field.size() >= 2 && field[field.size() - 2] == '!') {
      conversion = field.back();
      field.remove_suffix(2);
    }
    const bool converts = conversion == 0 || conversion == 's' || conversion == 'r';
    if (field.find_first_of(".[!{") != std::string_view::npos || spec.find('{') != std::string_view::npos ||
        !converts) {
      e.fail("format(): only plain fields are supported, not '{" + std::string(whole) + "}'");
    }
    const value* found = nullptr;
    std::size_t index = next;
    const bool numbered = !field.empty() && std::all_of(field.begin(), field.end(), [](char c) {
      return c >= '0' && c <= '9';
    });
    if (numbered ? next > 0 : field.empty() && counted) {
      e.fail("format(): numbered and unnumbered fields cannot be mixed");
    }
    counted = counted || numbered;
    e.step(1 + a.named.size() / 16);
    if (field.empty()) {
      ++next;
    } else if (
        !numbered || std::from_chars(field.data(), field.data() + field.size(), index).ec != std::errc()) {
      index = SIZE_MAX;
    }
    if (index < a.positional.size()) found = &a.positional[index];
    for (const auto& [name, v] : a.named) {
      if (name->bytes == field) found = &v;
    }
    if (!found) e.fail("format(): no argument for the field '{" + std::string(field) + "}'");
    if (conversion != 0 && !spec.empty()) {
      text_builder spelled;
      conversion == 's' ? write_text(e, spelled, *found) : write_repr(e, spelled, *found);
      write_formatted(e, out, value::of(e.memory().make_text(std::move(spelled))), spec);
    } else if (!spec.empty()) {
      write_formatted(e, out, *found, spec);
    } else {
      conversion == 'r' ? write_repr(e, out, *found) : write_text(e, out, *found);
    }
    at = close + 1;
  }
  return e.text(std::move(out), pattern.markup);
}

std::string format_time(evaluation& e, const std::string& format, const std::tm& time) {
  if (format.size() > max_width) e.fail("a time format longer than " + std::to_string(max_width) + " bytes");
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    std::string directive = "%";
    directive += format[++i];
    if (directive[1] == '-' && i + 1 < format.size()) directive += format[++i]; // glibc: no padding
    if (directive == "%f") {
      out += "000000"; // the clock handed in has whole seconds
    } else if (directive == "%z" || directive == "%Z") {
      // a naive time has no zone
    } else {
      std::array<char, 128> text{};
      out.append(text.data(), std::strftime(text.data(), text.size(), directive.c_str(), &time));
    }
  }
  return out;
}

} // namespace troupe::models::jinja
