// SPDX-License-Identifier: Apache-2.0
// How much memory this process may take: the machine's, and what its control groups and limits leave of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

namespace troupe::runtime {

/// Bytes; `unlimited` where nothing limits, or the system does not tell.
struct memory_facts {
  static constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t total = unlimited;
  std::uint64_t free = unlimited;        ///< what the machine can give without swapping
  std::uint64_t group_limit = unlimited; ///< the tightest of the control groups that this process is in
  std::uint64_t group_left = unlimited;  ///< the least that one of them leaves; page cache counts as left
  std::uint64_t space_limit = unlimited; ///< addresses this process may use (ulimit -v)
  std::uint64_t space_left = unlimited;  ///< of them
  std::uint64_t data_limit = unlimited;  ///< private writable memory this process may map (ulimit -d)
  std::uint64_t data_left = unlimited;   ///< of it; no part of `available`, which files may take as well
  /// What this process can still take.
  std::uint64_t available() const noexcept { return std::min({free, group_left, space_left}); }
};

/// Reads ROOT/proc and ROOT/sys/fs/cgroup (versions 1 and 2), from this process's group upwards: a limit may
/// stand in any of them. `root` is empty but in tests.
memory_facts read_memory_facts(const std::string& root = {});

} // namespace troupe::runtime
