// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory_facts.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <string_view>
#include <unistd.h>

namespace troupe::runtime {
namespace {

constexpr std::uint64_t unlimited = memory_facts::unlimited;

std::uint64_t read_number(const std::string& path) {
  std::ifstream in(path);
  std::uint64_t value = 0;
  return in >> value ? value : unlimited; // "max" is no number: no limit
}

/// The number beside a key in a file of "key number" lines; `otherwise` when it is not there.
std::uint64_t read_key(const std::string& path, const std::string& key, std::uint64_t otherwise) {
  std::ifstream in(path);
  std::string name, rest;
  std::uint64_t value = 0;
  while (in >> name >> value) {
    if (name == key) return value;
    std::getline(in, rest);
  }
  return otherwise;
}

std::uint64_t meminfo_bytes(const std::string& root, const std::string& key) {
  const std::uint64_t kib = read_key(root + "/proc/meminfo", key + ':', unlimited);
  return kib == unlimited ? unlimited : kib * 1024;
}

/// The files of one version of control groups.
struct group_files {
  const char *mount, *limit, *used, *cache_key;
};
constexpr group_files version_2{"/sys/fs/cgroup", "/memory.max", "/memory.current", "inactive_file"};
constexpr group_files version_1{
    "/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"};

/// What the kernel gives back under pressure is not counted as used: a model file that was just read is in
/// it.
void look_at_group(const std::string& folder, const group_files& files, memory_facts& facts) {
  const std::uint64_t limit = read_number(folder + files.limit);
  if (limit == unlimited) return;
  facts.group_limit = std::min(facts.group_limit, limit);
  const std::uint64_t charged = read_number(folder + files.used);
  if (charged == unlimited) return;
  const std::uint64_t cache = read_key(folder + "/memory.stat", files.cache_key, 0);
  const std::uint64_t used = charged - std::min(charged, cache);
  facts.group_left = std::min(facts.group_left, limit - std::min(limit, used));
}

/// From the process's own group to the root of the mount. In a container the path may be the host's, with
/// nothing below the mount: its root is then the process's group.
void look_upwards(const std::string& root, std::string path, const group_files& files, memory_facts& facts) {
  for (;;) {
    look_at_group(root + files.mount + path, files, facts);
    const auto slash = path.rfind('/');
    if (slash == std::string::npos) return;
    path.erase(slash);
  }
}

/// The soft limit of that name; `unlimited` where there is none.
std::uint64_t soft_limit(const std::string& root, std::string_view name) {
  std::ifstream limits(root + "/proc/self/limits");
  std::string row; // NAME SOFT HARD bytes
  while (std::getline(limits, row) && !row.starts_with(name)) continue;
  if (!row.starts_with(name)) return unlimited;
  std::istringstream values(row.substr(name.size()));
  std::uint64_t limit = 0;
  return values >> limit ? limit : unlimited; // "unlimited" is no number
}

/// Every mapping counts against the limit of addresses, also what is reserved and never used.
void look_at_limits(const std::string& root, memory_facts& facts) {
  facts.space_limit = soft_limit(root, "Max address space");
  facts.data_limit = soft_limit(root, "Max data size");
  std::ifstream sizes(root + "/proc/self/statm"); // in pages: size resident shared text library data
  std::array<std::uint64_t, 6> pages{};
  for (std::uint64_t& count : pages)
    if (!(sizes >> count)) return;
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const auto left = [page](std::uint64_t limit, std::uint64_t used) {
    return limit == unlimited ? unlimited : limit - std::min(limit, used * page);
  };
  facts.space_left = left(facts.space_limit, pages.front());
  facts.data_left = left(facts.data_limit, pages.back());
}

bool names_memory(const std::string& controllers) {
  return (',' + controllers + ',').find(",memory,") != std::string::npos;
}

} // namespace

memory_facts read_memory_facts(const std::string& root) {
  memory_facts facts;
  facts.total = meminfo_bytes(root, "MemTotal");
  facts.free = meminfo_bytes(root, "MemAvailable");
  std::ifstream groups(root + "/proc/self/cgroup");
  std::string entry; // ID:CONTROLLERS:PATH; version 2 names no controllers
  while (std::getline(groups, entry)) {
    const auto first = entry.find(':');
    const auto second = first == std::string::npos ? first : entry.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = entry.substr(first + 1, second - first - 1);
    const std::string path = entry.substr(second + 1);
    if (controllers.empty()) look_upwards(root, path, version_2, facts);
    if (names_memory(controllers)) look_upwards(root, path, version_1, facts);
  }
  look_at_limits(root, facts);
  return facts;
}

} // namespace troupe::runtime
