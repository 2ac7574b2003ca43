// SPDX-License-Identifier: Apache-2.0
// Python's operators on values: truth, comparison, arithmetic, subscripts, iteration.
#pragma once

#include "models/jinja/evaluation.hpp"

namespace troupe::models::jinja {

/// Python's name of the value's type: "str", "NoneType".
std::string_view type_name(const value& v) noexcept;

/// A str, list or tuple: what + and * join and repeat.
bool is_plain_sequence(const value& v) noexcept;

bool truth(const value& v) noexcept;
bool equal(evaluation& e, const value& a, const value& b);
/// One of < <= > >=. Throws for types that have no order.
bool ordered(evaluation& e, operation op, const value& a, const value& b);
/// `item in container`.
bool contains(evaluation& e, const value& container, const value& item);
/// + - * / // % **
value arithmetic(evaluation& e, operation op, const value& a, const value& b);
value negate(evaluation& e, const value& v);

/// Whether `key` can be one of a dictionary. Counts the work of hashing it.
bool is_hashable(evaluation& e, const value& key);
/// Null when it is not there. Throws for what cannot be a key.
const value* find_item(evaluation& e, const dict_object& d, const value& key);
void set_item(evaluation& e, dict_object& d, const value& key, const value& item);

/// As Python's messages write it; "?" for an operation that never fails on its operands.
std::string_view symbol_of(operation op) noexcept;

/// `v.name`: methods first, then keys. Undefined when there is neither.
value get_attribute(evaluation& e, const value& v, const text_object& name);
/// `v[key]`: items first, then methods.
value get_item(evaluation& e, const value& v, const value& key);
/// `v[start:stop:step]`; null or none where left out.
value get_slice(evaluation& e, const value& v, const value* start, const value* stop, const value* step);

/// The items that iterating yields; a generator is used up. Throws for what cannot be iterated.
std::vector<value> iterate(evaluation& e, const value& v);
/// len(). Throws for what has no length.
std::size_t length(evaluation& e, const value& v);

/// The code points [begin, end) of `t`, which must be within its length.
value text_range(evaluation& e, const text_object& t, std::size_t begin, std::size_t end);
/// The byte offset of a code point.
std::size_t byte_offset(const text_object& t, std::size_t code_point) noexcept;
/// Characters with a meaning in HTML replaced.
value escape_markup(evaluation& e, const text_object& t);

} // namespace troupe::models::jinja
