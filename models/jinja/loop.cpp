// SPDX-License-Identifier: Apache-2.0
// The `loop` variable of a for statement.
#include "models/jinja/loop.hpp"

#include "models/jinja/operators.hpp"

namespace troupe::models::jinja {
namespace {

value cycle(evaluation& e, const value& input, const arguments& a) {
  if (a.positional.empty()) e.fail("no items for cycling given");
  return a.positional[input.as_loop().index0 % a.positional.size()];
}

value changed(evaluation& e, const value& input, const arguments& a) {
  loop_object& l = input.as_loop();
  bool same = l.has_changed && l.last_changed.size() == a.positional.size();
  for (std::size_t i = 0; same && i < a.positional.size(); ++i)
    same = equal(e, l.last_changed[i], a.positional[i]);
  if (same) return value::of(false);
  e.memory().charge(a.positional.size() * sizeof(value));
  l.last_changed = a.positional;
  l.has_changed = true;
  return value::of(true);
}

value bound_method(evaluation& e, loop_object& l, std::string_view name, filter_function f) {
  auto* made = e.memory().make<function_object>();
  made->name = name;
  made->method = f;
  made->receiver = value::of(&l);
  return value::of(made);
}

} // namespace

value loop_attribute(evaluation& e, loop_object& l, std::string_view name) {
  const auto number = [](std::size_t n) { return value::of(static_cast<std::int64_t>(n)); };
  const std::size_t n = l.items.size();
  if (name == "index") return number(l.index0 + 1);
  if (name == "index0") return number(l.index0);
  if (name == "revindex") return number(n - l.index0);
  if (name == "revindex0") return number(n - l.index0 - 1);
  if (name == "first") return value::of(l.index0 == 0);
  if (name == "last") return value::of(l.index0 + 1 == n);
  if (name == "length") return number(n);
  if (name == "depth") return value::of(l.depth0 + 1);
  if (name == "depth0") return value::of(l.depth0);
  if (name == "previtem") {
    return l.index0 > 0 ? l.items[l.index0 - 1]
                        : value::undefined(e.memory().make_text("there is no previous item"));
  }
  if (name == "nextitem") {
    return l.index0 + 1 < n ? l.items[l.index0 + 1]
                            : value::undefined(e.memory().make_text("there is no next item"));
  }
  if (name == "cycle") return bound_method(e, l, "cycle", cycle);
  if (name == "changed") return bound_method(e, l, "changed", changed);
  return {};
}

} // namespace troupe::models::jinja
