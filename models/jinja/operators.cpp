// SPDX-License-Identifier: Apache-2.0
// Truth, comparison, membership and iteration of values.
#include "models/jinja/operators.hpp"

#include "models/jinja/helpers.hpp"
#include "models/jinja/loop.hpp"
#include "models/utf8.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::models::jinja {

std::string_view symbol_of(operation op) noexcept {
  switch (op) {
  case operation::add:
    return "+";
  case operation::subtract:
    return "-";
  case operation::multiply:
    return "*";
  case operation::divide:
    return "/";
  case operation::floor_divide:
    return "//";
  case operation::modulo:
    return "%";
  case operation::power:
    return "** or pow()";
  case operation::less:
    return "<";
  case operation::less_equal:
    return "<=";
  case operation::greater:
    return ">";
  case operation::greater_equal:
    return ">=";
  default:
    return "?";
  }
}

bool is_plain_sequence(const value& v) noexcept {
  return v.is_text() ||
         (v.is_list() && (v.as_list().form == list_form::list || v.as_list().form == list_form::tuple));
}

void evaluation::fail_undefined(const value& v) const {
  fail(v.undefined_reason() ? v.undefined_reason()->bytes : "value is undefined");
}

std::string_view type_name(const value& v) noexcept {
  switch (v.type()) {
  case value_type::undefined:
    return "Undefined";
  case value_type::none:
    return "NoneType";
  case value_type::boolean:
    return "bool";
  case value_type::integer:
    return "int";
  case value_type::real:
    return "float";
  case value_type::text:
    return v.as_text().markup ? "Markup" : "str";
  case value_type::dict:
    return "dict";
  case value_type::space:
    return v.as_space().is_self ? "TemplateReference" : "Namespace";
  case value_type::loop:
    return "LoopContext";
  case value_type::helper:
    return helper_name(v.as_helper());
  case value_type::function:
    if (v.as_function().named_block) return "BlockReference";
    return v.as_function().macro ? "Macro" : "builtin_function_or_method";
  case value_type::list:
    break;
  }
  switch (v.as_list().form) {
  case list_form::list:
    return "list";
  case list_form::tuple:
    return v.as_list().group ? "_GroupTuple" : "tuple";
  case list_form::generator:
    return "generator";
  case list_form::keys:
    return "dict_keys";
  case list_form::values:
    return "dict_values";
  case list_form::items:
    return "dict_items";
  case list_form::range:
    return "range";
  }
  return "list";
}

bool truth(const value& v) noexcept {
  switch (v.type()) {
  case value_type::undefined:
  case value_type::none:
    return false;
  case value_type::boolean:
  case value_type::integer:
    return v.as_integer() != 0;
  case value_type::real:
    return v.as_real() != 0;
  case value_type::text:
    return !v.as_text().bytes.empty();
  case value_type::list:
    return v.as_list().form == list_form::generator || !v.as_list().items.empty();
  case value_type::dict:
    return !v.as_dict().entries.empty();
  default:
    return true;
  }
}

bool equal(evaluation& e, const value& a, const value& b) {
  e.step();
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_integer() == b.as_integer();
    return a.as_real() == b.as_real();
  }
  if (a.type() != b.type()) return false;
  if (a.is_text()) {
    const std::string &x = a.as_text().bytes, &y = b.as_text().bytes;
    if (x.size() != y.size()) return false;
    e.step(scan_steps(x.size()));
    return x == y;
  }
  if (a.is_list()) {
    const list_object &x = a.as_list(), &y = b.as_list();
    if (&x == &y) return true;
    if (x.form != y.form || has_identity(x.form) || x.items.size() != y.items.size()) {
      return false;
    }
    const evaluation::nesting nested(e);
    for (std::size_t i = 0; i < x.items.size(); ++i) {
      if (!equal(e, x.items[i], y.items[i])) return false;
    }
    return true;
  }
  if (a.is_dict()) {
    const dict_object &x = a.as_dict(), &y = b.as_dict();
    if (&x == &y) return true;
    if (x.entries.size() != y.entries.size()) return false;
    const evaluation::nesting nested(e);
    for (const auto& [key, item] : x.entries) {
      const value* other = find_item(e, y, key);
      if (!other || !equal(e, item, *other)) return false;
    }
    return true;
  }
  return a.is_same(b);
}

