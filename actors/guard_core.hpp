// SPDX-License-Identifier: Apache-2.0
// Judges rows whose numbers went wrong.
#pragma once

#include "actors/messages.hpp"

#include <variant>
#include <vector>

namespace troupe::actors {

using guard_effect = std::variant<row_verdicts>;
using guard_effects = std::vector<guard_effect>;

/// Pure: no clock, no Asio, no thread. Every `check_rows` is answered by one `row_verdicts` that names each
/// of its rows. Under a plan that is 16-bit already there is nothing to fall back to: the sequence fails.
class guard_core {
 public:
  void on(check_rows&& m, time_point now, guard_effects& out);
};

} // namespace troupe::actors
