// SPDX-License-Identifier: Apache-2.0
// Rules.
#include "actors/guard_core.hpp"

#include <utility>

namespace troupe::actors {

void guard_core::on(check_rows&& m, time_point, guard_effects& out) {
  row_verdicts answer{m.step_seq, {}};
  answer.verdicts.reserve(m.rows.size());
  for (const auto& row : m.rows) answer.verdicts.push_back({row.id, row_action::fail});
  out.emplace_back(std::move(answer));
}

} // namespace troupe::actors
