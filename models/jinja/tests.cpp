// SPDX-License-Identifier: Apache-2.0
// What stands after `is`.
#include "models/jinja/format.hpp"
#include "models/jinja/helpers.hpp"
#include "models/jinja/library.hpp"
#include "models/jinja/operators.hpp"
#include "models/jinja/unicode.hpp"
#include "models/utf8.hpp"

namespace troupe::models::jinja {
namespace {

/// A test that takes no argument.
template<bool (*Test)(evaluation&, const value&)>
bool plain(evaluation& e, const value& v, const arguments& a) {
  const bound_arguments none(e, "test", a, {});
  return Test(e, v);
}

bool is_defined(evaluation&, const value& v) {
  return !v.is_undefined();
}
bool is_not_defined(evaluation&, const value& v) {
  return v.is_undefined();
}
bool is_none(evaluation&, const value& v) {
  return v.is_none();
}
bool is_boolean(evaluation&, const value& v) {
  return v.is(value_type::boolean);
}
bool is_true(evaluation&, const value& v) {
  return v.is(value_type::boolean) && v.as_bool();
}
bool is_false(evaluation&, const value& v) {
  return v.is(value_type::boolean) && !v.as_bool();
}
bool is_integer(evaluation&, const value& v) {
  return v.is(value_type::integer);
}
bool is_float(evaluation&, const value& v) {
  return v.is(value_type::real);
}
bool is_number(evaluation&, const value& v) {
  return v.is_number();
}
bool is_string(evaluation&, const value& v) {
  return v.is_text();
}
bool is_mapping(evaluation&, const value& v) {
  return v.is_dict();
}
bool is_escaped(evaluation&, const value& v) {
  return v.is_text() && v.as_text().markup;
}

bool is_callable(evaluation&, const value& v) {
  const bool joiner = v.is(value_type::helper) && v.as_helper().joins;
  return v.is(value_type::function) || v.is(value_type::loop) || v.is_undefined() || joiner;
}

bool is_iterable(evaluation&, const value& v) {
  return v.is_text() || v.is_list() || v.is_dict() || v.is_undefined() || v.is(value_type::loop);
}

bool is_sequence(evaluation&, const value& v) {
  if (v.is_text() || v.is_dict() || v.is_undefined()) return true;
  if (!v.is_list()) return false;
  const list_form form = v.as_list().form;
  return form == list_form::list || form == list_form::tuple || form == list_form::range;
}

std::int64_t modulo(evaluation& e, const value& v, const value& by) {
  const value rest = arithmetic(e, operation::modulo, v, by);
  if (rest.is(value_type::real)) return rest.as_real() == 0 ? 0 : rest.as_real() == 1 ? 1 : 2;
  return rest.is_integral() ? rest.as_integer() : 2;
}

bool is_odd(evaluation& e, const value& v) {
  return modulo(e, v, value::of(std::int64_t{2})) == 1;
}
bool is_even(evaluation& e, const value& v) {
  return modulo(e, v, value::of(std::int64_t{2})) == 0;
}

bool is_divisible(evaluation& e, const value& v, const arguments& a) {
  const bound_arguments b(e, "divisibleby", a, {"num"}, 1);
  return modulo(e, v, *b.at(0)) == 0;
}

/// str(v).islower() and isupper().
template<bool (*Is)(char32_t) noexcept>
bool in_case(evaluation& e, const value& v) {
  const std::string& text = to_text(e, v).bytes;
  e.step(1 + text.size() / 16);
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const utf8_step c = decode_utf8(text, at);
    if (is_cased(c.code)) {
      if (!Is(c.code)) return false;
      any = true;
    }
    at += c.length;
  }
  return any;
}

template<bool (*Test)(evaluation&, const value&, const value&)>
bool against(evaluation& e, const value& v, const arguments& a) {
  const bound_arguments b(e, "test", a, {"other"}, 1);
  return Test(e, v, *b.at(0));
}

bool equals(evaluation& e, const value& v, const value& other) {
  return equal(e, v, other);
}
bool differs(evaluation& e, const value& v, const value& other) {
  return !equal(e, v, other);
}
bool same(evaluation&, const value& v, const value& other) {
  return v.is_same(other);
}
bool within(evaluation& e, const value& v, const value& other) {
  return contains(e, other, v);
}
template<operation Op>
bool order(evaluation& e, const value& v, const value& other) {
  return ordered(e, Op, v, other);
}

/// A name of a table: what cannot be a key of one is an error, as in Python.
void check_name(evaluation& e, const value& v) {
  if (!is_hashable(e, v)) e.fail("unhashable type: '" + std::string(type_name(v)) + "'");
}

bool is_filter(evaluation& e, const value& v) {
  check_name(e, v);
  return v.is_text() && find_filter(v.as_text().bytes) != nullptr;
}
bool is_test(evaluation& e, const value& v) {
  check_name(e, v);
  return v.is_text() && find_test(v.as_text().bytes) != nullptr;
}

struct test_entry {
  std::string_view name;
  test_function function;
};

constexpr test_entry test_table[] = {
    {"!=", against<differs>},
    {"<", against<order<operation::less>>},
    {"<=", against<order<operation::less_equal>>},
    {"==", against<equals>},
    {">", against<order<operation::greater>>},
    {">=", against<order<operation::greater_equal>>},
    {"boolean", plain<is_boolean>},
    {"callable", plain<is_callable>},
    {"defined", plain<is_defined>},
    {"divisibleby", is_divisible},
    {"eq", against<equals>},
    {"equalto", against<equals>},
    {"escaped", plain<is_escaped>},
    {"even", plain<is_even>},
    {"false", plain<is_false>},
    {"filter", plain<is_filter>},
    {"float", plain<is_float>},
    {"ge", against<order<operation::greater_equal>>},
    {"greaterthan", against<order<operation::greater>>},
    {"gt", against<order<operation::greater>>},
    {"in", against<within>},
    {"integer", plain<is_integer>},
    {"iterable", plain<is_iterable>},
    {"le", against<order<operation::less_equal>>},
    {"lessthan", against<order<operation::less>>},
    {"lower", plain<in_case<is_lower>>},
    {"lt", against<order<operation::less>>},
    {"mapping", plain<is_mapping>},
    {"ne", against<differs>},
    {"none", plain<is_none>},
    {"number", plain<is_number>},
    {"odd", plain<is_odd>},
    {"sameas", against<same>},
    {"sequence", plain<is_sequence>},
    {"string", plain<is_string>},
    {"test", plain<is_test>},
    {"true", plain<is_true>},
    {"undefined", plain<is_not_defined>},
    {"upper", plain<in_case<is_upper>>},
};

} // namespace

test_function find_test(std::string_view name) noexcept {
  for (const test_entry& t : test_table) {
    if (t.name == name) return t.function;
  }
  return nullptr;
}

} // namespace troupe::models::jinja
