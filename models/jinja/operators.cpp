// SPDX-License-Identifier: Apache-2.0
// Python's operators on values.
#include "models/jinja/operators.hpp"

#include "models/jinja/format.hpp"
#include "models/jinja/library.hpp"
#include "models/jinja/loop.hpp"
#include "models/utf8.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::models::jinja {
namespace {

/// Steps for looking at `bytes` of text: memory moves some tens of bytes in the time of one step.
constexpr std::uint64_t scan_steps(std::size_t bytes) noexcept {
  return 1 + bytes / 64;
}

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

/// "dict object", as messages about missing attributes name a value.
std::string object_name(const value& v) {
  if (v.is_none()) return "None";
  if (v.is(value_type::space)) return "jinja2.utils.Namespace object";
  if (v.is(value_type::loop)) return "jinja2.runtime.LoopContext object";
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

bool lists_alike(list_form a, list_form b) noexcept {
  return a == b;
}

[[noreturn]] void fail_operands(evaluation& e, operation op, const value& a, const value& b) {
  if (a.is_undefined()) e.fail_undefined(a);
  if (b.is_undefined()) e.fail_undefined(b);
  e.fail(
      "unsupported operand type(s) for " + std::string(symbol_of(op)) + ": '" + std::string(type_name(a)) +
      "' and '" + std::string(type_name(b)) + "'");
}

[[noreturn]] void fail_range(evaluation& e) {
  e.fail("an integer does not fit 64 bits");
}

value join_texts(evaluation& e, const text_object& a, const text_object& b) {
  text_builder out;
  e.memory().charge(a.bytes.size() + b.bytes.size());
  if (a.markup != b.markup) { // plain text added to markup is escaped
    const value plain = escape_markup(e, a.markup ? b : a);
    out.append(a.markup ? a : plain.as_text());
    out.append(a.markup ? plain.as_text() : b);
  } else {
    out.append(a);
    out.append(b);
  }
  return e.text(std::move(out), a.markup || b.markup);
}

value add(evaluation& e, const value& a, const value& b) {
  if (a.is_text() && b.is_text()) return join_texts(e, a.as_text(), b.as_text());
  if (a.is_text() && !b.is_undefined()) {
    e.fail("can only concatenate str (not \"" + std::string(type_name(b)) + "\") to str");
  }
  if (a.is_list() && b.is_list()) {
    const list_object &x = a.as_list(), &y = b.as_list();
    if ((x.form == list_form::list || x.form == list_form::tuple)) {
      if (x.form != y.form) {
        const std::string name(type_name(a));
        e.fail("can only concatenate " + name + " (not \"" + std::string(type_name(b)) + "\") to " + name);
      }
      e.memory().charge((x.items.size() + y.items.size()) * sizeof(value));
      std::vector<value> items = x.items;
      items.insert(items.end(), y.items.begin(), y.items.end());
      return e.list(std::move(items), x.form);
    }
  }
  fail_operands(e, operation::add, a, b);
}

value repeat(evaluation& e, const value& sequence, std::int64_t count) {
  const std::size_t times = count < 0 ? 0 : static_cast<std::size_t>(count);
  const std::size_t unit =
      sequence.is_text() ? sequence.as_text().bytes.size() : sequence.as_list().items.size() * sizeof(value);
  std::size_t total = 0;
  if (__builtin_mul_overflow(unit, times, &total)) total = SIZE_MAX;
  e.memory().charge(total);
  e.step(scan_steps(total) + (unit == 0 ? 0 : times));
  if (sequence.is_text()) {
    text_builder out;
    for (std::size_t i = 0; unit > 0 && i < times; ++i) out.append(sequence.as_text());
    return e.text(std::move(out), sequence.as_text().markup);
  }
  const std::vector<value>& items = sequence.as_list().items;
  std::vector<value> out;
  for (std::size_t i = 0; unit > 0 && i < times; ++i) out.insert(out.end(), items.begin(), items.end());
  return e.list(std::move(out), sequence.as_list().form);
}

bool is_plain_sequence(const value& v) noexcept {
  return v.is_text() ||
         (v.is_list() && (v.as_list().form == list_form::list || v.as_list().form == list_form::tuple));
}

std::int64_t floor_divide(evaluation& e, std::int64_t a, std::int64_t b) {
  if (b == 0) e.fail("integer division or modulo by zero");
  if (b == -1) {
    std::int64_t out = 0;
    if (__builtin_sub_overflow(std::int64_t{0}, a, &out)) fail_range(e);
    return out;
  }
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

std::int64_t integer_power(evaluation& e, std::int64_t base, std::int64_t exponent) {
  std::int64_t out = 1;
  while (true) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(out, base, &out)) fail_range(e);
    exponent >>= 1;
    if (exponent == 0) return out;
    if (__builtin_mul_overflow(base, base, &base)) fail_range(e);
  }
}

value integers(evaluation& e, operation op, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  switch (op) {
  case operation::add:
    if (__builtin_add_overflow(a, b, &out)) fail_range(e);
    return value::of(out);
  case operation::subtract:
    if (__builtin_sub_overflow(a, b, &out)) fail_range(e);
    return value::of(out);
  case operation::multiply:
    if (__builtin_mul_overflow(a, b, &out)) fail_range(e);
    return value::of(out);
  case operation::divide:
    if (b == 0) e.fail("division by zero");
    return value::of(static_cast<double>(a) / static_cast<double>(b));
  case operation::floor_divide:
    return value::of(floor_divide(e, a, b));
  case operation::modulo:
    if (b == 0) e.fail("integer division or modulo by zero");
    if (b == -1) return value::of(std::int64_t{0});
    out = a % b;
    return value::of(out != 0 && (out < 0) != (b < 0) ? out + b : out);
  default:
    break;
  }
  if (b >= 0) return value::of(a == 1 || a == 0 ? integer_power(e, a, b > 0) : integer_power(e, a, b));
  if (a == 0) e.fail("0.0 cannot be raised to a negative power");
  return value::of(std::pow(static_cast<double>(a), static_cast<double>(b)));
}

/// Python's float floor division and modulo: the result has the sign of the divisor.
std::pair<double, double> real_divmod(double a, double b) noexcept {
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) {
      rest += b;
      quotient -= 1;
    }
  } else {
    rest = std::copysign(0.0, b);
  }
  if (quotient != 0) {
    const double floored = std::floor(quotient);
    quotient = quotient - floored > 0.5 ? floored + 1 : floored;
  } else {
    quotient = std::copysign(0.0, a / b);
  }
  return {quotient, rest};
}

