// SPDX-License-Identifier: Apache-2.0
// Every message between the actors, grouped by receiver, and the inbox protocol of each.
#pragma once

#include "actors/scheduler_options.hpp"
#include "actors/token_filter.hpp"
#include "kernels/backend.hpp"
#include "runtime/base/error.hpp"
#include "runtime/clock.hpp"
#include "runtime/protocol.hpp"
#include "troupe/request.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::actors {

/// Names one request; `generation` grows when an engine's actors are made anew, and the request gets the new
/// one (`scheduler_renewed`), so that a late message of the old ones is unknown to the new ones.
struct request_id {
  std::uint32_t model = 0;
  std::uint32_t generation = 0;
  std::uint64_t number = 0; ///< from 1; 0 names none
  auto operator<=>(const request_id&) const = default;
};

using block_id = std::uint32_t;
using kernels::kv_groups;
using kernels::no_block;
using token_list = std::shared_ptr<const std::vector<std::int32_t>>;

/// `max_tokens` of a request that runs to the end of its context.
inline constexpr std::uint32_t no_limit = std::numeric_limits<std::uint32_t>::max();

// ---- to the scheduler ------------------------------------------------------------------------------------

/// Asks for a place, before the prompt is tokenised. Answered by `admitted` or `refused`. From: request.
struct admission_request {
  request_id id;
  std::uint32_t priority = 5;
  std::uint32_t prompt_tokens = 0; ///< exact, or estimated from the bytes
  std::uint32_t max_tokens = no_limit;
  time_point deadline = time_point::max();
  std::string tenant;
  /// Shared by the choices of one client's request, which begin with the same prompt or wait for each other;
  /// 0: this is all of it. Once one of them has begun, none is refused for waiting too long.
  std::uint64_t group = 0;
  std::size_t payload_bytes() const noexcept { return tenant.capacity(); }
};

/// The tokenised prompt of an admitted request. Answered by `started` at its first row, or by `refused`, or
/// by `sequence_finished` when it ended before. From: request.
struct enqueue {
  request_id id;
  token_list prompt;
  kernels::sampling_params sampling;
  std::uint32_t max_tokens = no_limit;
  std::uint32_t min_tokens = 0; ///< tokens before an id that ends the sequence may be drawn
  std::vector<std::int32_t> stop_ids;
  bool ignore_eos = false;
  bool logprobs = false;
  std::uint32_t top_logprobs = 0;
  std::vector<std::int32_t> banned; ///< ids that are never drawn
  bool score_prompt = false;        ///< answer with `prompt_scored` too
};

/// What a request that was let in holds, told to a scheduler that was made anew: it takes its place by its
/// age and goes on where its client stands, as one that was preempted.
struct held_place {
  std::uint32_t priority = 5;
  std::uint32_t prompt_tokens = 0; ///< exact, or estimated from the bytes
  std::string tenant;
  std::uint64_t group = 0; ///< see admission_request
  time_point arrival{};    ///< when it knocked first: its rank and its longest wait count from there
  enqueue wish;            ///< prompt null: it is being tokenised, and `enqueue` follows
  /// Tokens that it was told, in order. They count for `max_tokens` and `min_tokens`, and are not told again.
  std::vector<std::int32_t> drawn;
  std::uint32_t scored = 0; ///< of the prompt, scores that it was told
  time_point last_token{};  ///< when it was told the latest of `drawn`
  bool begun = false;       ///< its client was told that the request runs, so it is never refused for waiting
  bool started = false;     ///< that is true of this sequence itself, and not of another choice only
  bool paused = false;      ///< see stream_paused
  bool suspect = false;     ///< it was in hand at a crash: tried alone until it has drawn a token
};
/// Takes a place again that an earlier scheduler had given. Never refused for load, and charged to no limit
/// again. Not answered, but by the end. From: request.
struct readmission {
  request_id id;
  std::shared_ptr<const held_place> place; ///< not null
};

/// Ends a request. Idempotent; an unknown id is a no-op, because its end may be on the way already.
/// Sent only after `admitted`. `why.code` cancelled ends it as finish_reason::cancelled, any other as that
/// error. From: request.
struct cancel {
  request_id id;
  error why;
};

/// A stop string matched: as `cancel`, but the sequence ends as finish_reason::stop. From: request.
struct finish {
  request_id id;
};

/// The client does not read: keep its blocks, schedule it no more. Idempotent. From: request.
struct stream_paused {
  request_id id;
};
/// Undoes `stream_paused`. Idempotent. From: request.
struct stream_resumed {
  request_id id;
};

