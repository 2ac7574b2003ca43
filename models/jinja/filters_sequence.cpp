// SPDX-License-Identifier: Apache-2.0
// Filters over sequences and dictionaries.
#include "models/jinja/filter_table.hpp"
#include "models/jinja/format.hpp"
#include "models/jinja/library.hpp"
#include "models/jinja/operators.hpp"
#include "models/jinja/text_operations.hpp"
#include "models/jinja/unicode.hpp"

#include <algorithm>
#include <charconv>
#include <unordered_set>

namespace troupe::models::jinja {
namespace {

/// Follows "a.b.0"; whole-number parts are indices. `otherwise` stands in for what is missing.
value follow(evaluation& e, value v, const value& path, const value* otherwise) {
  if (path.is_none()) return v;
  if (!path.is_text()) {
    v = get_item(e, v, path);
    return v.is_undefined() && otherwise ? *otherwise : v;
  }
  const value parts = split(e, path.as_text(), e.memory().make_text("."), -1, false);
  for (const value& part : parts.as_list().items) {
    const std::string& text = part.as_text().bytes;
    std::int64_t index = 0;
    const bool number = !text.empty() &&
                        std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
                        std::from_chars(text.data(), text.data() + text.size(), index).ec == std::errc();
    v = get_item(e, v, number ? value::of(index) : part);
    if (v.is_undefined() && otherwise) v = *otherwise;
  }
  return v;
}

value without_case(evaluation& e, const value& v) {
  return v.is_text() ? change_case(e, v.as_text(), to_lower) : v;
}

value filter_length(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments none(e, "length", a, {});
  return value::of(static_cast<std::int64_t>(length(e, input)));
}

value filter_list(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments none(e, "list", a, {});
  return e.list(iterate(e, input));
}

value filter_items(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments none(e, "items", a, {});
  if (input.is_undefined()) return e.list({}, list_form::generator);
  if (!input.is_dict()) e.fail("Can only get item pairs from a mapping.");
  std::vector<value> pairs;
  for (const auto& [key, item] : input.as_dict().entries)
    pairs.push_back(e.list({key, item}, list_form::tuple));
  return e.list(std::move(pairs), list_form::generator);
}

value filter_default(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments b(e, "default", a, {"default_value", "boolean"});
  if (!input.is_undefined() && !(b.flag(1, false) && !truth(input))) return input;
  return b.has(0) ? *b.at(0) : e.text("");
}

value filter_join(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments b(e, "join", a, {"d", "attribute"});
  std::vector<value> items = iterate(e, input);
  if (b.has(1) && !b.at(1)->is_none()) {
    for (value& item : items) item = follow(e, item, *b.at(1), nullptr);
  }
  return join(e, b.has(0) ? to_text(e, *b.at(0)) : *e.memory().make_text(""), items);
}

value filter_first(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments none(e, "first", a, {});
  if (input.is_list() && input.as_list().form == list_form::generator) {
    list_object& l = input.as_list();
    if (!l.consumed && !l.items.empty()) { // takes one, leaves the rest
      e.step(1 + l.items.size() / 16);
      const value first = l.items.front();
      l.items.erase(l.items.begin());
      return first;
    }
  } else if (input.is_text() && input.as_text().length > 0) {
    return text_range(e, input.as_text(), 0, 1);
  } else if (const std::vector<value> items = iterate(e, input); !items.empty()) {
    return items.front();
  }
  return value::undefined(e.memory().make_text("No first item, sequence was empty."));
}

/// Items of what reversed() takes: everything with an order except generators.
std::vector<value> reversible(evaluation& e, const value& input) {
  const bool ok =
      input.is_text() || input.is_dict() || (input.is_list() && input.as_list().form != list_form::generator);
  if (!ok && !input.is_undefined())
    e.fail("'" + std::string(type_name(input)) + "' object is not reversible");
  return iterate(e, input);
}

value filter_last(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments none(e, "last", a, {});
  const std::vector<value> items = reversible(e, input);
  if (!items.empty()) return items.back();
  return value::undefined(e.memory().make_text("No last item, sequence was empty."));
}

value filter_reverse(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments none(e, "reverse", a, {});
  if (input.is_text()) {
    const value by = value::of(std::int64_t{-1});
    return get_slice(e, input, nullptr, nullptr, &by);
  }
  const bool one_shot = input.is_list() && input.as_list().form == list_form::generator;
  std::vector<value> items = iterate(e, input);
  std::reverse(items.begin(), items.end());
  return e.list(std::move(items), one_shot ? list_form::list : list_form::generator);
}

/// Stable, smallest first. `keys` are compared, `items` moved.
std::vector<value>
sorted(evaluation& e, std::vector<value> items, const std::vector<value>& keys, bool reverse) {
  std::vector<std::size_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  // Comparing may throw; std::stable_sort leaves the vectors whole then.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) {
    return reverse ? ordered(e, operation::less, keys[y], keys[x])
                   : ordered(e, operation::less, keys[x], keys[y]);
  });
  std::vector<value> out;
  for (const std::size_t i : order) out.push_back(items[i]);
  return out;
}

