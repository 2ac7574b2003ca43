// SPDX-License-Identifier: Apache-2.0
// Functions that every template can call.
#include "models/jinja/format.hpp"
#include "models/jinja/helpers.hpp"
#include "models/jinja/library.hpp"
#include "models/jinja/operators.hpp"

namespace troupe::models::jinja {
namespace {

constexpr std::int64_t max_range = 100'000; // the bound of Jinja's sandbox

value range(evaluation& e, const arguments& a) {
  const bound_arguments b(e, "range", a, {"start", "stop", "step"}, 1);
  std::int64_t start = b.integer(0, 0), stop = b.integer(1, 0);
  const std::int64_t by = b.integer(2, 1);
  if (!b.has(1)) stop = std::exchange(start, 0);
  if (by == 0) e.fail("range() arg 3 must not be zero");
  std::vector<value> items;
  for (std::int64_t i = start; by > 0 ? i < stop : i > stop;) {
    if (static_cast<std::int64_t>(items.size()) == max_range) {
      e.fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
    }
    items.push_back(value::of(i));
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  e.step(items.size());
  return e.list(std::move(items), list_form::range);
}

void set_all(evaluation& e, dict_object& d, const arguments& a) {
  if (a.positional.size() > 1)
    e.fail("expected at most 1 argument, got " + std::to_string(a.positional.size()));
  const auto set = [&](const value& key, const value& item) { set_item(e, d, key, item); };
  for (const value& from : a.positional) {
    if (from.is_dict()) {
      for (const auto& [key, item] : from.as_dict().entries) set(key, item);
      continue;
    }
    for (const value& pair : iterate(e, from)) {
      const std::vector<value> parts = iterate(e, pair);
      if (parts.size() != 2) e.fail("dictionary update sequence element has a length other than 2");
      set(parts[0], parts[1]);
    }
  }
  for (const auto& [name, item] : a.named) set(value::of(name), item);
}

value make_dict(evaluation& e, const arguments& a) {
  dict_object* made = e.memory().make_dict();
  set_all(e, *made, a);
  return value::of(made);
}

value make_namespace(evaluation& e, const arguments& a) {
  space_object* made = e.memory().make_space();
  set_all(e, made->attributes, a);
  return value::of(made);
}

value raise_exception(evaluation& e, const arguments& a) {
  const bound_arguments b(e, "raise_exception", a, {"message"}, 1);
  e.fail(to_text(e, *b.at(0)).bytes);
}

value strftime_now(evaluation& e, const arguments& a) {
  const bound_arguments b(e, "strftime_now", a, {"format"}, 1);
  return e.text(format_time(e, b.text(0).bytes, e.now()));
}

value lipsum(evaluation& e, const arguments&) {
  e.fail("the function 'lipsum' is not supported: its text is random");
}

constexpr std::pair<std::string_view, global_function> globals[] = {
    {"cycler", make_cycler},
    {"dict", make_dict},
    {"joiner", make_joiner},
    {"lipsum", lipsum},
    {"namespace", make_namespace},
    {"raise_exception", raise_exception},
    {"range", range},
    {"strftime_now", strftime_now},
};

} // namespace

global_function find_global(std::string_view name) noexcept {
  for (const auto& [known, function] : globals) {
    if (known == name) return function;
  }
  return nullptr;
}

} // namespace troupe::models::jinja
