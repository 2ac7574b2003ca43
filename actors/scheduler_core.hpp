// SPDX-License-Identifier: Apache-2.0
// The scheduler: who comes in, who gets a seat, what the next step computes, who yields when blocks run out.
#pragma once

#include "actors/load_meters.hpp"
#include "actors/messages.hpp"
#include "actors/step_time_model.hpp"
#include "actors/tenant_book.hpp"
#include "actors/waiting_line.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

namespace troupe::actors {

/// Sums since the start, and levels now.
struct scheduler_stats {
  std::uint32_t running = 0, waiting = 0, paused = 0;
  std::uint64_t steps = 0, failed_steps = 0, prefill_tokens = 0, decode_tokens = 0;
  std::uint64_t preemptions = 0, recomputed_tokens = 0;
  /// Every park ends in one of the others, or is one of the `parked` sequences.
  std::uint64_t parks = 0, parks_failed = 0, parks_dropped = 0, resumes = 0, resumes_failed = 0;
  std::uint32_t parked = 0; ///< now, those on their way there and back too
  std::uint64_t prefix_asked_tokens = 0, prefix_found_tokens = 0; ///< of sequences that began, or began anew
  std::uint64_t prefix_copied_blocks = 0; ///< copies that steps were told to begin with
  std::uint32_t step_rows_max = 0, step_sequences_max = 0, last_step_rows = 0, last_step_sequences = 0;
  std::uint64_t submitted = 0, finished_stop = 0, finished_length = 0, cancelled = 0;
  std::uint64_t readmitted = 0; ///< of those submitted, the ones that an earlier scheduler had let in
  std::array<std::uint64_t, static_cast<std::size_t>(errc::internal) + 1> failed{}; ///< by errc
  std::array<std::uint32_t, priorities> waiting_by_priority{};
  /// Running requests that gave their seats to others of a higher class, or up when memory was short.
  std::uint64_t seats_yielded = 0;
  std::uint64_t displaced = 0;     ///< waiting ones of low priority that made room in a full queue
  std::uint64_t backfilled = 0;    ///< small ones seated while a large one waited for memory
  std::uint64_t company_waits = 0; ///< times that an idle scheduler waited for company
  std::uint64_t cut_steps = 0;     ///< whose prompts' rows were cut for the sake of the TPOT goal
  double compute_use =
      0; ///< sequences that want rows, by those that the TPOT goal leaves room for; 0: no goal
  std::array<double, 4> step_seconds{}; ///< step_time_model::coefficients
  std::uint32_t tenants = 0;            ///< known now
  latency_histogram time_to_first_token, time_per_output_token, step_time, queue_time;
};

using scheduler_effect = std::variant<
    admitted, refused, started, token_ready, prompt_scored, sequence_finished, reserve_blocks, release_blocks,
    step_finished, publish_blocks, run_step, close_sequence, park_blocks, prefetch_parked, restore_blocks,
    drop_parked, set_alarm, drained>;
using scheduler_effects = std::vector<scheduler_effect>;

/// Pure: no clock, no Asio, no thread. A request is admitted or refused at the door; admitted ones take a
/// seat (a place in the batch and a share of the KV by forecast) or queue for one in order of rank; seated
/// ones run in mixed steps of decode rows and prefill chunks. One step at a time: plan, reserve blocks, run,
/// collect.
///
/// Rank = arrival + priority * ageing_quantum, the smaller first: ageing without ever sorting again. Tenants
/// whose turn is at the same priority take turns (waiting_line). While one waits for memory, small ones may
/// pass it, until the first in line has waited a quantum longer than its rank says. So of its tenant's one
/// of priority p is passed in the queue only by those that came within p + 1 quanta after it, and it waits
/// for other tenants' no longer than for those, as many times over as tenants take turns with it.
///
/// Seats: one that waits for a seat takes it from a running one of lower priority, unless that one waited for
/// it so long that it is of the same class: at once if that one alone is of low priority, else after
/// `ttft_goal`. Never from the oldest of its priority, nor from one that drew little since it began, nor more
/// than three times from the same: it goes back to the front of its priority. When memory is short (see
/// limit_batch) and the batch stands above its limit for `batch_patience`, the youngest of the lowest
/// priority give their seats up and wait with their rank.
///
/// Shortage: paused sequences yield first, then the youngest of lower rank than the one in need, never the
/// oldest of its class unless nothing could run otherwise. A preempted sequence keeps its seat and rank, and
/// is computed anew once its blocks and one for each running sequence are free.
///
/// Parking: the blocks of a preempted sequence that nobody shares are copied to the park pool, when computing
/// them again would take longer; they stay leased until they are. It goes on with new blocks once the copies
/// are back in them; when anything of that fails, it is computed anew.
///
/// Prefixes: a sequence begins behind the longest prefix that the cache manager knows. What of it ends inside
/// a block is copied into the sequence's own block by its first step. One whose prefix is just being computed
/// by an elder waits for that instead of computing it again: also for the end of a prompt that is the same,
/// when that is more than a row or two.
///
/// Crash: the state is lost. A new core is told by each request what it holds (`readmission`).
///
/// Tokens depend on prompt, sampling and position only; plans are ordered by id.
/// Cost: O(log n) in the queue; O(seated) per step.
class scheduler_core {
 public:
  explicit scheduler_core(const scheduler_options& options);

