// SPDX-License-Identifier: Apache-2.0
// Values of the template language and the heap that owns them.
#pragma once

#include "models/tokenizer.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe::models::jinja {

struct text_object;
struct list_object;
struct dict_object;
struct space_object;
struct loop_object;
struct helper_object;
struct function_object;

enum class value_type : std::uint8_t {
  undefined, ///< a missing name, key or item; its text says which
  none,
  boolean,
  integer,
  real,
  text,
  list, ///< also tuples, ranges, generators and dictionary views
  dict,
  space, ///< namespace(), the one thing whose attributes can be set
  loop,
  helper, ///< cycler() or joiner()
  function,
};

/// A small handle; containers and texts live in a `heap` that must outlive it. Copies share what they point
/// to. Thread: values that are only read may be shared.
class value {
 public:
  constexpr value() noexcept : undefined_(nullptr) {}
  static constexpr value none() noexcept { return value(value_type::none); }
  static constexpr value of(bool b) noexcept {
    value v(value_type::boolean);
    v.integer_ = b;
    return v;
  }
  static constexpr value of(std::int64_t i) noexcept {
    value v(value_type::integer);
    v.integer_ = i;
    return v;
  }
  static constexpr value of(double d) noexcept {
    value v(value_type::real);
    v.real_ = d;
    return v;
  }
  static value of(const text_object* t) noexcept {
    value v(value_type::text);
    v.text_ = t;
    return v;
  }
  static value of(list_object* l) noexcept {
    value v(value_type::list);
    v.list_ = l;
    return v;
  }
  static value of(dict_object* d) noexcept {
    value v(value_type::dict);
    v.dict_ = d;
    return v;
  }
  static value of(space_object* s) noexcept {
    value v(value_type::space);
    v.space_ = s;
    return v;
  }
  static value of(loop_object* l) noexcept {
    value v(value_type::loop);
    v.loop_ = l;
    return v;
  }
  static value of(helper_object* h) noexcept {
    value v(value_type::helper);
    v.helper_ = h;
    return v;
  }
  static value of(const function_object* f) noexcept {
    value v(value_type::function);
    v.function_ = f;
    return v;
  }
  /// `why` is the message of the error that using the value raises; may be null.
  static value undefined(const text_object* why) noexcept {
    value v;
    v.undefined_ = why;
    return v;
  }

  value_type type() const noexcept { return type_; }
  bool is(value_type t) const noexcept { return type_ == t; }
  bool is_undefined() const noexcept { return type_ == value_type::undefined; }
  bool is_none() const noexcept { return type_ == value_type::none; }
  bool is_text() const noexcept { return type_ == value_type::text; }
  bool is_list() const noexcept { return type_ == value_type::list; }
  bool is_dict() const noexcept { return type_ == value_type::dict; }
  /// bool counts as a number, as in Python.
  bool is_integral() const noexcept { return type_ == value_type::integer || type_ == value_type::boolean; }
  bool is_number() const noexcept { return is_integral() || type_ == value_type::real; }

  // Each is valid for its own type only.
  bool as_bool() const noexcept { return integer_ != 0; }
  std::int64_t as_integer() const noexcept { return integer_; } ///< integer or boolean
  double as_real() const noexcept {
    return type_ == value_type::real ? real_ : static_cast<double>(integer_);
  }
  const text_object& as_text() const noexcept { return *text_; }
  list_object& as_list() const noexcept { return *list_; }
  dict_object& as_dict() const noexcept { return *dict_; }
  space_object& as_space() const noexcept { return *space_; }
  loop_object& as_loop() const noexcept { return *loop_; }
  helper_object& as_helper() const noexcept { return *helper_; }
  const function_object& as_function() const noexcept { return *function_; }
  const text_object* undefined_reason() const noexcept { return undefined_; }
  /// Whether both are the same object, or the same number, none or undefined.
  bool is_same(const value& other) const noexcept;

 private:
  explicit constexpr value(value_type t) noexcept : type_(t), integer_(0) {}

  value_type type_ = value_type::undefined;
  union {
    const text_object* undefined_;
    std::int64_t integer_;
    double real_;
    const text_object* text_;
    list_object* list_;
    dict_object* dict_;
    space_object* space_;
    loop_object* loop_;
    helper_object* helper_;
    const function_object* function_;
  };
};