/// New entries of one owner's block table (kv_groups), appended to it: block ids, and no_block where none is
/// needed.
struct block_grant {
  request_id id;
  std::vector<block_id> blocks;
  /// First positions whose keys and values are in the first of these blocks already, or come there with
  /// `copy`. Nobody writes them again.
  std::uint32_t cached = 0;
  /// To be carried out by the step that was asked for, before the sequence's rows: it brings the last
  /// positions of the cached ones. The block that they are in stays as it is until that step's
  /// `step_finished`, or until the sequence's blocks are released before it.
  std::optional<kernels::kv_copy> copy = std::nullopt;
};
/// A demand that could not be met; nothing of it was granted.
struct block_shortage {
  request_id id;
  std::uint32_t missing = 0; ///< blocks
};
/// A snapshot of one KV pool, blocks. free + leased + limbo + cached == total.
struct kv_level {
  std::uint32_t free = 0, leased = 0, limbo = 0, cached = 0, total = 0;
  std::uint32_t sources = 0; ///< of the leased ones, those that nobody owns: a step copies from them
  bool operator==(const kv_level&) const = default;
};
/// Answers `reserve_blocks`, demand by demand. A demand that needs blocks and is not named met an allocation
/// failure in the ledger: nothing of it was granted. From: cache manager.
struct blocks_reserved {
  std::uint64_t step_seq = 0;
  std::vector<block_grant> grants;
  std::vector<block_shortage> shortages;
  kv_level level; ///< after it
};
/// Answers `release_blocks`, once the blocks can be given to others. From: cache manager.
struct blocks_released {
  request_id id;
  std::uint32_t blocks = 0; ///< that it held; others may hold some of them still
  kv_level level;           ///< after it
};

/// The log probability of a prompt's token after those before it, and the most likely tokens in its place.
struct prompt_score {
  float logprob = 0;
  std::vector<kernels::token_logprob> top;
};
/// What one sequence got out of a step.
struct sequence_result {
  request_id id;
  std::int32_t token = -1; ///< -1: this chunk did not ask for one
  bool not_finite = false; ///< the guard ruled that this sequence ends here
  float logprob = 0;
  std::vector<kernels::token_logprob> top;
  std::vector<prompt_score> scores; ///< of the entry's rows from plan_entry::score_from on
};
/// From: executor.
struct step_done {
  std::uint64_t step_seq = 0;
  std::vector<sequence_result> results; ///< of every sequence of the plan, in its order
  duration took{};
};
/// Nothing of the step counts; its KV writes may be partial, and are over. From: executor.
struct step_failed {
  std::uint64_t step_seq = 0;
  std::string reason;
};

/// Time that each of a sequence's blocks takes, as measured.
struct park_costs {
  duration save{};  ///< from the KV pool into memory
  duration load{};  ///< from memory into the KV pool
  duration write{}; ///< from memory to the disk
  duration read{};  ///< from the disk to memory
};
/// What the park pool could take now, blocks. Told with every answer, and by itself when it has changed
/// otherwise. From: parker.
struct park_room {
  std::uint32_t memory = 0, disk = 0;
  park_costs costs;
  std::uint64_t number = 0; ///< grows; of two that crossed on their way the larger is the newer
};
/// Blocks of its memory that the park pool keeps free while the disk has room for what lies there.
constexpr std::uint32_t park_reserve(std::uint32_t memory_blocks) noexcept {
  return memory_blocks / 4 + (memory_blocks % 4 != 0 ? 1 : 0);
}
/// Answers `park_blocks`: nobody reads the sequence's blocks any more. From: parker.
struct sequence_parked {
  request_id id;
  bool kept = false; ///< their content is; else it is to be computed again
  park_room room;    ///< after it
};
/// Answers `restore_blocks`: nobody writes the sequence's blocks any more, and nothing of it is parked.
/// From: parker.
struct sequence_restored {
  request_id id;
  bool restored = false; ///< the blocks hold what they held; else nothing is known of their content
  park_room room;        ///< after it
};