bool ordered(evaluation& e, operation op, const value& a, const value& b) {
  e.step();
  const auto decide = [op](auto less, auto same) {
    switch (op) {
    case operation::less:
      return less;
    case operation::less_equal:
      return less || same;
    case operation::greater:
      return !less && !same;
    default:
      return !less;
    }
  };
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) {
      return decide(a.as_integer() < b.as_integer(), a.as_integer() == b.as_integer());
    }
    const double x = a.as_real(), y = b.as_real();
    if (std::isnan(x) || std::isnan(y)) return false;
    return decide(x < y, x == y);
  }
  if (a.is_text() && b.is_text()) {
    // The byte order of UTF-8 is the order of code points.
    e.step(scan_steps(std::min(a.as_text().bytes.size(), b.as_text().bytes.size())));
    const int order = a.as_text().bytes.compare(b.as_text().bytes);
    return decide(order < 0, order == 0);
  }
  if (a.is_list() && b.is_list() && is_plain_sequence(a) && a.as_list().form == b.as_list().form) {
    const evaluation::nesting nested(e);
    const auto &x = a.as_list().items, &y = b.as_list().items;
    for (std::size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!equal(e, x[i], y[i])) return ordered(e, op, x[i], y[i]);
    }
    return decide(x.size() < y.size(), x.size() == y.size());
  }
  if (a.is_undefined()) e.fail_undefined(a);
  if (b.is_undefined()) e.fail_undefined(b);
  e.fail(
      "'" + std::string(symbol_of(op)) + "' not supported between instances of '" +
      std::string(type_name(a)) + "' and '" + std::string(type_name(b)) + "'");
}

bool contains(evaluation& e, const value& container, const value& item) {
  switch (container.type()) {
  case value_type::text: {
    if (!item.is_text()) {
      e.fail("'in <string>' requires string as left operand, not " + std::string(type_name(item)));
    }
    const std::string &text = container.as_text().bytes, &part = item.as_text().bytes;
    e.step_search(text.size(), part.size());
    return text.find(part) != std::string::npos;
  }
  case value_type::list:
    for (const value& x : iterate(e, container)) {
      if (x.is_same(item) || equal(e, x, item)) return true;
    }
    return false;
  case value_type::dict:
    return find_item(e, container.as_dict(), item) != nullptr;
  case value_type::undefined:
    return false;
  default:
    e.fail("argument of type '" + std::string(type_name(container)) + "' is not iterable");
  }
}

namespace {

/// Counts a step for each part of a key. Parts may be shared, so that few objects make a large key.
bool count_key(evaluation& e, const value& v, int depth) {
  e.step(v.is_text() ? scan_steps(v.as_text().bytes.size()) : 1);
  if (v.is_dict() || v.is(value_type::space)) return false;
  if (!v.is_list()) return true;
  const list_object& l = v.as_list();
  if (l.form == list_form::range) {
    e.step(l.items.size());
    return true;
  }
  if (has_identity(l.form)) return true;
  if (l.form != list_form::tuple || depth == max_key_depth) return false;
  return std::all_of(
      l.items.begin(), l.items.end(), [&](const value& item) { return count_key(e, item, depth + 1); });
}

void check_key(evaluation& e, const value& key) {
  if (!is_hashable(e, key)) e.fail("unhashable type: '" + std::string(type_name(key)) + "'");
}

} // namespace

bool is_hashable(evaluation& e, const value& key) {
  return count_key(e, key, 0);
}

const value* find_item(evaluation& e, const dict_object& d, const value& key) {
  check_key(e, key);
  return d.find(key);
}

void set_item(evaluation& e, dict_object& d, const value& key, const value& item) {
  check_key(e, key);
  e.memory().charge(2 * sizeof(std::pair<value, value>));
  d.set(key, item);
}

std::vector<value> iterate(evaluation& e, const value& v) {
  std::vector<value> out;
  switch (v.type()) {
  case value_type::undefined:
    return out;
  case value_type::list: {
    list_object& l = v.as_list();
    e.memory().charge(l.items.size() * sizeof(value));
    if (l.form != list_form::generator) return l.items;
    if (std::exchange(l.consumed, true)) return out;
    return std::move(l.items);
  }
  case value_type::dict:
    for (const auto& [key, item] : v.as_dict().entries) out.push_back(key);
    e.memory().charge(out.size() * sizeof(value));
    return out;
  case value_type::text: {
    const text_object& t = v.as_text();
    for (std::size_t at = 0; at < t.bytes.size();) {
      const std::size_t size = decode_utf8(t.bytes, at).length;
      text_builder one;
      one.append(t, at, at + size);
      out.push_back(e.text(std::move(one)));
      at += size;
    }
    return out;
  }
  default:
    e.fail("'" + std::string(type_name(v)) + "' object is not iterable");
  }
}

std::size_t length(evaluation& e, const value& v) {
  switch (v.type()) {
  case value_type::undefined:
    return 0;
  case value_type::text:
    return v.as_text().length;
  case value_type::dict:
    return v.as_dict().entries.size();
  case value_type::loop:
    return loop_length(v.as_loop());
  case value_type::list:
    if (v.as_list().form != list_form::generator) return v.as_list().items.size();
    break;
  default:
    break;
  }
  e.fail("object of type '" + std::string(type_name(v)) + "' has no len()");
}

} // namespace troupe::models::jinja