/// Well-formed UTF-8. `untrusted` are the bytes that came from the request rather than from the template;
/// they survive concatenation, slicing, stripping, splitting, joining and replacing, so that the tokenizer
/// can keep a user's "<|im_end|>" from becoming a control token.
struct text_object {
  std::string bytes;
  std::vector<text_span> untrusted; ///< sorted, disjoint, not adjacent, not empty
  std::size_t length = 0;           ///< code points
  bool markup = false;              ///< went through `safe` or `escape`: + escapes what is added to it

  bool is_ascii() const noexcept { return length == bytes.size(); }
};

/// What Python would call the sequence; decides spelling, truth, length and indexing.
enum class list_form : std::uint8_t { list, tuple, generator, keys, values, items, range };

/// Equal to itself alone, whatever it holds, and so a key, as Python's iterators are.
constexpr bool has_identity(list_form form) noexcept {
  return form == list_form::generator || form == list_form::values;
}

struct list_object {
  std::vector<value> items;
  list_form form = list_form::list;
  bool consumed = false; ///< a generator yields its items once
  bool group = false;    ///< a tuple that groupby made: `grouper` and `list` name its two items
};

struct value_hash {
  /// Not noexcept, so that libstdc++ keeps each hash beside its key: a look-up never hashes a neighbour anew.
  std::size_t operator()(const value& v) const;
};
/// Equality of hashable values (numbers across types, texts, none, tuples).
struct key_equal {
  bool operator()(const value& a, const value& b) const noexcept;
};

/// Insertion-ordered. Keys are hashable values. Looking one up takes time in its size: what a template looks
/// up goes through `find_item` and `set_item`, which count that.
struct dict_object {
  std::vector<std::pair<value, value>> entries;

  const value* find(const value& key) const;
  const value* find(std::string_view key) const;
  void set(const value& key, const value& v);

 private:
  void index();
  std::unordered_map<value, std::size_t, value_hash, key_equal> index_; ///< only for larger ones
};

struct space_object {
  dict_object attributes;
  bool is_self = false; ///< a template's `self`: its blocks as functions, which nobody sets
};

constexpr int max_key_depth = 32; ///< tuples inside tuples as keys

/// Raised inside the interpreter, turned into an `error` where rendering was called; never leaves the module.
class template_failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Collects text with its provenance.
class text_builder {
 public:
  void append(std::string_view trusted) { bytes_ += trusted; }
  void append(const text_object& t) { append(t, 0, t.bytes.size()); }
  /// Bytes [begin, end) of `t`.
  void append(const text_object& t, std::size_t begin, std::size_t end);
  /// `bytes`, wholly untrusted when `untrusted` is set.
  void append(std::string_view bytes, bool untrusted);
  std::size_t size() const noexcept { return bytes_.size(); }
  const std::string& bytes() const noexcept { return bytes_; }
  std::string& bytes() noexcept { return bytes_; }
  std::vector<text_span>& untrusted() noexcept { return untrusted_; }

 private:
  void mark(std::size_t begin, std::size_t end);

  std::string bytes_;
  std::vector<text_span> untrusted_;
};

/// Owns every object of one render, or of one set of input values. Nothing is freed before the heap, so
/// cycles and deep nesting need no care. Thread: one at a time.
class heap {
 public:
  /// `byte_budget`: bytes that may ever be allocated; beyond it every `make_` throws template_failure.
  explicit heap(std::size_t byte_budget = SIZE_MAX) : left_(byte_budget) {}

  const text_object* make_text(std::string_view bytes, bool untrusted = false);
  const text_object* make_text(text_builder&& built, bool markup = false);
  list_object* make_list(std::vector<value> items = {}, list_form form = list_form::list);
  dict_object* make_dict();
  space_object* make_space();
  template<class T, class... Args>
  T* make(Args&&... args) {
    charge(sizeof(T));
    auto made = std::make_shared<T>(std::forward<Args>(args)...);
    T* const raw = made.get();
    others_.push_back(std::move(made));
    return raw;
  }

  /// Counts bytes that an object of this heap is about to grow by.
  void charge(std::size_t bytes);
  /// `count` parts of `each` bytes; a product that no number holds is more than allowed.
  void charge(std::size_t count, std::size_t each);

 private:
  std::size_t left_;
  std::deque<text_object> texts_;
  std::deque<list_object> lists_;
  std::deque<dict_object> dicts_;
  std::deque<space_object> spaces_;
  std::deque<std::shared_ptr<void>> others_;
};

} // namespace troupe::models::jinja
