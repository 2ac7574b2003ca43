// SPDX-License-Identifier: Apache-2.0
// The `loop` variable of a for statement.
#pragma once

#include "models/jinja/evaluation.hpp"

#include <string_view>
#include <vector>

namespace troupe::models::jinja {

struct loop_object {
  std::vector<value> items; ///< all that the loop visits, after its condition
  std::size_t index0 = 0;
  std::int64_t depth0 = 0;         ///< of recursion
  std::vector<value> last_changed; ///< what `changed` saw last
  bool has_changed = false;
  const statement* body = nullptr; ///< for a recursive loop: what calling `loop` runs again
  scope* closure = nullptr;        ///< and the scope around it
  scope* context = nullptr;        ///< and what blocks within see
};

/// Undefined (without a reason) when there is no such attribute.
value loop_attribute(evaluation& e, loop_object& l, std::string_view name);

inline std::size_t loop_length(const loop_object& l) noexcept {
  return l.items.size();
}

} // namespace troupe::models::jinja
