// SPDX-License-Identifier: Apache-2.0
// Cyclers and joiners.
#include "models/jinja/helpers.hpp"

#include <string>
#include <utility>

namespace troupe::models::jinja {
namespace {

value cycler_next(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments none(e, "next", a, {});
  helper_object& h = input.as_helper();
  const value now = h.items[h.next];
  h.next = (h.next + 1) % h.items.size();
  return now;
}

value cycler_reset(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments none(e, "reset", a, {});
  input.as_helper().next = 0;
  return value::none();
}

value helper_method(evaluation& e, helper_object& h, std::string_view name, filter_function f) {
  auto* made = e.memory().make<function_object>();
  made->name = name;
  made->method = f;
  made->receiver = value::of(&h);
  return value::of(made);
}

value make_helper(evaluation& e, std::vector<value> items, bool joins) {
  e.memory().charge(items.size(), sizeof(value));
  auto* made = e.memory().make<helper_object>();
  made->items = std::move(items);
  made->joins = joins;
  return value::of(made);
}

} // namespace

value make_cycler(evaluation& e, const arguments& a) {
  if (!a.named.empty()) e.fail("cycler() takes no keyword argument '" + a.named[0].first->bytes + "'");
  if (a.positional.empty()) e.fail("at least one item has to be provided");
  return make_helper(e, a.positional, false);
}

value make_joiner(evaluation& e, const arguments& a) {
  const bound_arguments b(e, "joiner", a, {"sep"});
  return make_helper(e, {b.has(0) ? *b.at(0) : e.text(", ")}, true);
}

std::optional<value> helper_attribute(evaluation& e, helper_object& h, std::string_view name) {
  if (h.joins) {
    if (name == "sep") return h.items[0];
    if (name == "used") return value::of(h.used);
    return std::nullopt;
  }
  if (name == "items") return e.list(h.items, list_form::tuple);
  if (name == "pos") return value::of(static_cast<std::int64_t>(h.next));
  if (name == "current") return h.items[h.next];
  if (name == "next") return helper_method(e, h, "next", cycler_next);
  if (name == "reset") return helper_method(e, h, "reset", cycler_reset);
  return std::nullopt;
}

value call_helper(evaluation& e, helper_object& h, const arguments& a) {
  if (!h.joins) e.fail("'Cycler' object is not callable");
  const bound_arguments none(e, "joiner", a, {});
  return std::exchange(h.used, true) ? h.items[0] : e.text("");
}

std::string_view helper_name(const helper_object& h) noexcept {
  return h.joins ? "Joiner" : "Cycler";
}

} // namespace troupe::models::jinja