value reals(evaluation& e, operation op, double a, double b) {
  switch (op) {
  case operation::add:
    return value::of(a + b);
  case operation::subtract:
    return value::of(a - b);
  case operation::multiply:
    return value::of(a * b);
  case operation::divide:
    if (b == 0) e.fail("float division by zero");
    return value::of(a / b);
  case operation::floor_divide:
    if (b == 0) e.fail("float floor division by zero");
    return value::of(real_divmod(a, b).first);
  case operation::modulo:
    if (b == 0) e.fail("float modulo");
    return value::of(real_divmod(a, b).second);
  default:
    break;
  }
  if (a == 0 && b < 0) e.fail("0.0 cannot be raised to a negative power");
  if (a < 0 && b != std::floor(b)) e.fail("a negative number to a fractional power is not real");
  const double out = std::pow(a, b);
  if (std::isinf(out) && std::isfinite(a) && std::isfinite(b))
    e.fail("(34, 'Numerical result out of range')");
  return value::of(out);
}

value bound_method(evaluation& e, const value& v, const text_object& name) {
  if (v.is(value_type::loop)) return loop_attribute(e, v.as_loop(), name.bytes);
  if (v.is(value_type::space)) {
    const value* found = v.as_space().attributes.find(name.bytes);
    return found ? *found : value();
  }
  const filter_function method = find_method(v, name.bytes);
  if (!method) return {};
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
    return "Namespace";
  case value_type::loop:
    return "LoopContext";
  case value_type::function:
    return v.as_function().macro ? "Macro" : "builtin_function_or_method";
  case value_type::list:
    break;
  }
  switch (v.as_list().form) {
  case list_form::list:
    return "list";
  case list_form::tuple:
    return "tuple";
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
    if (!lists_alike(x.form, y.form) || x.form == list_form::generator || x.form == list_form::values ||
        x.items.size() != y.items.size()) {
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
      const value* other = y.find(key);
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
    e.step(scan_steps(text.size()) * scan_steps(part.size()));
    return text.find(part) != std::string::npos;
  }
  case value_type::list:
    for (const value& x : iterate(e, container)) {
      if (x.is_same(item) || equal(e, x, item)) return true;
    }
    return false;
  case value_type::dict:
    if (!is_hashable(item)) e.fail("unhashable type: '" + std::string(type_name(item)) + "'");
    e.step(item.is_text() ? scan_steps(item.as_text().bytes.size()) : 1);
    return container.as_dict().find(item) != nullptr;
  case value_type::undefined:
    return false;
  default:
    e.fail("argument of type '" + std::string(type_name(container)) + "' is not iterable");
  }
}