value filter_dictsort(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments b(e, "dictsort", a, {"case_sensitive", "by", "reverse"});
  const std::string by = b.has(1) ? b.text(1).bytes : "key";
  if (by != "key" && by != "value") e.fail("You can only sort by either \"key\" or \"value\"");
  if (input.is_undefined()) e.fail_undefined(input);
  if (!input.is_dict()) e.fail("'" + std::string(type_name(input)) + "' object has no attribute 'items'");
  std::vector<value> pairs, keys;
  for (const auto& [key, item] : input.as_dict().entries) {
    pairs.push_back(e.list({key, item}, list_form::tuple));
    const value& chosen = by == "key" ? key : item;
    keys.push_back(b.flag(0, false) ? chosen : without_case(e, chosen));
  }
  return e.list(sorted(e, std::move(pairs), keys, b.flag(2, false)));
}

value filter_sort(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments b(e, "sort", a, {"reverse", "case_sensitive", "attribute"});
  std::vector<value> paths;
  if (b.has(2) && b.at(2)->is_text()) {
    paths = split(e, b.at(2)->as_text(), e.memory().make_text(","), -1, false).as_list().items;
  } else {
    paths.push_back(b.has(2) ? *b.at(2) : value::none());
  }
  std::vector<value> items = iterate(e, input), keys;
  for (const value& item : items) {
    std::vector<value> parts;
    for (const value& path : paths) {
      const value part = follow(e, item, path, nullptr);
      parts.push_back(b.flag(1, false) ? part : without_case(e, part));
    }
    keys.push_back(e.list(std::move(parts)));
  }
  return e.list(sorted(e, std::move(items), keys, b.flag(0, false)));
}

value filter_unique(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments b(e, "unique", a, {"case_sensitive", "attribute"});
  std::unordered_set<value, value_hash, key_equal> seen;
  std::vector<value> out;
  for (const value& item : iterate(e, input)) {
    e.step();
    value key = follow(e, item, b.has(1) ? *b.at(1) : value::none(), nullptr);
    if (!b.flag(0, false)) key = without_case(e, key);
    if (!is_hashable(e, key)) e.fail("unhashable type: '" + std::string(type_name(key)) + "'");
    if (seen.insert(key).second) out.push_back(item);
  }
  return e.list(std::move(out), list_form::generator);
}

template<operation Better>
value filter_extreme(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments b(e, "min", a, {"case_sensitive", "attribute"});
  const std::vector<value> items = iterate(e, input);
  if (items.empty()) return value::undefined(e.memory().make_text("No aggregated item, sequence was empty."));
  const auto key_of = [&](const value& item) {
    const value key = follow(e, item, b.has(1) ? *b.at(1) : value::none(), nullptr);
    return b.flag(0, false) ? key : without_case(e, key);
  };
  std::size_t best = 0;
  value best_key = key_of(items[0]);
  for (std::size_t i = 1; i < items.size(); ++i) {
    const value key = key_of(items[i]);
    if (ordered(e, Better, key, best_key)) best = i, best_key = key;
  }
  return items[best];
}

value filter_sum(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments b(e, "sum", a, {"attribute", "start"});
  value total = b.has(1) ? *b.at(1) : value::of(std::int64_t{0});
  if (total.is_text()) e.fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const value& item : iterate(e, input)) {
    e.step();
    total = arithmetic(e, operation::add, total, b.has(0) ? follow(e, item, *b.at(0), nullptr) : item);
  }
  return total;
}

