// SPDX-License-Identifier: Apache-2.0
// Where the memory goes, decided before any of it is taken.
#pragma once

#include "troupe/engine.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::detail {

/// What the plan is made from; bytes.
struct memory_demand {
  std::uint64_t weights = 0;  ///< packed, as they will lie in memory
  std::uint64_t kv_block = 0; ///< one KV block over the layers of a group
  std::uint32_t kv_block_tokens = 0;
  std::vector<std::uint32_t> kv_windows{0}; ///< of each layer group, kernels::kv_layout
  std::uint32_t max_step_tokens = 1;        ///< positions of one sequence that one step computes, at most
  std::uint64_t kv_block_ledger = 0;        ///< what the cache manager keeps of a block
  std::uint64_t activations = 0;            ///< scratch of the largest step
  std::uint64_t buffers =
      0; ///< events, ids and sockets of max_batch + max_queue requests, text to be tokenised
  std::uint64_t program = 0; ///< resident already, beside the weights
  std::uint64_t data = 0;    ///< mapped, writable and private already, the weights too
  std::uint32_t context = 0; ///< positions one sequence may reach
  std::uint32_t max_batch = 0;
  std::uint64_t kv_memory = 0; ///< asked for; 0 = choose
  std::uint64_t park = 0;      ///< in memory
  std::uint64_t park_disk = 0; ///< of it, what the ledger of the blocks on disk takes
};

/// Bytes this process may still take: runtime::memory_facts::available.
std::uint64_t available_memory();

/// Chosen KV: max_batch sequences of 1024 positions (or the context, if that is shorter), at most half of
/// what is left, at least one sequence of full context.
/// Errors: no_memory, saying by how much it does not fit and what to change.
result<memory_plan> plan_memory(const memory_demand& demand, std::uint64_t available);

/// Whether the plan's data fit a limit on data (ulimit -d; memory_facts::data_limit), give or take what the
/// mappings of two starts of one program differ by, a 64th. Errors: no_memory.
result<void> check_data_limit(const memory_plan& plan, std::uint64_t limit);

} // namespace troupe::detail
