// SPDX-License-Identifier: Apache-2.0
// The format specifications of Python's str.format.
#pragma once

#include "models/jinja/evaluation.hpp"

#include <string_view>

namespace troupe::models::jinja {

/// Appends format(v, spec): [[fill]align][sign][#][0][width][, or _][.precision][type] of texts, integers and
/// floats. Throws for a specification that Python refuses, and for "z", "n", "c" and grouped zeros, which are
/// not supported.
void write_formatted(evaluation& e, text_builder& out, const value& v, std::string_view spec);

} // namespace troupe::models::jinja