  void on(admission_request&& m, time_point now, scheduler_effects& out);
  void on(enqueue&& m, time_point now, scheduler_effects& out);
  void on(readmission&& m, time_point now, scheduler_effects& out);
  void on(cancel&& m, time_point now, scheduler_effects& out);
  void on(finish&& m, time_point now, scheduler_effects& out);
  void on(stream_paused&& m, time_point now, scheduler_effects& out);
  void on(stream_resumed&& m, time_point now, scheduler_effects& out);
  void on(blocks_reserved&& m, time_point now, scheduler_effects& out);
  void on(blocks_released&& m, time_point now, scheduler_effects& out);
  void on(step_done&& m, time_point now, scheduler_effects& out);
  void on(step_failed&& m, time_point now, scheduler_effects& out);
  void on(sequence_parked&& m, time_point now, scheduler_effects& out);
  void on(park_room&& m, time_point now, scheduler_effects& out);
  void on(sequence_restored&& m, time_point now, scheduler_effects& out);
  void on(model_ready&& m, time_point now, scheduler_effects& out);
  void on(drain&&, time_point now, scheduler_effects& out);
  void on(cut&& m, time_point now, scheduler_effects& out);
  void on(retune&& m, time_point now, scheduler_effects& out);
  void on(limit_batch&& m, time_point now, scheduler_effects& out);
  void on(alarm_rang&&, time_point now, scheduler_effects& out);

  scheduler_stats stats() const;
  bool idle() const noexcept { return sequences_.empty(); }

  /// Where the content of a preempted sequence's blocks is.
  enum class parking : std::uint8_t {
    none,
    saving,  ///< on its way to the park pool; its blocks are still leased
    parked,  ///< there
    loading, ///< on its way into the blocks that it holds again
  };

  /// What one request looks like from outside, for oracles and admin pages.
  struct view {
    request_id id;
    bool seated = false, paused = false, started = false, closing = false;
    std::int64_t rank = 0;
    time_point arrival{};
    std::uint32_t held = 0, computed = 0, generated = 0;
    std::uint32_t whole = 0;      ///< blocks it is expected to hold at a time, from now on
    std::uint32_t needs = 0;      ///< blocks it is expected to need beyond what it holds and shares
    std::uint32_t seats_lost = 0; ///< to others of a higher class
    scheduler_core::parking parking = parking::none;
  };
  std::vector<view> requests() const; ///< by id
  /// Of the step that is being planned, runs, or has ended in the message in hand.
  std::vector<request_id> planned_requests() const;
  double kv_use() const noexcept; ///< (leased + limbo + predicted growth of seated requests) / total
  std::uint64_t committed_blocks() const noexcept { return used_blocks() + growth_; }
  double compute_use() const noexcept; ///< see scheduler_stats
  std::size_t queued() const noexcept { return line_.size(); }
  std::uint64_t queued_bytes() const noexcept { return queued_bytes_; }
  std::uint32_t active_seats() const noexcept { return active_seats_; }
  /// Seats that may be taken: max_batch, or fewer while memory is short.
  std::uint32_t most_seats() const noexcept { return std::min(options_.max_batch, seat_limit_); }

