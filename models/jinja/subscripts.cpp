// SPDX-License-Identifier: Apache-2.0
// Attributes, items and slices of values.
#include "models/jinja/operators.hpp"

#include "models/jinja/format.hpp"
#include "models/jinja/helpers.hpp"
#include "models/jinja/library.hpp"
#include "models/jinja/loop.hpp"

#include <algorithm>
#include <iterator>
#include <optional>

namespace troupe::models::jinja {
namespace {

/// "dict object", as messages about missing attributes name a value.
std::string object_name(const value& v) {
  if (v.is_none()) return "None";
  if (v.is(value_type::space))
    return v.as_space().is_self ? "jinja2.runtime.TemplateReference object" : "jinja2.utils.Namespace object";
  if (v.is(value_type::loop)) return "jinja2.runtime.LoopContext object";
  if (v.is(value_type::helper)) return "jinja2.utils." + std::string(type_name(v)) + " object";
  return std::string(type_name(v)) + " object";
}

value missing(evaluation& e, const value& v, const value& key) {
  std::string message;
  if (key.is_text()) {
    message = quote(object_name(v)) + " has no attribute " + quote(key.as_text().bytes);
  } else {
    text_builder spelled;
    write_repr(e, spelled, key);
    message = object_name(v) + " has no element " + spelled.bytes();
  }
  return value::undefined(e.memory().make_text(message));
}

/// What is not a method: the parts of a number, the names of a group, the attributes of Jinja's own objects.
std::optional<value> plain_attribute(evaluation& e, const value& v, std::string_view name) {
  switch (v.type()) {
  case value_type::boolean:
  case value_type::integer:
    if (name == "real" || name == "numerator") return value::of(v.as_integer());
    if (name == "imag" || name == "denominator") return value::of(std::int64_t{name == "denominator"});
    break;
  case value_type::real:
    if (name == "real") return v;
    if (name == "imag") return value::of(0.0);
    break;
  case value_type::list:
    if (v.as_list().group && name == "grouper") return v.as_list().items[0];
    if (v.as_list().group && name == "list") return v.as_list().items[1];
    break;
  case value_type::helper:
    return helper_attribute(e, v.as_helper(), name);
  case value_type::loop:
    if (const value found = loop_attribute(e, v.as_loop(), name);
        found.undefined_reason() || !found.is_undefined())
      return found;
    break;
  case value_type::space:
    if (const value* found = v.as_space().attributes.find(name)) return *found;
    break;
  default:
    break;
  }
  return std::nullopt;
}

/// The methods that change a list or a dict, which transformers' sandbox keeps from templates.
bool is_forbidden(const value& v, std::string_view name) noexcept {
  static constexpr std::string_view of_lists[] = {"append", "clear",  "extend",  "insert",
                                                  "pop",    "remove", "reverse", "sort"};
  static constexpr std::string_view of_dicts[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const auto among = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return (v.is_list() && v.as_list().form == list_form::list && among(of_lists)) ||
         (v.is_dict() && among(of_dicts));
}

/// What Python's getattr finds: undefined, with the sandbox's reason, for what a template may not have;
/// nothing when there is no such attribute.
std::optional<value> find_attribute(evaluation& e, const value& v, const text_object& name) {
  if (auto found = plain_attribute(e, v, name.bytes)) return found;
  if (is_forbidden(v, name.bytes))
    return value::undefined(e.memory().make_text(
        "access to attribute " + quote(name.bytes) + " of " + quote(type_name(v)) + " object is unsafe."));
  const filter_function method = find_method(v, name.bytes);
  if (!method) return std::nullopt;
  auto* f = e.memory().make<function_object>();
  f->name = name.bytes;
  f->method = method;
  f->receiver = v;
  return value::of(f);
}

bool is_subscriptable(const list_object& l) noexcept {
  return l.form == list_form::list || l.form == list_form::tuple || l.form == list_form::range;
}

/// An index from either end, or nothing when it is outside.
std::optional<std::size_t> resolve_index(std::int64_t i, std::size_t size) noexcept {
  const auto n = static_cast<std::int64_t>(size);
  if (i < 0) i += n;
  if (i < 0 || i >= n) return std::nullopt;
  return static_cast<std::size_t>(i);
}

} // namespace

value get_attribute(evaluation& e, const value& v, const text_object& name) {
  if (v.is_undefined()) e.fail_undefined(v);
  e.step(name.bytes.size() / 64);
  if (const auto found = find_attribute(e, v, name)) return *found;
  if (v.is_dict()) {
    if (const value* found = v.as_dict().find(name.bytes)) return *found;
  }
  return missing(e, v, value::of(&name));
}

value get_item(evaluation& e, const value& v, const value& key) {
  if (v.is_undefined()) e.fail_undefined(v);
  if (v.is_dict()) {
    if (is_hashable(e, key)) {
      if (const value* found = v.as_dict().find(key)) return *found;
    }
  } else if (v.is_list() && key.is_integral() && is_subscriptable(v.as_list())) {
    if (const auto i = resolve_index(key.as_integer(), v.as_list().items.size()))
      return v.as_list().items[*i];
  } else if (v.is_text() && key.is_integral()) {
    if (const auto i = resolve_index(key.as_integer(), v.as_text().length))
      return text_range(e, v.as_text(), *i, *i + 1);
  }
  if (key.is_text()) {
    if (const auto found = find_attribute(e, v, key.as_text())) return *found;
  }
  return missing(e, v, key);
}

value get_slice(evaluation& e, const value& v, const value* start, const value* stop, const value* step) {
  if (v.is_undefined()) e.fail_undefined(v);
  const bool sliceable = v.is_text() || (v.is_list() && is_subscriptable(v.as_list()));
  const auto usable = [](const value* part) { return !part || part->is_none() || part->is_integral(); };
  std::int64_t by = 1;
  if (step && step->is_integral()) by = step->as_integer();
  if (!sliceable) {
    if (v.is_dict()) e.fail("unhashable type: 'slice'");
    e.fail("'" + std::string(type_name(v)) + "' object is not subscriptable");
  }
  if (!usable(start) || !usable(stop) || !usable(step)) {
    e.fail("slice indices must be integers or None or have an __index__ method");
  }
  if (by == 0) e.fail("slice step cannot be zero");
  const auto size = static_cast<std::int64_t>(v.is_text() ? v.as_text().length : v.as_list().items.size());
  const auto clamp = [&](const value* part, std::int64_t absent) {
    if (!part || part->is_none()) return absent;
    std::int64_t i = part->as_integer();
    if (i < 0) i = i < -size ? -1 : i + size;
    const std::int64_t low = by < 0 ? -1 : 0, high = by < 0 ? size - 1 : size;
    if (part->as_integer() < 0 && i < 0) return low;
    return std::clamp(i, low, std::max(low, high));
  };
  const std::int64_t from = clamp(start, by < 0 ? size - 1 : 0), to = clamp(stop, by < 0 ? -1 : size);
  if (by == 1 && v.is_text()) {
    return text_range(
        e, v.as_text(), static_cast<std::size_t>(from), static_cast<std::size_t>(std::max(from, to)));
  }
  std::vector<value> items;
  text_builder text;
  std::vector<std::size_t> offsets; // of the code points, for text that is not ASCII
  if (v.is_text() && !v.as_text().is_ascii()) {
    e.memory().charge(v.as_text().length * sizeof(std::size_t));
    for (std::size_t i = 0; i < v.as_text().bytes.size(); ++i) {
      if ((static_cast<unsigned char>(v.as_text().bytes[i]) & 0xC0) != 0x80) offsets.push_back(i);
    }
    offsets.push_back(v.as_text().bytes.size());
  }
  for (std::int64_t i = from; by > 0 ? i < to : i > to;) {
    e.step();
    const auto at = static_cast<std::size_t>(i);
    if (!v.is_text()) {
      items.push_back(v.as_list().items[at]);
    } else if (offsets.empty()) {
      text.append(v.as_text(), at, at + 1);
    } else {
      text.append(v.as_text(), offsets[at], offsets[at + 1]);
    }
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  return v.is_text() ? e.text(std::move(text), v.as_text().markup)
                     : e.list(std::move(items), v.as_list().form);
}

std::size_t byte_offset(const text_object& t, std::size_t code_point) noexcept {
  if (t.is_ascii()) return code_point;
  if (code_point == t.length) return t.bytes.size();
  std::size_t at = 0;
  for (; code_point > 0; --code_point) {
    do ++at;
    while ((static_cast<unsigned char>(t.bytes[at]) & 0xC0) == 0x80);
  }
  return at;
}

value text_range(evaluation& e, const text_object& t, std::size_t begin, std::size_t end) {
  if (!t.is_ascii()) e.step(scan_steps(t.bytes.size()));
  text_builder out;
  const std::size_t from = byte_offset(t, begin), to = byte_offset(t, end);
  e.memory().charge(to - from);
  out.append(t, from, to);
  return e.text(std::move(out), t.markup);
}

} // namespace troupe::models::jinja
