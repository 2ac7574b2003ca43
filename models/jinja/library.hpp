// SPDX-License-Identifier: Apache-2.0
// The built-in filters, tests, methods and functions, by name.
#pragma once

#include "models/jinja/ast.hpp"

#include <string_view>

namespace troupe::models::jinja {

/// Null when there is none of that name.
filter_function find_filter(std::string_view name) noexcept;
test_function find_test(std::string_view name) noexcept;

/// A method of a text, list, dict or loop; called with the receiver as `input`.
filter_function find_method(const value& receiver, std::string_view name) noexcept;

/// Jinja's own, and raise_exception and strftime_now of chat templates. Null when there is none.
using global_function = value (*)(evaluation&, const arguments&);
global_function find_global(std::string_view name) noexcept;

} // namespace troupe::models::jinja