 private:
  enum class phase : std::uint8_t {
    admitted, ///< its prompt is being tokenised
    ready,    ///< holds no blocks: not begun, or preempted
    running,  ///< holds blocks
    closing,  ///< its end is decided; its blocks are on their way back
  };
  struct sequence {
    request_id id;
    std::uint32_t priority = 5;
    time_point arrival{};
    std::int64_t rank = 0;
    std::uint64_t group = 0;
    tenant_account* tenant = nullptr;
    double foreseen_tokens = 0;                 ///< that the tenant was charged with
    std::uint64_t bytes = 0;                    ///< its share of `queued_bytes_` while it waits
    std::uint32_t prompt_tokens = 0;            ///< estimated until `wish.prompt` is there
    enqueue wish;                               ///< what was asked for; prompt null until then
    std::shared_ptr<const token_filter> filter; ///< null: any token may be drawn
    std::vector<std::int32_t> generated;

    actors::scheduler_core::phase phase = phase::admitted;
    bool seated = false, paused = false, started = false;
    bool opened = false;           ///< the executor knows it
    bool in_step = false;          ///< the running step writes its blocks
    bool demand_pending = false;   ///< named in the `reserve_blocks` under way
    std::uint32_t foreseen = 0;    ///< positions it is expected to have in the end
    std::uint32_t predicted = 0;   ///< blocks it is expected to hold at a time, from now on
    std::uint32_t shared = 0;      ///< of those, what running sequences hold; 0 once it holds blocks
    std::int64_t seat_cost = 0;    ///< tokens that its tenant was charged with for its seat
    std::uint32_t seated_from = 0; ///< `high_water` when it took its seat
    std::uint32_t seats_lost = 0;
    time_point seated_at{};
    std::uint32_t held = 0;         ///< blocks
    std::uint32_t indices = 0;      ///< of its block table, which has an entry for each group at each
    std::uint32_t passed = 0;       ///< position that it goes on at, as the cache manager knows it
    std::uint32_t counted = 0;      ///< its share of `growth_`
    std::uint32_t in_transit = 0;   ///< blocks of its preemptions that are not back yet
    std::uint32_t computed = 0;     ///< positions whose keys and values are in its blocks
    std::uint32_t high_water = 0;   ///< most it ever had computed
    std::uint32_t scored = 0;       ///< first positions whose next token's score was told
    std::uint32_t fresh_tokens = 0; ///< drawn since it was last opened
    std::uint32_t strikes = 0;      ///< failed steps since its last token
    std::uint32_t releases_pending = 0;
    std::uint64_t last_step = 0;
    time_point ready_since{}, last_token{};
    std::vector<block_id> new_blocks; ///< granted, not yet told to the executor
    std::vector<block_id> table;      ///< as it was granted, or none when there was no memory for it
    scheduler_core::parking parking = parking::none;
    bool prefetched = false;            ///< the parker was told that it is wanted soon
    std::uint32_t parked_from = 0;      ///< first block that is parked
    std::uint32_t parked_positions = 0; ///< `computed` when it was preempted
    std::uint64_t salt = 0;             ///< of the tree that its blocks are known in
    bool beyond = false;                ///< model_ready::reach_border
    /// One number for each full block of its prompt and all before it, and perhaps one for the whole of it.
    std::vector<std::uint64_t> chain;
    bool chained = false;        ///< `chain` is entered in `begun_prefixes_`
    std::uint32_t published = 0; ///< first positions whose full blocks were made known, or were found
    bool tail_published = false; ///< what its prompt ends with was
    std::optional<kernels::kv_copy> copy; ///< for its first step; `computed` counts it already
    finish_reason reason = finish_reason::stop;
    std::optional<error> failed;

