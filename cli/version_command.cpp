// SPDX-License-Identifier: Apache-2.0
// `troupe version`.
#include "cli/arguments.hpp"
#include "cli/command.hpp"

#include <cstdio>

namespace troupe::cli {

int version_command(const std::vector<std::string>& words) {
  arguments options("version", "Prints the version, the compiler and the target.");
  if (!options.parse(words)) return 0;
  std::printf("troupe %s (%s, %s)\n", TROUPE_VERSION, TROUPE_COMPILER, TROUPE_TARGET);
  return 0;
}

} // namespace troupe::cli
