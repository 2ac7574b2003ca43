// SPDX-License-Identifier: Apache-2.0
// What Python's str methods do, with the provenance of every byte kept.
#pragma once

#include "models/jinja/evaluation.hpp"

#include <string>
#include <string_view>

namespace troupe::models::jinja {

/// Removes white space, or the characters of `characters` when given, from the chosen ends.
value strip(evaluation& e, const text_object& t, const text_object* characters, bool left, bool right);

/// At most `limit` cuts (negative: all) at `separator`, or at runs of white space when it is null; counted
/// from the right when `from_right`.
value split(
    evaluation& e, const text_object& t, const text_object* separator, std::int64_t limit, bool from_right);

/// The lines of `t`, without their ends unless `keep_ends`.
std::vector<value> split_lines(evaluation& e, const text_object& t, bool keep_ends);

/// (before, separator, after); the whole text stands at the far end when there is no separator.
value partition(evaluation& e, const text_object& t, const text_object& separator, bool from_right);

/// At most `count` replacements (negative: all).
value replace(
    evaluation& e, const text_object& t, const text_object& from, const text_object& to, std::int64_t count);

/// The texts of `items` with `separator` between them.
value join(evaluation& e, const text_object& separator, const std::vector<value>& items);

/// `change` applied to the whole text; all of the result is untrusted when any of `t` was.
value change_case(evaluation& e, const text_object& t, std::string (*change)(std::string_view));

/// `t` with `fill` around it up to `width` characters; more of it on the right when `right` alone is set, and
/// so on.
value justify(
    evaluation& e, const text_object& t, std::int64_t width, std::string_view fill, bool left, bool right);

} // namespace troupe::models::jinja