    std::uint32_t known() const noexcept {
      return prompt_tokens + static_cast<std::uint32_t>(generated.size());
    }
    /// Positions that want a score: the prompt's, but for the last.
    std::uint32_t scores_wanted() const noexcept {
      return wish.score_prompt && prompt_tokens > 0 ? prompt_tokens - 1 : 0;
    }
  };
  /// A full block of a prompt, or all of one, that running sequences hold or are about to compute.
  struct begun_prefix {
    request_id computes; ///< the first of them; number 0 when it is gone
    std::uint32_t holders = 0;
  };
  struct planned {
    request_id id;
    std::uint32_t first = 0, count = 0;
    bool want_token = false;
    std::uint32_t score_from = no_limit;
    bool restores = false; ///< no rows: it is parked and gets blocks to go on with
  };
  struct turn {
    time_point now;
    scheduler_effects& out;
  };
  static constexpr std::uint32_t most_seats_lost = 3;
  static constexpr std::uint32_t least_tokens_seated = 16; ///< drawn before a seat may be taken away
  enum class step_state : std::uint8_t { idle, reserving, running };

  // scheduler_door.cpp: admission
  std::optional<error> refuse_at_door(const admission_request& m, const tenant_account& tenant, turn& t);
  std::optional<error> let_in(const admission_request& m, tenant_account& tenant, turn& t);
  bool make_room(const sequence& s, turn& t);
  error overload(errc code, std::string message, double excess_blocks, request_id id, time_point now) const;
  std::uint32_t forecast_positions(std::uint32_t prompt, std::uint32_t max_tokens) const noexcept;
  double forecast_tokens(std::uint32_t prompt, std::uint32_t max_tokens) const noexcept {
    return static_cast<double>(prompt) + outputs_.predict(max_tokens);
  }
  void expire_queue(turn& t);
  void end_unstarted(request_id first, const error& why, turn& t);
  void watch_levels() noexcept;

  // scheduler_return.cpp: after a crash
  void let_in_again(request_id id, const held_place& place, turn& t);
  std::optional<finish_reason> whole_answer(const sequence& s) const;
  // scheduler_groups.cpp: blocks of models with layer groups and windows
  std::uint32_t most_blocks(std::uint32_t from, std::uint32_t to) const noexcept {
    return groups_.most(from, to, options_.max_step_tokens);
  }
  void foresee(sequence& s) const noexcept;
  void note_passed() noexcept;
  void count_held(sequence& s) const noexcept { s.held = groups_.blocks(0, s.indices, s.passed); }
  bool table_known(const sequence& s) const noexcept {
    return s.table.size() == std::size_t{s.indices} * groups_.size();
  }
  std::uint32_t goes_on_at(const sequence& s) const noexcept {
    return groups_.forgets() && s.parking != parking::none ? s.parked_positions : s.computed;
  }
  void
  copy_table(const sequence& s, std::uint32_t from, std::uint32_t position, std::vector<block_id>& to) const;

