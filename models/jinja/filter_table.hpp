// SPDX-License-Identifier: Apache-2.0
// The filters of each source file, for `find_filter`.
#pragma once

#include "models/jinja/ast.hpp"

#include <span>
#include <string_view>

namespace troupe::models::jinja {

struct filter_entry {
  std::string_view name;
  filter_function function;
};

/// Of text_filters, in a file of its own.
value filter_wordwrap(evaluation& e, const value& input, const arguments& a);

std::span<const filter_entry> text_filters() noexcept;
std::span<const filter_entry> sequence_filters() noexcept;

} // namespace troupe::models::jinja