/// Facts of the model; opens the door. From: engine.
struct model_ready {
  std::uint32_t kv_blocks = 0;
  std::uint32_t block_tokens = 0;
  std::uint32_t context = 0; ///< positions per sequence
  std::vector<std::int32_t> end_of_sequence;
  /// Sequences longer than this have other keys and values, from the first position on: one that grows beyond
  /// it is computed anew. 0: all the same.
  std::uint32_t reach_border = 0;
  std::uint32_t park_blocks = 0; ///< that the park pool holds in memory, and so one sequence at most; 0: none
  park_room parking_room;        ///< of the park pool while it is empty
  std::vector<std::uint32_t> windows{0}; ///< of its layer groups (kernels::kv_groups)
};
/// No new work from now on. Answered by `drained` when no request is left. From: engine.
struct drain {};
/// Ends every request with `why`. From: engine.
struct cut {
  error why;
};

/// The policy from now on, in what can change while it serves. Who was let in stays. From: engine.
struct retune {
  std::shared_ptr<const scheduler_options> options;
};
/// Memory is short: so many seats at most, at least 1. More go on for `batch_patience` only. From: engine.
struct limit_batch {
  std::uint32_t sequences = no_limit;
};

/// The alarm that the core asked for, perhaps late. To: every actor, from its own timer.
struct alarm_rang {};

struct scheduler_protocol
    : runtime::protocol<
          runtime::admission<admission_request>, runtime::control<enqueue>, runtime::control<cancel>,
          runtime::control<finish>, runtime::control<readmission>, runtime::control<stream_paused>,
          runtime::control<stream_resumed>, runtime::control<blocks_reserved>,
          runtime::control<blocks_released>, runtime::control<step_done>, runtime::control<step_failed>,
          runtime::control<sequence_parked>, runtime::control<sequence_restored>,
          runtime::control<model_ready>, runtime::control<drain>, runtime::control<cut>,
          runtime::state<retune>, runtime::state<limit_batch>, runtime::state<park_room>,
          runtime::control<alarm_rang>> {
  static constexpr std::string_view name = "scheduler";
};

// ---- to a request ----------------------------------------------------------------------------------------

/// The request has a place, in the batch or in the queue. From: scheduler.
struct admitted {
  request_id id;
};
/// Turned away, at the door or after tokenising. The last message to the request. From: scheduler.
struct refused {
  request_id id;
  error why;
};
/// Its first rows are being computed: it runs, and no longer ends for waiting in the queue. Once. From:
/// scheduler.
struct started {
  request_id id;
};
/// One drawn token. From: scheduler.
struct token_ready {
  request_id id;
  std::int32_t token = 0;
  std::uint32_t position = 0; ///< absolute; the first one's is the prompt's length
  std::uint64_t step_seq = 0;
  bool ends = false; ///< an end-of-sequence or stop id: it leaves no text
  float logprob = 0;
  std::vector<kernels::token_logprob> top;
};
/// Scores of the prompt's tokens from `first` on, in order and without gaps, before any `token_ready`. The
/// prompt's first token has none. From: scheduler.
struct prompt_scored {
  request_id id;
  std::uint32_t first = 1; ///< position
  std::vector<prompt_score> scores;
  std::size_t payload_bytes() const noexcept {
    std::size_t sum = scores.capacity() * sizeof(prompt_score);
    for (const prompt_score& s : scores) sum += s.top.capacity() * sizeof(kernels::token_logprob);
    return sum;
  }
};
/// The end of an admitted request, exactly once, after its blocks are free. The last message to the request,
/// though `token_ready` and `prompt_scored` may still be queued behind it: the counts tell. From: scheduler.
struct sequence_finished {
  request_id id;
  finish_reason reason = finish_reason::stop;
  std::optional<error> failed; ///< if set, `reason` means nothing
  std::uint32_t prompt_tokens = 0;
  std::uint32_t completion_tokens = 0; ///< `token_ready` messages sent
  std::uint32_t scored_tokens = 0;     ///< of the prompt, in `prompt_scored` messages sent
};

/// From: engine.
struct prompt_ready {
  request_id id;
  token_list tokens;
};
/// From: engine.
struct prompt_failed {
  request_id id;
  error why;
};
/// The client cancelled or left, or `stop` of the engine. Idempotent. From: engine.
struct client_cancel {
  request_id id;
  error why; ///< code cancelled gives a partial answer
};
/// The client has taken this many token events in all. The latest says everything, so that however fast a
/// client reads one message waits; the same number again says that it took some of another choice of its
/// request. From: engine.
struct events_read {
  request_id id;
  std::uint64_t taken = 0;
};

/// The engine's actors were made anew: the request goes on under this id, and tells the scheduler what it
/// holds, or knocks again. What the earlier scheduler said and is heard from now on is unknown. From: engine.
struct scheduler_renewed {
  request_id id;
  bool begun = false;   ///< see held_place
  bool suspect = false; ///< see held_place
};

