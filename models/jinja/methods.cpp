// SPDX-License-Identifier: Apache-2.0
// Methods of texts, lists and dictionaries, as Python has them.
#include "models/jinja/format.hpp"
#include "models/jinja/library.hpp"
#include "models/jinja/operators.hpp"
#include "models/jinja/text_operations.hpp"
#include "models/jinja/unicode.hpp"
#include "models/utf8.hpp"

#include <algorithm>

namespace troupe::models::jinja {
namespace {

struct method {
  std::string_view name;
  filter_function function;
};

// Texts.

const text_object* optional_text(const bound_arguments& b, std::size_t i) {
  return b.has(i) && !b.at(i)->is_none() ? &b.text(i) : nullptr;
}

template<bool Left, bool Right>
value strip_method(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments b(e, "strip", a, {"chars"});
  return strip(e, self.as_text(), optional_text(b, 0), Left, Right);
}

template<bool FromRight>
value split_method(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments b(e, "split", a, {"sep", "maxsplit"});
  return split(e, self.as_text(), optional_text(b, 0), b.integer(1, -1), FromRight);
}

value splitlines_method(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments b(e, "splitlines", a, {"keepends"});
  return e.list(split_lines(e, self.as_text(), b.flag(0, false)));
}

template<bool FromRight>
value partition_method(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments b(e, "partition", a, {"sep"}, 1);
  return partition(e, self.as_text(), b.text(0), FromRight);
}

value replace_method(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments b(e, "replace", a, {"old", "new", "count"}, 2);
  return replace(e, self.as_text(), b.text(0), b.text(1), b.integer(2, -1));
}

value join_method(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments b(e, "join", a, {"iterable"}, 1);
  std::vector<value> items = iterate(e, *b.at(0));
  if (self.as_text().markup) { // joins anything, escaped
    for (value& item : items) {
      if (!item.is_text() || !item.as_text().markup) item = escape_markup(e, to_text(e, item));
    }
    const value joined = join(e, self.as_text(), items);
    text_builder out;
    out.append(joined.as_text());
    return e.text(std::move(out), true);
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_text()) {
      e.fail(
          "sequence item " + std::to_string(i) + ": expected str instance, " +
          std::string(type_name(items[i])) + " found");
    }
  }
  return join(e, self.as_text(), items);
}

template<std::string (*Change)(std::string_view)>
value case_method(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments none(e, "case", a, {});
  return change_case(e, self.as_text(), Change);
}

/// The byte range of str's optional start and end; nothing when start lies beyond the text.
std::optional<text_span> clipped(evaluation& e, const text_object& t, const bound_arguments& b) {
  const auto size = static_cast<std::int64_t>(t.length);
  const auto resolve = [&](std::size_t i, std::int64_t absent) {
    std::int64_t at = b.has(i) && !b.at(i)->is_none() ? b.integer(i, absent) : absent;
    if (at < 0) at = std::max<std::int64_t>(0, at < -size ? 0 : at + size);
    return at;
  };
  const std::int64_t begin = resolve(1, 0), end = std::min(resolve(2, size), size);
  if (begin > size || begin > end) return std::nullopt;
  e.step(1 + t.bytes.size() / 64);
  return text_span{
      byte_offset(t, static_cast<std::size_t>(begin)), byte_offset(t, static_cast<std::size_t>(end))};
}

/// startswith and endswith: one text or a tuple of them.
template<bool End>
value affix_method(evaluation& e, const value& self, const arguments& a) {
  const std::string_view name = End ? "endswith" : "startswith";
  const bound_arguments b(e, name, a, {"prefix", "start", "end"}, 1);
  const text_object& t = self.as_text();
  const auto range = clipped(e, t, b);
  const auto matches = [&](const value& affix) {
    if (affix.is_undefined()) e.fail_undefined(affix);
    if (!affix.is_text()) {
      e.fail(
          std::string(name) + " first arg must be str or a tuple of str, not " +
          std::string(type_name(affix)));
    }
    if (!range) return false;
    e.step(scan_steps(affix.as_text().bytes.size()));
    const std::string_view part = std::string_view(t.bytes).substr(range->begin, range->end - range->begin);
    return End ? part.ends_with(affix.as_text().bytes) : part.starts_with(affix.as_text().bytes);
  };
  if (b.at(0)->is_list() && b.at(0)->as_list().form == list_form::tuple) {
    for (const value& affix : b.at(0)->as_list().items) {
      if (matches(affix)) return value::of(true);
    }
    return value::of(false);
  }
  return value::of(matches(*b.at(0)));
}

template<bool FromRight, bool Raise>
value find_method_of_text(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments b(e, Raise ? "index" : "find", a, {"sub", "start", "end"}, 1);
  const text_object& t = self.as_text();
  const std::string& part = b.text(0).bytes;
  const auto range = clipped(e, t, b);
  std::size_t at = std::string::npos;
  if (range) {
    e.step_search(t.bytes.size(), part.size());
    const std::string_view text = std::string_view(t.bytes).substr(range->begin, range->end - range->begin);
    at = FromRight ? text.rfind(part) : text.find(part);
    if (at != std::string::npos) at += range->begin;
  }
  if (at == std::string::npos) {
    if (Raise) e.fail("substring not found");
    return value::of(std::int64_t{-1});
  }
  return value::of(static_cast<std::int64_t>(count_code_points(std::string_view(t.bytes).substr(0, at))));
}

value count_method(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments b(e, "count", a, {"sub", "start", "end"}, 1);
  const text_object& t = self.as_text();
  const std::string& part = b.text(0).bytes;
  const auto range = clipped(e, t, b);
  if (!range) return value::of(std::int64_t{0});
  e.step_search(t.bytes.size(), part.size());
  const std::string_view text = std::string_view(t.bytes).substr(range->begin, range->end - range->begin);
  if (part.empty()) return value::of(static_cast<std::int64_t>(count_code_points(text) + 1));
  std::int64_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size()))
    ++count;
  return value::of(count);
}

