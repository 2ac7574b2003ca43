// SPDX-License-Identifier: Apache-2.0
// Values of the template language and the heap that owns them.
#include "models/jinja/value.hpp"

#include "models/salted_hash.hpp"
#include "models/utf8.hpp"

#include <cmath>

namespace troupe::models::jinja {
namespace {

constexpr std::size_t indexed_from = 12; // a scan of fewer entries is as fast as a hash look-up

bool keys_equal(const value& a, const value& b, int depth) noexcept {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_integer() == b.as_integer();
    // One NaN is the same key as another: keys that equal nothing would pile up in one place of an index.
    return a.as_real() == b.as_real() || (std::isnan(a.as_real()) && std::isnan(b.as_real()));
  }
  if (a.type() != b.type()) return false;
  if (a.is_text()) return a.as_text().bytes == b.as_text().bytes;
  if (a.is_list() && depth < max_key_depth) {
    const auto &x = a.as_list().items, &y = b.as_list().items;
    if (&x == &y) return true;
    if (a.as_list().form != b.as_list().form || x.size() != y.size() || has_identity(a.as_list().form))
      return false;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (!keys_equal(x[i], y[i], depth + 1)) return false;
    }
    return true;
  }
  return a.is_same(b);
}

std::size_t mixed(std::int64_t i) noexcept {
  const std::uint64_t x = (static_cast<std::uint64_t>(i) ^ hash_salt()) * 0x9E3779B97F4A7C15u;
  return static_cast<std::size_t>(x ^ x >> 32);
}

std::size_t list_hash(const list_object& l, int depth) {
  if (has_identity(l.form)) return mixed(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(&l)));
  std::size_t hash = l.items.size();
  for (const value& item : l.items) {
    const bool inner = item.is_list();
    if (inner && depth == max_key_depth) continue;
    hash = hash * 0x100000001B3u ^ (inner ? list_hash(item.as_list(), depth + 1) : value_hash{}(item));
  }
  return hash;
}

} // namespace

bool value::is_same(const value& other) const noexcept {
  if (type_ != other.type_) return false;
  switch (type_) {
  case value_type::undefined:
  case value_type::none:
    return true;
  case value_type::boolean:
  case value_type::integer:
    return integer_ == other.integer_;
  case value_type::real:
    return real_ == other.real_;
  default:
    return text_ == other.text_; // the pointers of the union share their place
  }
}

std::size_t value_hash::operator()(const value& v) const {
  switch (v.type()) {
  case value_type::boolean:
  case value_type::integer:
    return mixed(v.as_integer());
  case value_type::real: {
    const double d = v.as_real();
    // Equal numbers hash alike whatever their type.
    if (d == std::floor(d) && std::abs(d) < 9e18) return mixed(static_cast<std::int64_t>(d));
    return std::isnan(d) ? 0 : std::hash<double>{}(d);
  }
  case value_type::text:
    return salted_hash{}(v.as_text().bytes);
  case value_type::list:
    return list_hash(v.as_list(), 0);
  case value_type::loop:
    return mixed(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(&v.as_loop())));
  case value_type::helper:
    return mixed(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(&v.as_helper())));
  case value_type::function:
    return mixed(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(&v.as_function())));
  default:
    return static_cast<std::size_t>(v.type());
  }
}

bool key_equal::operator()(const value& a, const value& b) const noexcept {
  return keys_equal(a, b, 0);
}

const value* dict_object::find(const value& key) const {
  if (!index_.empty()) {
    const auto found = index_.find(key);
    return found == index_.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [k, v] : entries) {
    if (keys_equal(k, key, 0)) return &v;
  }
  return nullptr;
}

const value* dict_object::find(std::string_view key) const {
  if (!index_.empty()) {
    text_object text;
    text.bytes = key;
    return find(value::of(&text));
  }
  for (const auto& [k, v] : entries) {
    if (k.is_text() && k.as_text().bytes == key) return &v;
  }
  return nullptr;
}

void dict_object::set(const value& key, const value& v) {
  if (const value* there = find(key)) {
    *const_cast<value*>(there) = v;
    return;
  }
  entries.emplace_back(key, v);
  if (!index_.empty()) {
    index_.emplace(key, entries.size() - 1);
  } else if (entries.size() > indexed_from) {
    index();
  }
}

void dict_object::index() {
  for (std::size_t i = 0; i < entries.size(); ++i) index_.emplace(entries[i].first, i);
}

void text_builder::mark(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  if (!untrusted_.empty() && untrusted_.back().end == begin) {
    untrusted_.back().end = end;
  } else {
    untrusted_.push_back({begin, end});
  }
}

void text_builder::append(const text_object& t, std::size_t begin, std::size_t end) {
  const std::size_t at = bytes_.size();
  bytes_.append(t.bytes, begin, end - begin);
  // A text may have as many spans as characters, and be taken apart by the character.
  auto span = std::partition_point(
      t.untrusted.begin(), t.untrusted.end(), [begin](const text_span& s) { return s.end <= begin; });
  for (; span != t.untrusted.end() && span->begin < end; ++span) {
    const std::size_t from = std::max(span->begin, begin), to = std::min(span->end, end);
    mark(at + from - begin, at + to - begin);
  }
}

void text_builder::append(std::string_view bytes, bool untrusted) {
  const std::size_t at = bytes_.size();
  bytes_ += bytes;
  if (untrusted) mark(at, bytes_.size());
}

void heap::charge(std::size_t count, std::size_t each) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, each, &bytes)) bytes = SIZE_MAX;
  charge(bytes);
}

void heap::charge(std::size_t bytes) {
  if (bytes > left_) throw template_failure("the template needs more memory than allowed");
  left_ -= bytes;
}

const text_object* heap::make_text(std::string_view bytes, bool untrusted) {
  text_builder built;
  built.append(bytes, untrusted);
  return make_text(std::move(built));
}

const text_object* heap::make_text(text_builder&& built, bool markup) {
  charge(sizeof(text_object) + built.size() + built.untrusted().size() * sizeof(text_span));
  text_object& t = texts_.emplace_back();
  t.bytes = std::move(built.bytes());
  t.untrusted = std::move(built.untrusted());
  t.length = count_code_points(t.bytes);
  t.markup = markup;
  return &t;
}

list_object* heap::make_list(std::vector<value> items, list_form form) {
  charge(sizeof(list_object) + items.size() * sizeof(value));
  list_object& l = lists_.emplace_back();
  l.items = std::move(items);
  l.form = form;
  return &l;
}

dict_object* heap::make_dict() {
  charge(sizeof(dict_object));
  return &dicts_.emplace_back();
}

space_object* heap::make_space() {
  charge(sizeof(space_object));
  return &spaces_.emplace_back();
}

} // namespace troupe::models::jinja