  // scheduler_seats.cpp: who takes a seat, and whose
  enum class lack : std::uint8_t { nothing, seat, memory, compute };
  struct room {
    std::uint32_t seats; ///< taken
    std::uint64_t blocks, positions;
  };
  room taken() const noexcept;
  lack lack_of(const sequence& s, const room& taken) const noexcept;
  duration goal_of(const sequence& s) const noexcept {
    return options_.tpot_goals[std::min<std::size_t>(s.priority, priorities - 1)];
  }
  duration strictest_goal(const sequence* with) const noexcept;
  void take_seat(sequence& s, time_point now);
  void leave_seat(sequence& s);
  void seat_from_queue(turn& t);
  void seat_out_of_turn(sequence& s, turn& t);
  bool backfill(const sequence& head, turn& t);
  bool take_from_lower(const waiting_line::choice& chosen, sequence& needy, turn& t);
  bool may_yield(const sequence& s, const sequence& needy, time_point now) const noexcept;
  bool yield_seat(sequence& s, const sequence& to, turn& t);
  bool give_seat_up(sequence& s, std::int64_t rank, turn& t);
  void shrink_batch(turn& t);
  std::int64_t standing(const sequence& s, time_point now) const noexcept;
  std::int64_t seat_cost_of(request_id id) const noexcept;
  void join_line(sequence& s);
  void leave_line(sequence& s) noexcept;
  void set_paused(request_id id, bool paused, turn& t);
  void recount(sequence& s);
  std::uint64_t used_blocks() const noexcept { return used_ - std::min(used_, in_transit_); }
  /// What a step copies from is free again after it.
  void note_used(const kv_level& level) noexcept {
    used_ = std::uint64_t{level.leased} - level.sources + level.limbo;
  }

  // scheduler_plan.cpp: the next step, shortages
  void plan_step(turn& t);
  bool waits_for_company(turn& t);
  void collect_candidates(turn& t);
  void open_ready(std::uint32_t running, std::int64_t available, turn& t);
  void keep_one_suspect();
  void share_budget();
  void share_among_prompts(std::ptrdiff_t from, std::uint32_t budget);
  std::uint32_t within_time(
      const step_shape& shape, std::uint32_t first, std::uint32_t rows, duration limit) const noexcept;
  duration step_limit(const step_shape& decodes) const noexcept;
  std::uint32_t
  within_scores(const sequence& s, std::uint32_t given, std::uint32_t rows, std::uint32_t& left) const;
  void ask_for_blocks(turn& t);
  void launch(turn& t);
  static void note_table(sequence& s, const std::vector<block_id>& granted) noexcept;
  void fail_unserved(const blocks_reserved& m, turn& t);
  void resolve_shortage(const blocks_reserved& m, turn& t);
  bool pick_victims(const sequence& needy, std::uint32_t missing, bool last_resort, time_point now);
  void mark_class_elders(time_point now);
  void preempt(sequence& s, turn& t, bool may_park = true);
  void force_preemption(turn& t);
  void drop_from_plan(request_id id);

  // scheduler_park.cpp: what is kept of preempted sequences
  bool begin_parking(sequence& s, turn& t);
  void note_room(const park_room& told) noexcept;
  std::uint32_t shared_with_others(const sequence& s) const;
  duration time_to_compute(std::uint32_t from, std::uint32_t to) const noexcept;
  duration time_to_park(std::uint32_t blocks) const noexcept;
  void begin_restoring(sequence& s, std::uint32_t cached, turn& t);
  void prefetch(sequence& s, turn& t);
  void forget_parked(sequence& s, turn& t);

  // scheduler_prefix.cpp: what sequences share
  void place(sequence& s);
  bool beyond_border(const sequence& s) const noexcept {
    return model_.reach_border != 0 && s.known() > model_.reach_border;
  }
  void cross_border(sequence& s, turn& t);
  void enter_chain(sequence& s);
  void leave_chain(sequence& s);
  struct shared_prefix {
    std::uint32_t numbers = 0;   ///< of the chain, that running sequences have too
    std::uint32_t blocks = 0;    ///< block indices that they hold or compute
    bool being_computed = false; ///< by an elder
  };
  shared_prefix shared_with_running(const sequence& s) const;
  bool may_find(const sequence& s) const noexcept { return options_.prefix_cache && !s.wish.score_prompt; }
  /// Of the prompt, but for the token that is always left to compute.
  std::uint32_t full_blocks(const sequence& s) const noexcept {
    return s.prompt_tokens == 0 ? 0 : (s.prompt_tokens - 1) / model_.block_tokens;
  }
  block_demand demand_of(const sequence& s, const planned& p) const;
  void begin_behind(sequence& s, const block_grant& granted);
  void publish(const step_done& m, turn& t);
  void note_filled(sequence& s, std::uint32_t end, publish_blocks& news);

