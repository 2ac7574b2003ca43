// SPDX-License-Identifier: Apache-2.0
// Facts from /proc and /sys.
#include "cli/machine.hpp"

#include "runtime/memory_facts.hpp"

#include <algorithm>
#include <sched.h>
#include <sys/resource.h>

namespace troupe::cli {

namespace {

std::uint64_t known(std::uint64_t bytes) {
  return bytes == runtime::memory_facts::unlimited ? 0 : bytes;
}

} // namespace

machine_facts read_machine() {
  machine_facts facts;
  const runtime::memory_facts memory = runtime::read_memory_facts();
  facts.memory_total = known(memory.total);
  facts.memory_available = known(std::min(memory.free, memory.group_left));
  facts.memory_limit = known(memory.group_limit);
  if (facts.memory_limit >= facts.memory_total) facts.memory_limit = 0;
  facts.address_limit = known(memory.space_limit);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) facts.open_files = files.rlim_max;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    facts.processors = static_cast<std::uint32_t>(CPU_COUNT(&set));
  return facts;
}

} // namespace troupe::cli
