// SPDX-License-Identifier: Apache-2.0
#include "engine/memory_plan.hpp"

#include "kernels/kv_groups.hpp"
#include "runtime/base/byte_text.hpp"
#include "runtime/base/footprint.hpp"
#include "runtime/memory_facts.hpp"

#include <algorithm>
#include <limits>

namespace troupe::detail {
namespace {

constexpr std::uint32_t usual_positions = 1024; // of one sequence, when the cache's size is left open

/// Of a model with layer groups or windows: what its blocks hold, and how many the longest sequence needs.
std::string grouped(const memory_plan& plan) {
  const bool forgets = std::uint64_t{plan.kv_sequence_blocks} * plan.kv_block_tokens < plan.context;
  if (plan.kv_groups <= 1 && !forgets) return "";
  return (plan.kv_groups > 1 ? " in one of " + std::to_string(plan.kv_groups) + " layer groups" : "") +
         ", at most " + std::to_string(plan.kv_sequence_blocks) + " blocks for a sequence of " +
         std::to_string(plan.context) + " tokens";
}

std::string parked(const memory_plan& plan) {
  return plan.park == 0 ? "" : ", parked " + human_bytes(plan.park);
}

struct setting {
  const char* flag;
  const char* param;
};
/// What of it is to be lowered to save so many bytes.
setting what_of_parking(std::uint64_t bytes, const memory_demand& demand) {
  if (bytes <= demand.park - demand.park_disk) return {"park-ram", "park_ram_bytes"};
  return {bytes <= demand.park_disk ? "park-disk" : "park-ram and park-disk", "park_disk_bytes"};
}

} // namespace

std::uint64_t available_memory() {
  return runtime::read_memory_facts().available();
}

result<memory_plan> plan_memory(const memory_demand& demand, std::uint64_t available) {
  memory_plan plan;
  plan.weights = demand.weights;
  plan.activations = demand.activations;
  plan.buffers = demand.buffers;
  plan.park = demand.park;
  plan.program = demand.program;
  plan.available = available;
  plan.kv_block_tokens = demand.kv_block_tokens;

  const std::uint64_t fixed =
      demand.weights + demand.activations + demand.buffers + demand.program + demand.park;
  const kernels::kv_groups groups(demand.kv_block_tokens, demand.kv_windows);
  const auto blocks_of = [&](std::uint32_t positions) -> std::uint64_t {
    return groups.most(0, positions, demand.max_step_tokens);
  };
  plan.kv_groups = groups.size();
  plan.context = demand.context;
  plan.kv_sequence_blocks = static_cast<std::uint32_t>(blocks_of(demand.context));
  const std::uint64_t one_sequence = plan.kv_sequence_blocks * demand.kv_block;
  std::uint64_t kv = demand.kv_memory;
  if (kv == 0) {
    const std::uint64_t left = available > fixed ? available - fixed : 0;
    const std::uint64_t usual_blocks = blocks_of(std::min(demand.context, usual_positions));
    kv = std::max(one_sequence, std::min(left / 2, usual_blocks * demand.kv_block * demand.max_batch));
  }
  const std::uint64_t blocks =
      std::min<std::uint64_t>(kv / demand.kv_block, std::numeric_limits<std::uint32_t>::max());
  if (blocks == 0)
    return error{
        errc::bad_config,
        "kv-memory " + human_bytes(kv) + " is less than one KV block of this model, " +
            human_bytes(demand.kv_block) + "; leave it out to have it chosen",
        "kv_memory", 0};
  plan.kv_blocks = static_cast<std::uint32_t>(blocks);
  plan.kv = blocks * demand.kv_block;
  // The ledger, and what the pool's last huge page holds beyond it.
  plan.buffers += blocks * demand.kv_block_ledger + footprint(plan.kv) - plan.kv;
  plan.data = demand.data + plan.kv + plan.activations + plan.buffers + plan.park;
  if (plan.total() > available) {
    // Whatever alone would make room is what to change.
    const std::uint64_t lacking = plan.total() - available;
    const bool park = lacking <= plan.park;
    const bool buffers = !park && lacking < plan.buffers && plan.buffers > plan.kv;
    return error{
        errc::no_memory,
        "the model needs " + human_bytes(plan.total()) + " (weights " + human_bytes(plan.weights) + ", KV " +
            human_bytes(plan.kv) + ", activations " + human_bytes(plan.activations) + ", buffers " +
            human_bytes(plan.buffers) + ", program " + human_bytes(plan.program) + parked(plan) + ") and " +
            human_bytes(available) + " are available, " + human_bytes(lacking) + " too few: lower " +
            (park      ? what_of_parking(lacking, demand).flag
             : buffers ? "max-queue or max-batch"
                       : "kv-memory, max-batch or max-context"),
        park      ? what_of_parking(lacking, demand).param
        : buffers ? "max_queue"
                  : "kv_memory",
        0};
  }
  return plan;
}

result<void> check_data_limit(const memory_plan& plan, std::uint64_t limit) {
  if (plan.data <= limit || plan.data - limit <= plan.data / 64) return {};
  return error{
      errc::no_memory,
      "the model needs " + human_bytes(plan.data) + " of data (KV " + human_bytes(plan.kv) +
          ") and the limit on it (ulimit -d) is " + human_bytes(limit) +
          ": raise it, or lower kv-memory, max-batch or max-context",
      "kv_memory", 0};
}

} // namespace troupe::detail

namespace troupe {

std::string describe(const memory_plan& plan) {
  return human_bytes(plan.total()) + ": weights " + human_bytes(plan.weights) + ", KV " +
         human_bytes(plan.kv) + " (" + std::to_string(plan.kv_blocks) + " blocks of " +
         std::to_string(plan.kv_block_tokens) + " tokens" + detail::grouped(plan) + "), activations " +
         human_bytes(plan.activations) + ", buffers " + human_bytes(plan.buffers) + ", program " +
         human_bytes(plan.program) + detail::parked(plan) + "; " + human_bytes(plan.available) + " available";
}

} // namespace troupe