  // scheduler_core.cpp: messages, ends
  sequence* find(request_id id) noexcept;
  std::shared_ptr<const token_filter> filter_of(const enqueue& wish) const;
  void pump(turn& t);
  void take_result(sequence& s, const planned& p, sequence_result& r, std::uint64_t step_seq, turn& t);
  void begin_group(std::uint64_t group);
  bool begun(std::uint64_t group) const noexcept;
  void take_token(sequence& s, sequence_result& r, std::uint64_t step_seq, turn& t);
  std::optional<error> prompt_refusal(const enqueue& m) const;
  void take_prompt(sequence& s, enqueue&& m, time_point now);
  bool ends_with(const sequence& s, std::int32_t token) const;
  void end_sequence(sequence& s, finish_reason reason, turn& t);
  void end_sequence(sequence& s, error why, turn& t);
  void begin_close(sequence& s, turn& t);
  void conclude(sequence& s, turn& t);
  void forget(sequence& s, time_point now);
  void end_step(turn& t);
  void set_next_alarm(turn& t);
  static bool elder(const sequence& a, const sequence& b) noexcept {
    return queue_key{a.rank, a.id} < queue_key{b.rank, b.id};
  }

  scheduler_options options_;
  std::uint32_t seat_limit_ = no_limit;        ///< see limit_batch
  time_point above_since_ = time_point::max(); ///< when more seats than that were taken
  model_ready model_;
  kv_groups groups_;
  std::uint32_t limit_ = 0; ///< tokens of one sequence: the context, or the whole pool
  bool ready_ = false, draining_ = false, drained_told_ = false;

  std::unordered_map<request_id, sequence> sequences_; ///< looked up; walked only where the order is restored
  tenant_book tenants_;
  waiting_line line_;            ///< admitted, without a seat
  std::set<queue_key> low_line_; ///< of those, the ones of low priority, by rank
  std::uint64_t queued_bytes_ = 0;
  std::set<queue_key> unstarted_;  ///< no row computed yet, by arrival
  std::vector<sequence*> seated_;  ///< by id; not closing
  std::uint32_t active_seats_ = 0; ///< seated and not paused
  std::uint64_t used_ = 0;         ///< blocks leased or in limbo, as the cache manager last said
  std::uint64_t in_transit_ = 0;   ///< of those, what preempted sequences gave back since
  std::uint64_t growth_ = 0;       ///< blocks that seated requests are expected to need beyond what they hold
  std::unordered_map<std::uint64_t, begun_prefix> begun_prefixes_; ///< by chain number
  watermark full_, shed_, busy_;
  output_forecast outputs_;
  step_time_model step_times_;
  step_shape shape_; ///< of the running step
  rate_meter released_blocks_, finished_requests_;

  park_room park_room_;       ///< as the parker last said, less what was sent there since
  std::uint32_t copies_ = 0;  ///< sequences that are saved or loaded now
  std::uint64_t leaving_ = 0; ///< blocks of those that are saved: theirs soon who are short of them

  step_state step_ = step_state::idle;
  bool end_awaited_ = false; ///< the cache manager waits for the end of the running step
  std::uint64_t step_seq_ = 0;
  std::vector<planned> plan_;
  std::uint32_t stuck_in_a_row_ = 0;        ///< plans that nobody could run for want of blocks
  time_point retry_at_ = time_point::max(); ///< when an idle scheduler looks again
  time_point alarm_ = time_point::max();
  scheduler_stats stats_;

  // scratch of one turn, kept for its capacity
  struct candidate {
    sequence* s;
    std::uint32_t wanted; ///< rows
    std::uint32_t rows;
  };
  std::vector<candidate> candidates_;
  std::vector<sequence*> restores_; ///< parked ones for whom there is room
  std::vector<sequence*> scratch_, victims_;
  std::vector<std::pair<std::int64_t, const sequence*>> elders_;
  std::unordered_set<std::uint64_t> opening_; ///< chain numbers that the plan's beginners compute
};

} // namespace troupe::actors
