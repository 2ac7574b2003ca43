// SPDX-License-Identifier: Apache-2.0
// Who plays which part: the addresses the actors send to, and what they tell the engine.
#pragma once

#include "actors/messages.hpp"
#include "actors/scheduler_core.hpp"
#include "runtime/ref.hpp"

#include <atomic>
#include <cstdint>
#include <unordered_map>

namespace troupe::actors {

/// What the engine hears from its actors. Calls come on the engine's executor, from inside a turn: they must
/// not wait, and must not end the calling actor's object.
class cast_listener {
 public:
  virtual ~cast_listener() = default;
  /// The door is open for this request: its prompt is to be tokenised, answered by prompt_ready or
  /// prompt_failed.
  virtual void tokenize(request_id id) = 0;
  virtual void emit(request_id id, stream_event event) = 0;
  /// The terminal event of the request is out and its actor is ending.
  virtual void retired(request_id id) = 0;
  virtual void drained() = 0;
  virtual void scheduler_changed(const scheduler_stats& stats) = 0;
  virtual void cache_changed(const kv_level& level) = 0;
};

/// Shared by the actors of one engine. Thread: the engine's executor, one thread at a time.
struct cast {
  runtime::ref<scheduler_protocol> scheduler;
  runtime::ref<cache_protocol> cache;
  runtime::ref<executor_protocol> executor;
  runtime::ref<guard_protocol> guard;
  std::unordered_map<std::uint64_t, runtime::ref<request_protocol>> requests; ///< by request_id::number
  std::atomic<bool> backend_busy{false}; ///< a step is computed, perhaps for an executor that is gone
  cast_listener* listener = nullptr;     ///< outlives the actors
};

/// Control mail that one live request can have waiting at the scheduler: enqueue, cancel, finish, paused,
/// resumed, and the answers of the cache about its blocks.
inline constexpr std::uint32_t scheduler_slots_per_request = 8;

} // namespace troupe::actors
