// SPDX-License-Identifier: Apache-2.0
#include "engine/memory_plan.hpp"

#include "runtime/base/checked.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>

namespace troupe::detail {
namespace {

constexpr std::uint32_t usual_positions = 1024; // of one sequence, when the cache's size is left open
constexpr std::uint64_t no_limit = std::numeric_limits<std::uint64_t>::max();

std::uint64_t read_number(const char* path) {
  std::ifstream in(path);
  std::uint64_t value = 0;
  return in >> value ? value : no_limit; // "max" is no number: no limit
}

std::uint64_t meminfo_available() {
  std::ifstream in("/proc/meminfo");
  std::string key, unit;
  std::uint64_t kib = 0;
  while (in >> key >> kib) {
    std::getline(in, unit);
    if (key == "MemAvailable:") return kib * 1024;
  }
  return no_limit;
}

std::uint64_t group_left(const char* limit_path, const char* used_path) {
  const std::uint64_t limit = read_number(limit_path);
  const std::uint64_t used = read_number(used_path);
  if (limit == no_limit || used == no_limit) return no_limit;
  return limit > used ? limit - used : 0;
}

} // namespace

std::uint64_t available_memory() {
  return std::min(
      {meminfo_available(), group_left("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
       group_left(
           "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes")});
}

result<memory_plan> plan_memory(const memory_demand& demand, std::uint64_t available) {
  memory_plan plan;
  plan.weights = demand.weights;
  plan.activations = demand.activations;
  plan.buffers = demand.buffers;
  plan.available = available;
  plan.kv_block_tokens = demand.kv_block_tokens;

  const std::uint64_t fixed = demand.weights + demand.activations + demand.buffers;
  const std::uint64_t blocks_per_sequence = div_up<std::uint64_t>(demand.context, demand.kv_block_tokens);
  const std::uint64_t one_sequence = blocks_per_sequence * demand.kv_block;
  std::uint64_t kv = demand.kv_memory;
  if (kv == 0) {
    const std::uint64_t left = available > fixed ? available - fixed : 0;
    const std::uint64_t usual_blocks =
        std::min(blocks_per_sequence, div_up<std::uint64_t>(usual_positions, demand.kv_block_tokens));
    kv = std::max(one_sequence, std::min(left / 2, usual_blocks * demand.kv_block * demand.max_batch));
  }
  const std::uint64_t blocks =
      std::min<std::uint64_t>(kv / demand.kv_block, std::numeric_limits<std::uint32_t>::max());
  if (blocks == 0)
    return error{
        errc::bad_config,
        "kv-memory is " + format_bytes(kv) + ", one KV block of this model takes " +
            format_bytes(demand.kv_block) + ": give at least that",
        "kv_memory", 0};
  plan.kv_blocks = static_cast<std::uint32_t>(blocks);
  plan.kv = blocks * demand.kv_block;
  if (plan.total() > available)
    return error{
        errc::no_memory,
        "the model needs " + format_bytes(plan.total()) + " (weights " + format_bytes(plan.weights) +
            ", KV " + format_bytes(plan.kv) + ", activations " + format_bytes(plan.activations) +
            ", buffers " + format_bytes(plan.buffers) + ") and " + format_bytes(available) +
            " are available, " + format_bytes(plan.total() - available) +
            " too few: lower kv-memory, max-batch or max-context",
        "kv_memory", 0};
  return plan;
}

std::string format_bytes(std::uint64_t bytes) {
  char text[32];
  if (bytes >= 1ULL << 30)
    std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / (1ULL << 30));
  else if (bytes >= 1ULL << 20)
    std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1ULL << 20));
  else
    std::snprintf(text, sizeof text, "%.1f KiB", static_cast<double>(bytes) / 1024);
  return text;
}

std::string describe(const memory_plan& plan) {
  std::string out;
  out += "memory: weights " + format_bytes(plan.weights) + " + KV " + format_bytes(plan.kv) + " (" +
         std::to_string(plan.kv_blocks) + " blocks of " + std::to_string(plan.kv_block_tokens) +
         " tokens) + activations " + format_bytes(plan.activations) + " + buffers " +
         format_bytes(plan.buffers) + " = " + format_bytes(plan.total()) + " of " +
         format_bytes(plan.available) + " available";
  return out;
}

} // namespace troupe::detail
