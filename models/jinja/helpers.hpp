// SPDX-License-Identifier: Apache-2.0
// What the global functions cycler() and joiner() make.
#pragma once

#include "models/jinja/evaluation.hpp"

#include <optional>
#include <string_view>
#include <vector>

namespace troupe::models::jinja {

struct helper_object {
  std::vector<value> items; ///< of a cycler, never empty; of a joiner its separator alone
  std::size_t next = 0;     ///< of a cycler: the item whose turn it is
  bool joins = false;       ///< a joiner
  bool used = false;        ///< a joiner that was called
};

value make_cycler(evaluation& e, const arguments& a);
value make_joiner(evaluation& e, const arguments& a);

/// Nothing when there is no such attribute.
std::optional<value> helper_attribute(evaluation& e, helper_object& h, std::string_view name);
/// What calling it gives. Throws for a cycler.
value call_helper(evaluation& e, helper_object& h, const arguments& a);

/// "Cycler" or "Joiner".
std::string_view helper_name(const helper_object& h) noexcept;

} // namespace troupe::models::jinja
