// SPDX-License-Identifier: Apache-2.0
// The list of commands.
#include "cli/command.hpp"

namespace troupe::cli {

std::span<const command> commands() noexcept {
  static constexpr command list[] = {
      {"pull", "fetch a model", pull_command},
      {"version", "print the version", version_command},
  };
  return list;
}

} // namespace troupe::cli
