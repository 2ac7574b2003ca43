// SPDX-License-Identifier: Apache-2.0
// JSON as template values.
#pragma once

#include "models/jinja/value.hpp"
#include "runtime/base/error.hpp"

#include <boost/json/fwd.hpp>

namespace troupe::models::jinja {

/// Copies `v` into `into`. All text is untrusted unless
/// `trusted`. Keys keep their order. Depth is that of `v`, which the JSON parser bounds (32 by default).
/// Errors: bad_request for an integer above 2^63 - 1, with the keys that lead to it; no_memory when the
/// heap's budget is spent.
result<value> from_json(heap& into, const boost::json::value& v, bool trusted = false);

} // namespace troupe::models::jinja
