// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory_facts.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <unistd.h>

using troupe::runtime::memory_facts;
using troupe::runtime::read_memory_facts;

namespace {

constexpr std::uint64_t mib = 1ULL << 20;

/// A machine of 8192 MiB, 6144 MiB of them available, as files in a folder of its own.
struct fake_machine {
  std::string root;
  fake_machine() {
    char dir[] = "/tmp/troupe-machine-XXXXXX";
    BOOST_REQUIRE(mkdtemp(dir) != nullptr);
    root = dir;
    write("/proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 6291456 kB\n");
  }
  ~fake_machine() { std::filesystem::remove_all(root); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }
  /// A group of version 2: its limit, what is charged, and how much of that is page cache.
  void group(const std::string& path, const std::string& limit, std::uint64_t charged, std::uint64_t cache) {
    write("/sys/fs/cgroup" + path + "/memory.max", limit + "\n");
    write("/sys/fs/cgroup" + path + "/memory.current", std::to_string(charged) + "\n");
    write(
        "/sys/fs/cgroup" + path + "/memory.stat",
        "anon 5\nfile 7\ninactive_file " + std::to_string(cache) + "\nactive_file 3\n");
  }
};

} // namespace

BOOST_FIXTURE_TEST_SUITE(memory_facts_of_a_machine, fake_machine)

BOOST_AUTO_TEST_CASE(without_groups_the_machine_alone_counts) {
  const memory_facts facts = read_memory_facts(root);
  BOOST_TEST(facts.total == 8192 * mib);
  BOOST_TEST(facts.available() == 6144 * mib);
  BOOST_TEST(facts.group_limit == memory_facts::unlimited);
}

BOOST_AUTO_TEST_CASE(a_limit_of_addresses_counts_less_those_in_use) {
  write("/proc/self/limits", "Limit Soft Hard Units\nMax address space         unlimited unlimited bytes\n");
  BOOST_TEST(read_memory_facts(root).space_left == memory_facts::unlimited);
  write(
      "/proc/self/limits", "Limit Soft Hard Units\nMax address space         " + std::to_string(600 * mib) +
                               "  unlimited  bytes\nMax file locks  1 1 locks\n");
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  write("/proc/self/statm", std::to_string(100 * mib / page) + " 5 5 5 0 5 0\n");
  const memory_facts facts = read_memory_facts(root);
  BOOST_TEST(facts.space_limit == 600 * mib);
  BOOST_TEST(facts.available() == 500 * mib);
}

BOOST_AUTO_TEST_CASE(a_limit_of_data_counts_less_what_is_mapped_to_be_written) {
  write(
      "/proc/self/limits", "Max data size             " + std::to_string(300 * mib) + "  unlimited  bytes\n");
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  write("/proc/self/statm", "9999999 5 5 5 0 " + std::to_string(60 * mib / page) + " 0\n");
  const memory_facts facts = read_memory_facts(root);
  BOOST_TEST(facts.data_limit == 300 * mib);
  BOOST_TEST(facts.data_left == 240 * mib);
  BOOST_TEST(facts.space_left == memory_facts::unlimited);
  BOOST_TEST(facts.available() == 6144 * mib); // files may still be mapped
}

BOOST_AUTO_TEST_CASE(the_page_cache_of_a_group_counts_as_left) {
  write("/proc/self/cgroup", "0::/\n");
  group("", std::to_string(1000 * mib), 900 * mib, 700 * mib);
  const memory_facts facts = read_memory_facts(root);
  BOOST_TEST(facts.group_limit == 1000 * mib);
  BOOST_TEST(facts.available() == 800 * mib);
}

BOOST_AUTO_TEST_CASE(the_limit_of_a_service_and_of_each_group_above_it_is_found) {
  write("/proc/self/cgroup", "0::/system.slice/troupe.service\n");
  group("/system.slice/troupe.service", std::to_string(2000 * mib), 100 * mib, 0);
  group("/system.slice", std::to_string(3000 * mib), 2500 * mib, 0);
  const memory_facts facts = read_memory_facts(root);
  BOOST_TEST(facts.group_limit == 2000 * mib);
  BOOST_TEST(facts.available() == 500 * mib); // its neighbours took the rest of the slice
  group("/system.slice", "max", 2500 * mib, 0);
  BOOST_TEST(read_memory_facts(root).available() == 1900 * mib);
}

BOOST_AUTO_TEST_CASE(a_container_that_sees_only_its_own_group_finds_it_at_the_root) {
  write("/proc/self/cgroup", "0::/docker/abcdef\n");
  group("", std::to_string(512 * mib), 12 * mib, 0);
  BOOST_TEST(read_memory_facts(root).available() == 500 * mib);
}

BOOST_AUTO_TEST_CASE(version_1_has_files_of_other_names) {
  write("/proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/box\n0::/\n");
  write("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", std::to_string(400 * mib));
  write("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", std::to_string(300 * mib));
  write("/sys/fs/cgroup/memory/box/memory.stat", "total_inactive_file " + std::to_string(50 * mib) + "\n");
  BOOST_TEST(read_memory_facts(root).available() == 150 * mib);
}

BOOST_AUTO_TEST_CASE(a_group_beyond_its_limit_leaves_nothing) {
  write("/proc/self/cgroup", "0::/\n");
  group("", std::to_string(10 * mib), 20 * mib, 1 * mib);
  BOOST_TEST(read_memory_facts(root).available() == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
