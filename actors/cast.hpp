// SPDX-License-Identifier: Apache-2.0
// Who plays which part: the addresses the actors send to, and what they tell the engine.
#pragma once

#include "actors/messages.hpp"
#include "actors/scheduler_core.hpp"
#include "runtime/ref.hpp"

#include <atomic>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

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
  /// The request's mailbox refused what it cannot go on without: it ends, and its actor is asked no more.
  virtual void unreachable(request_id id) = 0;
  virtual void drained() = 0;
  /// The request has answered `scheduler_renewed`: what it had to tell the scheduler is on its way.
  virtual void came_back(request_id /*id*/) {}
  virtual void scheduler_changed(const scheduler_stats& stats) = 0;
  virtual void cache_changed(const kv_level& level) = 0;
  /// The memory of these free KV blocks, ascending, may go back to the system, now: they may be leased right
  /// after. `forgotten`: blocks that were cached until now.
  virtual void discard(std::span<const block_id> /*blocks*/, std::uint32_t /*forgotten*/) {}
  virtual void park_changed(const park_level& level) = 0;
};

/// A live request, as the others reach it.
struct cast_request {
  runtime::ref<request_protocol> actor;
  /// What its latest `stream_paused` or `stream_resumed` said. Only one of them is under way at a time, and
  /// stands for the latest: a client that reads by fits and starts fills no mailbox.
  bool paused = false;
  bool flow_told = false; ///< one is under way
};

/// Shared by the actors of one engine; it outlives a crash of some of them, and then gets the new ones.
/// Thread: the engine's executor, one thread at a time.
struct cast {
  runtime::ref<scheduler_protocol> scheduler;
  runtime::ref<cache_protocol> cache;
  runtime::ref<executor_protocol> executor;
  runtime::ref<guard_protocol> guard;
  runtime::ref<park_protocol> parker;                       ///< nobody when nothing is parked
  std::unordered_map<std::uint64_t, cast_request> requests; ///< by request_id::number
  std::atomic<bool> backend_busy{false}; ///< a step is computed, perhaps for an executor that is gone
  std::atomic<bool> parker_busy{false};  ///< blocks are copied, perhaps for a parker that is gone
  /// Of the ids that the scheduler knows; after a crash already that of the next one. Who has another neither
  /// knocks nor comes back: it is told of the new one, and does then.
  std::uint32_t generation = 0;
  std::vector<std::uint64_t> in_step; ///< requests of the step that the scheduler waits for
  cast_listener* listener = nullptr;  ///< outlives the actors
};

// Control slots of the mailboxes: no more can wait in one at a time, whatever the order of turns. A mailbox
// made with them refuses no control message; tests/sim runs with no slot more.

/// Of a request: admitted, started, the end (refused or sequence_finished), the prompt (prompt_ready or
/// prompt_failed), two cancels (the client's, and its group's when a choice fails), two alarms, one
/// scheduler_renewed: what the earlier scheduler said waits before it, and the new one says nothing before it
/// was answered.
inline constexpr std::uint32_t request_slots = 9;

/// Of the scheduler for each live request: enqueue, one end (cancel or finish: a request asks once), the
/// engine's cancel for an actor that is gone, the flow (see cast_request), two blocks_released (a
/// preemption's, and the end's behind the demand that followed it: the cache manager answers in order, and no
/// preemption comes before the answer to that demand), one of the parker's answers, of which one is awaited
/// at a time. Behind a readmission there is neither of the last three yet: it has one of their slots, and
/// one that was sent under the earlier id (enqueue or the flow) another.
inline constexpr std::uint32_t scheduler_slots_per_request = 7;
/// And for all together: model_ready, drain, cut, blocks_reserved, the step's end, two alarms.
inline constexpr std::uint32_t scheduler_slots = 7;

/// Of the cache manager for each live request: two release_blocks, as above, or one and the step_finished
/// that it waits for, then it has no other to send; one more step_finished, of the step that copied for it:
/// the next one is in another grant; and three publish_blocks: behind a full block the sequence needs another
/// one, and that demand is answered after the news was taken; its prompt ends once; what was restored is made
/// known before its next step.
inline constexpr std::uint32_t cache_slots_per_request = 6;
/// One reserve_blocks is under way at a time.
inline constexpr std::uint32_t cache_slots = 1;

/// Of the executor for each live request: one close_sequence for its being open now, one for its being opened
/// by the step that waits: it is opened by a step only, and the next step comes after that one's end.
inline constexpr std::uint32_t executor_slots_per_request = 2;
/// And run_step, the backend's answer, row_verdicts.
inline constexpr std::uint32_t executor_slots = 3;

/// Of the parker for each live request: a prefetch_parked and a drop_parked of one parking, the park_blocks
/// of the next, which is answered after those, or a restore_blocks in its place, and the drop_parked of the
/// end.
inline constexpr std::uint32_t park_slots_per_request = 4;
/// And the worker's answer.
inline constexpr std::uint32_t park_slots = 1;

/// Of the guard: the rows of the running step.
inline constexpr std::uint32_t guard_slots = 1;

} // namespace troupe::actors