struct request_protocol
    : runtime::protocol<
          runtime::control<admitted>, runtime::control<refused>, runtime::control<started>,
          runtime::stream<token_ready>, runtime::stream<prompt_scored>, runtime::control<sequence_finished>,
          runtime::control<prompt_ready>, runtime::control<prompt_failed>, runtime::control<client_cancel>,
          runtime::control<scheduler_renewed>, runtime::state<events_read>, runtime::control<alarm_rang>> {
  static constexpr std::string_view name = "request";
};

// ---- to the cache manager --------------------------------------------------------------------------------

/// "`id` shall hold blocks for `positions` and goes on at `first`": blocks that hold only what no row from
/// there on reads are given back, whether the rest can be granted or not. The same demand twice grants
/// nothing the second time.
/// With `prefix` given, of one that holds none: first what is known of these tokens, then blocks for
/// `positions` more, but for no more than there are tokens.
struct block_demand {
  request_id id;
  std::uint32_t positions = 0;
  token_list prefix; ///< null: nothing known may be used
  std::uint64_t salt = 0;
  std::uint32_t first = 0; ///< with `prefix`: behind what is known of it, and not used
  bool whole = false;      ///< of what is known, full blocks only: nothing is to be copied
};
/// Served in order, each wholly or not at all. Answered by `blocks_reserved`. From: scheduler.
struct reserve_blocks {
  std::uint64_t step_seq = 0;
  std::vector<block_demand> demands;
};
/// Gives back all blocks of `id`. Those that step `after_step` may still write wait for its `step_finished`;
/// 0: none does. Answered by `blocks_released`, also for an unknown id. From: scheduler.
struct release_blocks {
  request_id id;
  std::uint64_t after_step = 0;
};
/// Steps up to `step_seq` write and copy no more. Sent when a release waits for that, and after a step that
/// copied. From: scheduler.
struct step_finished {
  std::uint64_t step_seq = 0;
};
/// Blocks of `id`'s table, from `first_block` on, with `tokens` in them. They are full now, but for the last
/// one when the tokens end inside it: what a prompt ends with.
struct filled_blocks {
  request_id id;
  std::uint32_t first_block = 0;
  std::uint64_t salt = 0; ///< of the tree that they are found in
  std::vector<std::int32_t> tokens;
};
/// What others may find from now on. Best effort: what cannot be noted is not found. Its bytes count for
/// nothing in the mailbox: they are bounded by the blocks of the pool. From: scheduler.
struct publish_blocks {
  std::vector<filled_blocks> all;
};

/// Memory is short: the memory of blocks that nobody uses goes back to the system, a part for each of these
/// messages. From: engine.
struct spare_memory {
  bool forget = false; ///< give cached blocks away too, and cache none until a message says otherwise
};

struct cache_protocol
    : runtime::protocol<
          runtime::control<reserve_blocks>, runtime::control<release_blocks>, runtime::control<step_finished>,
          runtime::control<publish_blocks>, runtime::state<spare_memory>> {
  static constexpr std::string_view name = "cache_manager";
};

// ---- to the executor -------------------------------------------------------------------------------------

/// What the executor must know of a sequence it has not seen, or has closed since.
struct sequence_opening {
  token_list prompt;
  std::vector<std::int32_t> generated; ///< so far, when it is recomputed
  kernels::sampling_params sampling;
  bool logprobs = false;
  std::uint32_t top_logprobs = 0;
  std::shared_ptr<const token_filter> filter; ///< null: any token may be drawn
  std::uint32_t reach = 0; ///< positions at most, prompt and answer: kernels::step_sequence::reach
};
/// Positions [first, first + count) of one sequence are to be computed.
struct plan_entry {
  request_id id;
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  bool want_token = false;              ///< draw the token after the last position
  std::vector<block_id> new_blocks;     ///< to append to its block table
  std::optional<sequence_opening> open; ///< present when the sequence is new to the executor
  /// Positions from here on whose next token is the prompt's answer with that token's score.
  std::uint32_t score_from = no_limit;
  std::optional<kernels::kv_copy> copy = std::nullopt; ///< into one of the new blocks, before the rows
};
/// One step; the next comes after its end. Entries ascend by id. From: scheduler.
struct run_step {
  std::uint64_t step_seq = 0;
  std::vector<plan_entry> entries;
};
/// The sequence is gone or will be opened anew. Unknown ids are no-ops. From: scheduler.
struct close_sequence {
  request_id id;
};
/// What the backend answered. From: the backend's thread, through the executor's shell.
struct step_computed {
  kernels::step_result result;
};

