// SPDX-License-Identifier: Apache-2.0
// Python's arithmetic on values.
#include "models/jinja/operators.hpp"

#include "models/jinja/format.hpp"

#include <cmath>

namespace troupe::models::jinja {
namespace {

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

} // namespace

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
