// SPDX-License-Identifier: Apache-2.0
// Facts from /proc and /sys.
#include "cli/machine.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sched.h>
#include <string>
#include <sys/resource.h>

namespace troupe::cli {

namespace {

std::uint64_t meminfo_bytes(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  std::uint64_t kibibytes = 0;
  while (file >> name >> kibibytes) {
    if (name == key + ':') return kibibytes << 10;
    std::getline(file, unit);
  }
  return 0;
}

// The tightest memory.max on the way from this process's group (cgroup v2) to the root.
std::uint64_t group_limit() {
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  std::uint64_t tightest = 0;
  while (std::getline(groups, line)) {
    if (!line.starts_with("0::")) continue;
    std::string path = line.substr(3);
    while (true) {
      std::ifstream file("/sys/fs/cgroup" + path + "/memory.max");
      std::string text;
      std::uint64_t bytes = 0;
      if (file >> text && std::from_chars(text.data(), text.data() + text.size(), bytes).ec == std::errc{})
        tightest = tightest == 0 ? bytes : std::min(tightest, bytes);
      if (path.empty()) break;
      path.erase(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
  return tightest;
}

} // namespace

machine_facts read_machine() {
  machine_facts facts;
  facts.memory_total = meminfo_bytes("MemTotal");
  facts.memory_available = meminfo_bytes("MemAvailable");
  facts.memory_limit = group_limit();
  if (facts.memory_limit >= facts.memory_total) facts.memory_limit = 0;
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) facts.open_files = files.rlim_cur;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    facts.processors = static_cast<std::uint32_t>(CPU_COUNT(&set));
  return facts;
}

} // namespace troupe::cli