/// What becomes of a row with NaN or Inf.
enum class row_action : std::uint8_t {
  fail, ///< the sequence ends with errc::not_finite
};
struct row_verdict {
  request_id id;
  row_action action = row_action::fail;
};
/// Answers `check_rows`. From: guard.
struct row_verdicts {
  std::uint64_t step_seq = 0;
  std::vector<row_verdict> verdicts;
};

struct executor_protocol : runtime::protocol<
                               runtime::control<run_step>, runtime::control<close_sequence>,
                               runtime::control<step_computed>, runtime::control<row_verdicts>> {
  static constexpr std::string_view name = "executor";
};

// ---- to the parker ---------------------------------------------------------------------------------------

/// Keep what is in these blocks of a sequence that is not in a step; they stay leased until the answer, which
/// comes at once when memory has no room for them. Answered by `sequence_parked`. From: scheduler.
struct park_blocks {
  request_id id;
  std::vector<block_id> blocks; ///< in order of position
};
/// What is parked of the sequence will be wanted soon. Best effort. From: scheduler.
struct prefetch_parked {
  request_id id;
};
/// Bring what is parked of the sequence back, from its block `first` on, into these blocks, which are its own
/// and in no step. What is parked is forgotten then. Answered by `sequence_restored`. From: scheduler.
struct restore_blocks {
  request_id id;
  std::uint32_t first = 0; ///< of the parked ones
  std::vector<block_id> blocks;
};
/// What is parked of the sequence is not wanted any more; one that is being saved or restored is answered as
/// soon as nobody touches its blocks. Unknown ids are no-ops. From: scheduler.
struct drop_parked {
  request_id id;
};

enum class park_outcome : std::uint8_t {
  done,
  failed,  ///< the disk refused, or gave less than was asked for
  corrupt, ///< what came back from the disk is not what went there
};
/// A piece of copying has ended. From: the parker's worker, through its shell.
struct park_job_done {
  std::uint64_t number = 0;
  park_outcome outcome = park_outcome::done;
  duration took{};
};

struct park_protocol
    : runtime::protocol<
          runtime::control<park_blocks>, runtime::control<prefetch_parked>, runtime::control<restore_blocks>,
          runtime::control<drop_parked>, runtime::control<park_job_done>> {
  static constexpr std::string_view name = "parker";
};

// ---- to the guard ----------------------------------------------------------------------------------------

struct flagged_row {
  request_id id;
  std::uint32_t position = 0; ///< of the last row of the chunk
};
/// Rows whose numbers were not finite. No token of them leaves before the verdict. From: executor.
struct check_rows {
  std::uint64_t step_seq = 0;
  std::vector<flagged_row> rows;
};

struct guard_protocol : runtime::protocol<runtime::control<check_rows>> {
  static constexpr std::string_view name = "guard";
};

// ---- to the engine ---------------------------------------------------------------------------------------

/// The door is open for this request: tokenise its prompt, answer `prompt_ready` or `prompt_failed`.
/// From: request.
struct tokenize_prompt {
  request_id id;
};
/// No request is left after `drain`. From: scheduler.
struct drained {};
/// A snapshot of the park pool, blocks, and its sums since the start. From: parker.
struct park_level {
  std::uint32_t sequences = 0, memory = 0, memory_total = 0, disk = 0, disk_total = 0;
  std::uint64_t saved = 0, loaded = 0, written = 0, read = 0; ///< blocks copied
  std::uint64_t write_failures = 0, read_failures = 0, corrupt = 0;
  bool operator==(const park_level&) const = default;
};

/// Asks the shell for one `alarm_rang` at `at`, in place of the one asked for before; max() asks for none.
struct set_alarm {
  time_point at = time_point::max();
};

/// The request a message belongs to, for traces.
template<class Message>
requires std::is_same_v<std::remove_cvref_t<decltype(std::declval<const Message&>().id)>, request_id>
constexpr std::uint64_t trace_request(const Message& m) noexcept {
  return m.id.number;
}

} // namespace troupe::actors

template<>
struct std::hash<troupe::actors::request_id> {
  std::size_t operator()(const troupe::actors::request_id& id) const noexcept {
    return static_cast<std::size_t>(
        (id.number ^ (std::uint64_t{id.model} << 40) ^ (std::uint64_t{id.generation} << 52)) *
        0x9E3779B97F4A7C15U);
  }
};
