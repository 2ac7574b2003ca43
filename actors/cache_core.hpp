// SPDX-License-Identifier: Apache-2.0
// The cache manager: the single truth about KV blocks.
#pragma once

#include "actors/kv_pool.hpp"
#include "actors/messages.hpp"

#include <cstdint>
#include <variant>
#include <vector>

namespace troupe::actors {

using cache_effect = std::variant<blocks_reserved, blocks_released, kv_level>;
using cache_effects = std::vector<cache_effect>;

/// Pure: no clock, no Asio, no thread. Every `reserve_blocks` is answered by one `blocks_reserved`, every
/// `release_blocks` by one `blocks_released`, each followed by a `kv_level` when a count changed.
/// After every message free + leased + limbo + cached == total; a breach is an assertion.
/// A failed allocation costs the demand at hand only: it is left out of the answer.
class cache_core {
 public:
  /// One pool now; a model with several layer groups gets a pool, and a block table, for each.
  cache_core(pool_key key, std::uint32_t blocks, std::uint32_t block_tokens);

  void on(reserve_blocks&& m, time_point now, cache_effects& out);
  void on(release_blocks&& m, time_point now, cache_effects& out);
  void on(step_finished&& m, time_point now, cache_effects& out);
  void on(publish_blocks&& m, time_point now, cache_effects& out);

  const kv_pool& pool() const noexcept { return pool_; }
  kv_level level() const noexcept { return pool_.level(); }

 private:
  struct waiting_release {
    std::uint64_t after_step;
    blocks_released answer;
  };
  void serve(const block_demand& demand, blocks_reserved& answer);
  void publish(cache_effects& out);

  kv_pool pool_;
  kv_level published_;
  std::uint64_t last_finished_ = 0;
  std::vector<waiting_release> waiting_; ///< answers that come with a `step_finished`, in order of arrival
  std::vector<block_id> found_;          ///< scratch: what a demand's prefix is known in
};

} // namespace troupe::actors
