// SPDX-License-Identifier: Apache-2.0
// What this machine offers: memory, processors, limits.
#pragma once

#include <cstdint>

namespace troupe::cli {

/// Bytes and counts; 0 where the system does not tell.
struct machine_facts {
  std::uint64_t memory_total = 0;
  std::uint64_t memory_available = 0; ///< what a new program can take, within its control group
  std::uint64_t memory_limit = 0;     ///< of the control group; 0 = none
  std::uint64_t address_limit = 0;    ///< of this process (ulimit -v); 0 = none
  std::uint64_t open_files = 0;       ///< limit of this process
  std::uint32_t processors = 0;       ///< this process may run on
};

machine_facts read_machine();

} // namespace troupe::cli