/// All characters satisfy `Is`, and there is one.
template<bool (*Is)(char32_t) noexcept>
value all_method(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments none(e, "is...", a, {});
  const std::string& text = self.as_text().bytes;
  e.step(1 + text.size() / 16);
  for (std::size_t at = 0; at < text.size();) {
    const utf8_step c = decode_utf8(text, at);
    if (!Is(c.code)) return value::of(false);
    at += c.length;
  }
  return value::of(!text.empty());
}

value isprintable_method(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments none(e, "isprintable", a, {});
  // Of all such questions the one that an empty text answers with yes.
  return self.as_text().bytes.empty() ? value::of(true) : all_method<is_printable>(e, self, a);
}

bool is_alphanumeric(char32_t c) noexcept {
  return is_alphabetic(c) || is_numeric(c);
}

/// No cased character is in the other case, and there is one.
template<bool (*Is)(char32_t) noexcept>
value cased_method(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments none(e, "is...", a, {});
  const std::string& text = self.as_text().bytes;
  e.step(1 + text.size() / 16);
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const utf8_step c = decode_utf8(text, at);
    if (is_cased(c.code)) {
      if (!Is(c.code)) return value::of(false);
      any = true;
    }
    at += c.length;
  }
  return value::of(any);
}

value isascii_method(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments none(e, "isascii", a, {});
  return value::of(self.as_text().is_ascii());
}

/// Capitals only at the beginning of runs of cased characters, small letters only behind.
value istitle_method(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments none(e, "istitle", a, {});
  const std::string& text = self.as_text().bytes;
  e.step(1 + text.size() / 16);
  bool any = false, inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const utf8_step c = decode_utf8(text, at);
    at += c.length;
    const bool capital = is_upper(c.code) || is_titled(c.code), small = is_lower(c.code);
    if ((capital && inside) || (small && !inside)) return value::of(false);
    inside = capital || small;
    any = any || inside;
  }
  return value::of(any);
}

