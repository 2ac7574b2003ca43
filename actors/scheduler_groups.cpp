// SPDX-License-Identifier: Apache-2.0
// Layer groups and windows: how many blocks a sequence needs that gives some of them back on its way.
#include "actors/scheduler_core.hpp"

#include <algorithm>

namespace troupe::actors {

/// A prompt needs more at a time than the answer behind it: the rows of a step read no more together than
/// those of the window before the first and their own.
void scheduler_core::foresee(sequence& s) const noexcept {
  const std::uint32_t from = goes_on_at(s), left = s.known() - std::min(s.known(), from);
  s.predicted = groups_.most(from, s.foreseen, std::clamp<std::uint32_t>(left, 1, options_.max_step_tokens));
}

/// Whose demand was answered, granted or not, has given back what it needs no more.
void scheduler_core::note_passed() noexcept {
  if (!groups_.forgets()) return;
  for (const planned& p : plan_) {
    sequence& s = *find(p.id);
    if (!s.demand_pending || s.phase != phase::running) continue;
    s.passed = p.first;
    count_held(s);
    recount(s);
  }
}

/// Appends the blocks of its table from the index `from` on that one which goes on at `position` needs, up to
/// there.
void scheduler_core::copy_table(
    const sequence& s, std::uint32_t from, std::uint32_t position, std::vector<block_id>& to) const {
  const std::uint32_t end = groups_.indices(position);
  to.reserve(to.size() + groups_.blocks(from, end, position));
  groups_.for_present(from, end, position, [&](std::uint32_t entry) { to.push_back(s.table[entry]); });
}

} // namespace troupe::actors
