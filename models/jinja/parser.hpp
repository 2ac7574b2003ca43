// SPDX-License-Identifier: Apache-2.0
// Template source to syntax tree.
#pragma once

#include "models/jinja/ast.hpp"

#include <cstddef>
#include <memory>
#include <string_view>

namespace troupe::models::jinja {

/// Bounds of a template's text.
inline constexpr std::size_t max_nesting = 256;            ///< brackets and blocks inside one another
inline constexpr std::uint32_t max_expression_depth = 300; ///< operators and filters in one chain

/// The statements of chat templates: if, for, set, macro, call, filter, with, raw, generation, break,
/// continue. Those that reach other templates (include, import, extends, block) are refused. `source` is
/// well-formed UTF-8. Throws syntax_error (caught in `compile`).
std::unique_ptr<const syntax_tree> parse(std::string_view source);

} // namespace troupe::models::jinja
