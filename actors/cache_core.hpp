// SPDX-License-Identifier: Apache-2.0
// The cache manager: the single truth about KV blocks.
#pragma once

#include "actors/kv_pool.hpp"
#include "actors/messages.hpp"

#include <cstdint>
#include <variant>
#include <vector>

namespace troupe::actors {

/// The memory of these free blocks, ascending, may go back to the system. Before any of them is leased.
struct discard_blocks {
  std::vector<block_id> blocks;
  std::uint32_t forgotten = 0; ///< blocks that were cached
};

using cache_effect = std::variant<blocks_reserved, blocks_released, kv_level, discard_blocks>;
using cache_effects = std::vector<cache_effect>;

/// Blocks whose memory is given back for one `spare_memory`: what that costs is bounded.
inline constexpr std::uint32_t most_discarded = 256;

/// Pure: no clock, no Asio, no thread. Every `reserve_blocks` is answered by one `blocks_reserved`, every
/// `release_blocks` by one `blocks_released`, each followed by a `kv_level` when a count changed.
/// After every message free + leased + limbo + cached == total; a breach is an assertion.
/// A failed allocation costs the demand at hand only: it is left out of the answer.
class cache_core {
 public:
  cache_core(pool_key key, std::uint32_t blocks, const kv_groups& groups) : pool_(key, blocks, groups) {}
  cache_core(pool_key key, std::uint32_t blocks, std::uint32_t block_tokens) :
      cache_core(key, blocks, kv_groups(block_tokens)) {}

  void on(reserve_blocks&& m, time_point now, cache_effects& out);
  void on(release_blocks&& m, time_point now, cache_effects& out);
  void on(step_finished&& m, time_point now, cache_effects& out);
  void on(publish_blocks&& m, time_point now, cache_effects& out);
  void on(spare_memory&& m, time_point now, cache_effects& out);

  const kv_pool& pool() const noexcept { return pool_; }
  kv_level level() const noexcept { return pool_.level(); }

 private:
  struct waiting_release {
    std::uint64_t after_step;
    blocks_released answer;
  };
  std::uint32_t most_wanted(const block_demand& demand) const noexcept;
  void serve(const block_demand& demand, std::uint64_t others, blocks_reserved& answer);
  void publish(cache_effects& out);

  kv_pool pool_;
  kv_level published_;
  std::uint64_t last_finished_ = 0;
  std::vector<waiting_release> waiting_; ///< answers that come with a `step_finished`, in order of arrival
  std::vector<block_id> found_;          ///< scratch: what a demand's prefix is known in
};

} // namespace troupe::actors