value arithmetic(evaluation& e, operation op, const value& a, const value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return integers(e, op, a.as_integer(), b.as_integer());
    return reals(e, op, a.as_real(), b.as_real());
  }
  if (op == operation::add) return add(e, a, b);
  if (op == operation::multiply) {
    if (is_plain_sequence(a) && b.is_integral()) return repeat(e, a, b.as_integer());
    if (is_plain_sequence(b) && a.is_integral()) return repeat(e, b, a.as_integer());
  }
  if (op == operation::modulo && a.is_text()) return format_percent(e, a.as_text(), b);
  fail_operands(e, op, a, b);
}

value negate(evaluation& e, const value& v) {
  if (v.is_integral()) return integers(e, operation::subtract, 0, v.as_integer());
  if (v.is(value_type::real)) return value::of(-v.as_real());
  if (v.is_undefined()) e.fail_undefined(v);
  e.fail("bad operand type for unary -: '" + std::string(type_name(v)) + "'");
}

value get_attribute(evaluation& e, const value& v, const text_object& name) {
  if (v.is_undefined()) e.fail_undefined(v);
  if (const value method = bound_method(e, v, name); !method.is_undefined()) return method;
  if (v.is_dict()) {
    if (const value* found = v.as_dict().find(name.bytes)) return *found;
  }
  return missing(e, v, value::of(&name));
}

value get_item(evaluation& e, const value& v, const value& key) {
  if (v.is_undefined()) e.fail_undefined(v);
  if (v.is_dict()) {
    e.step(key.is_text() ? scan_steps(key.as_text().bytes.size()) : 1);
    if (is_hashable(key)) {
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
    if (const value method = bound_method(e, v, key.as_text()); !method.is_undefined()) return method;
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

value escape_markup(evaluation& e, const text_object& t) {
  text_builder out;
  e.memory().charge(t.bytes.size());
  std::size_t begin = 0;
  for (std::size_t i = 0; i < t.bytes.size(); ++i) {
    std::string_view mark;
    switch (t.bytes[i]) {
    case '&':
      mark = "&amp;";
      break;
    case '<':
      mark = "&lt;";
      break;
    case '>':
      mark = "&gt;";
      break;
    case '\'':
      mark = "&#39;";
      break;
    case '"':
      mark = "&#34;";
      break;
    default:
      continue;
    }
    out.append(t, begin, i);
    out.append(mark, !t.untrusted.empty());
    begin = i + 1;
  }
  out.append(t, begin, t.bytes.size());
  return e.text(std::move(out), true);
}

} // namespace troupe::models::jinja
