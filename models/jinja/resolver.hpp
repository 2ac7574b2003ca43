// SPDX-License-Identifier: Apache-2.0
// Which names start out undefined in a scope.
#pragma once

#include "models/jinja/ast.hpp"

namespace troupe::models::jinja {

/// Jinja decides statically where a name lives: one that a scope sets before reading it, and that no scope
/// around it knows, is undefined from the scope's beginning, even if a variable of that name was passed in.
/// Inner scopes (loops, macros) that run before the `set` see that. Fills the `unset` lists of the tree. Time
/// linear in the template's size times its nesting.
void resolve_names(syntax_tree& tree);

} // namespace troupe::models::jinja