value filter_batch(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments b(e, "batch", a, {"linecount", "fill_with"}, 1);
  const std::int64_t count = b.integer(0, 1);
  std::vector<value> rows, row;
  for (const value& item : iterate(e, input)) {
    if (static_cast<std::int64_t>(row.size()) == count) rows.push_back(e.list(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    if (b.has(1) && !b.at(1)->is_none() && static_cast<std::int64_t>(row.size()) < count) {
      e.memory().charge(static_cast<std::size_t>(count), sizeof(value));
      row.resize(static_cast<std::size_t>(count), *b.at(1));
    }
    rows.push_back(e.list(std::move(row)));
  }
  return e.list(std::move(rows), list_form::generator);
}

value filter_slice(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments b(e, "slice", a, {"slices", "fill_with"}, 1);
  const std::vector<value> items = iterate(e, input);
  const std::int64_t slices = b.integer(0, 1);
  if (slices <= 0) e.fail("integer division or modulo by zero");
  e.step(static_cast<std::uint64_t>(slices));
  e.memory().charge(static_cast<std::size_t>(slices), sizeof(list_object));
  const auto n = static_cast<std::size_t>(slices);
  std::vector<value> out;
  std::size_t at = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const bool extra = i < items.size() % n;
    const std::size_t end = at + items.size() / n + extra;
    std::vector<value> part(
        items.begin() + static_cast<std::ptrdiff_t>(at), items.begin() + static_cast<std::ptrdiff_t>(end));
    if (b.has(1) && !b.at(1)->is_none() && !extra) part.push_back(*b.at(1));
    out.push_back(e.list(std::move(part)));
    at = end;
  }
  return e.list(std::move(out), list_form::generator);
}

value filter_groupby(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments b(e, "groupby", a, {"attribute", "default", "case_sensitive"}, 1);
  const value* otherwise = b.has(1) && !b.at(1)->is_none() ? b.at(1) : nullptr;
  const auto raw_key = [&](const value& item) { return follow(e, item, *b.at(0), otherwise); };
  const auto key_of = [&](const value& item) {
    return b.flag(2, false) ? raw_key(item) : without_case(e, raw_key(item));
  };
  std::vector<value> items = iterate(e, input), keys;
  for (const value& item : items) keys.push_back(key_of(item));
  items = sorted(e, std::move(items), keys, false);
  std::vector<value> groups;
  for (std::size_t at = 0; at < items.size();) {
    const value key = key_of(items[at]), shown = raw_key(items[at]);
    std::vector<value> members;
    while (at < items.size() && equal(e, key_of(items[at]), key)) members.push_back(items[at++]);
    const value group = e.list({shown, e.list(std::move(members))}, list_form::tuple);
    group.as_list().group = true;
    groups.push_back(group);
  }
  return e.list(std::move(groups));
}

value filter_attr(evaluation& e, const value& input, const arguments& a) {
  const bound_arguments b(e, "attr", a, {"name"}, 1);
  if (input.is_undefined()) e.fail_undefined(input);
  // Attributes only, never keys.
  if (!input.is_dict() || find_method(input, b.text(0).bytes)) return get_attribute(e, input, b.text(0));
  return value::undefined(e.memory().make_text("'dict object' has no attribute " + quote(b.text(0).bytes)));
}

arguments tail(evaluation& e, const arguments& a, std::size_t from) {
  e.memory().charge((a.positional.size() - from) * sizeof(value) + a.named.size() * sizeof(a.named[0]));
  arguments out;
  out.positional.assign(a.positional.begin() + static_cast<std::ptrdiff_t>(from), a.positional.end());
  out.named = a.named;
  return out;
}

value filter_map(evaluation& e, const value& input, const arguments& a) {
  const evaluation::nesting nested(e); // map of map of map
  std::vector<value> items;
  if (truth(input)) items = iterate(e, input);
  if (a.positional.empty()) {
    const bound_arguments b(e, "map", a, {"attribute", "default"});
    if (!b.has(0)) e.fail("map requires a filter argument");
    const value* otherwise = b.has(1) && !b.at(1)->is_none() ? b.at(1) : nullptr;
    for (value& item : items) item = follow(e, item, *b.at(0), otherwise);
    return e.list(std::move(items), list_form::generator);
  }
  if (items.empty()) return e.list({}, list_form::generator);
  const std::string& name = to_text(e, a.positional[0]).bytes;
  const filter_function filter = find_filter(name);
  if (!filter) e.fail("No filter named '" + name + "'.");
  const arguments rest = tail(e, a, 1);
  for (value& item : items) {
    e.step();
    item = filter(e, item, rest);
  }
  return e.list(std::move(items), list_form::generator);
}

template<bool Keep, bool Attribute>
value filter_select(evaluation& e, const value& input, const arguments& a) {
  std::vector<value> kept;
  if (!truth(input)) return e.list({}, list_form::generator);
  std::size_t off = 0;
  if (Attribute) {
    if (a.positional.empty()) e.fail("Missing parameter for attribute name");
    off = 1;
  }
  test_function test = nullptr;
  arguments rest;
  if (a.positional.size() > off) {
    const std::string& name = to_text(e, a.positional[off]).bytes;
    test = find_test(name);
    if (!test) e.fail("No test named '" + name + "'.");
    rest = tail(e, a, off + 1);
  }
  for (const value& item : iterate(e, input)) {
    e.step();
    const value subject = Attribute ? follow(e, item, a.positional[0], nullptr) : item;
    if ((test ? test(e, subject, rest) : truth(subject)) == Keep) kept.push_back(item);
  }
  return e.list(std::move(kept), list_form::generator);
}

constexpr filter_entry sequence_filter_table[] = {
    {"attr", filter_attr},
    {"batch", filter_batch},
    {"count", filter_length},
    {"d", filter_default},
    {"default", filter_default},
    {"dictsort", filter_dictsort},
    {"first", filter_first},
    {"groupby", filter_groupby},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"map", filter_map},
    {"max", filter_extreme<operation::greater>},
    {"min", filter_extreme<operation::less>},
    {"reject", filter_select<false, false>},
    {"rejectattr", filter_select<false, true>},
    {"reverse", filter_reverse},
    {"select", filter_select<true, false>},
    {"selectattr", filter_select<true, true>},
    {"slice", filter_slice},
    {"sort", filter_sort},
    {"sum", filter_sum},
    {"unique", filter_unique},
};

} // namespace

std::span<const filter_entry> sequence_filters() noexcept {
  return sequence_filter_table;
}

filter_function find_filter(std::string_view name) noexcept {
  for (const std::span<const filter_entry> table : {text_filters(), sequence_filters()}) {
    for (const filter_entry& f : table) {
      if (f.name == name) return f.function;
    }
  }
  return nullptr;
}

} // namespace troupe::models::jinja