value expandtabs_method(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments b(e, "expandtabs", a, {"tabsize"});
  constexpr std::int64_t widest = 1000; // as for a formatted field
  const std::int64_t size = b.integer(0, 8);
  if (size > widest) e.fail("expandtabs: the size is above " + std::to_string(widest));
  const text_object& t = self.as_text();
  e.step(scan_steps(t.bytes.size()));
  text_builder out;
  std::int64_t column = 0;
  std::size_t copied = 0;
  const auto copy_to = [&](std::size_t end) {
    e.memory().charge(end - copied);
    out.append(t, copied, end);
  };
  for (std::size_t at = 0; at < t.bytes.size();) {
    const char c = t.bytes[at];
    const std::size_t length = decode_utf8(t.bytes, at).length;
    if (c == '\t') {
      copy_to(at);
      const std::int64_t missing = size > 0 ? size - column % size : 0;
      e.step(1 + static_cast<std::uint64_t>(missing) / 16);
      e.memory().charge(static_cast<std::size_t>(missing));
      out.append(std::string(static_cast<std::size_t>(missing), ' '), !t.untrusted.empty());
      column += missing;
      copied = at + 1;
    } else {
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
    at += length;
  }
  copy_to(t.bytes.size());
  return e.text(std::move(out), t.markup);
}

template<bool End>
value remove_affix(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments b(e, End ? "removesuffix" : "removeprefix", a, {"affix"}, 1);
  const text_object& t = self.as_text();
  const text_object& affix = b.text(0);
  e.step(scan_steps(affix.bytes.size()));
  const bool there = End ? t.bytes.ends_with(affix.bytes) : t.bytes.starts_with(affix.bytes);
  if (!there || affix.bytes.empty()) return self;
  return End ? text_range(e, t, 0, t.length - affix.length) : text_range(e, t, affix.length, t.length);
}

template<bool Left, bool Right>
value justify_method(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments b(e, "just", a, {"width", "fillchar"}, 1);
  if (b.has(1) && b.text(1).length != 1) e.fail("The fill character must be exactly one character long");
  return justify(e, self.as_text(), b.integer(0, 0), b.has(1) ? b.text(1).bytes : " ", Left, Right);
}

value zfill_method(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments b(e, "zfill", a, {"width"}, 1);
  const text_object& t = self.as_text();
  const bool sign = t.bytes.starts_with('-') || t.bytes.starts_with('+');
  const std::int64_t width = std::max<std::int64_t>(b.integer(0, 0), 0);
  if (!sign) return justify(e, t, width, "0", true, false);
  const value digits = text_range(e, t, 1, t.length);
  const value filled = justify(e, digits.as_text(), width - 1, "0", true, false);
  text_builder out;
  out.append(t, 0, 1);
  out.append(filled.as_text());
  return e.text(std::move(out));
}

value format_method(evaluation& e, const value& self, const arguments& a) {
  return format_braces(e, self.as_text(), a);
}

constexpr method text_methods[] = {
    {"capitalize", case_method<to_capitalized>},
    {"casefold", case_method<fold_case>},
    {"center", justify_method<true, true>},
    {"count", count_method},
    {"endswith", affix_method<true>},
    {"expandtabs", expandtabs_method},
    {"find", find_method_of_text<false, false>},
    {"format", format_method},
    {"index", find_method_of_text<false, true>},
    {"isalnum", all_method<is_alphanumeric>},
    {"isalpha", all_method<is_alphabetic>},
    {"isascii", isascii_method},
    {"isdecimal", all_method<is_decimal>},
    {"isdigit", all_method<is_digit_like>},
    {"islower", cased_method<is_lower>},
    {"isnumeric", all_method<is_numeric>},
    {"isprintable", isprintable_method},
    {"isspace", all_method<is_space>},
    {"istitle", istitle_method},
    {"isupper", cased_method<is_upper>},
    {"join", join_method},
    {"ljust", justify_method<false, true>},
    {"lower", case_method<to_lower>},
    {"lstrip", strip_method<true, false>},
    {"partition", partition_method<false>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"replace", replace_method},
    {"rfind", find_method_of_text<true, false>},
    {"rindex", find_method_of_text<true, true>},
    {"rjust", justify_method<true, false>},
    {"rpartition", partition_method<true>},
    {"rsplit", split_method<true>},
    {"rstrip", strip_method<false, true>},
    {"split", split_method<false>},
    {"splitlines", splitlines_method},
    {"startswith", affix_method<false>},
    {"strip", strip_method<true, true>},
    {"swapcase", case_method<swap_case>},
    {"title", case_method<to_title>},
    {"upper", case_method<to_upper>},
    {"zfill", zfill_method},
};

// Dictionaries.

value items_method(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments none(e, "items", a, {});
  std::vector<value> items;
  for (const auto& [key, item] : self.as_dict().entries)
    items.push_back(e.list({key, item}, list_form::tuple));
  return e.list(std::move(items), list_form::items);
}

value keys_method(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments none(e, "keys", a, {});
  return e.list(iterate(e, self), list_form::keys);
}

value values_method(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments none(e, "values", a, {});
  std::vector<value> items;
  for (const auto& [key, item] : self.as_dict().entries) items.push_back(item);
  return e.list(std::move(items), list_form::values);
}

value get_method(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments b(e, "get", a, {"key", "default"}, 1);
  if (const value* found = find_item(e, self.as_dict(), *b.at(0))) return *found;
  return b.has(1) ? *b.at(1) : value::none();
}

value copy_dict(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments none(e, "copy", a, {});
  dict_object* made = e.memory().make_dict();
  for (const auto& [key, item] : self.as_dict().entries) set_item(e, *made, key, item);
  return value::of(made);
}

// Without those that change a list or a dict, which `get_attribute` refuses.
constexpr method dict_methods[] = {
    {"copy", copy_dict},   {"get", get_method},       {"items", items_method},
    {"keys", keys_method}, {"values", values_method},
};

// Lists.

value count_item(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments b(e, "count", a, {"value"}, 1);
  std::int64_t count = 0;
  for (const value& item : self.as_list().items) count += equal(e, item, *b.at(0));
  return value::of(count);
}

value index_item(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments b(e, "index", a, {"value"}, 1);
  const std::vector<value>& items = self.as_list().items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (equal(e, items[i], *b.at(0))) return value::of(static_cast<std::int64_t>(i));
  }
  e.fail("the value is not in the list");
}

value copy_list(evaluation& e, const value& self, const arguments& a) {
  const bound_arguments none(e, "copy", a, {});
  return e.list(iterate(e, self));
}

constexpr method list_methods[] = {{"copy", copy_list}, {"count", count_item}, {"index", index_item}};
constexpr method tuple_methods[] = {{"count", count_item}, {"index", index_item}};

template<std::size_t N>
filter_function look_up(const method (&table)[N], std::string_view name) noexcept {
  for (const method& m : table) {
    if (m.name == name) return m.function;
  }
  return nullptr;
}

} // namespace

filter_function find_method(const value& receiver, std::string_view name) noexcept {
  switch (receiver.type()) {
  case value_type::text:
    return look_up(text_methods, name);
  case value_type::dict:
    return look_up(dict_methods, name);
  case value_type::list:
    if (receiver.as_list().form == list_form::list) return look_up(list_methods, name);
    if (receiver.as_list().form == list_form::tuple) return look_up(tuple_methods, name);
    return nullptr;
  default:
    return nullptr;
  }
}

} // namespace troupe::models::jinja
