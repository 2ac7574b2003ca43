// SPDX-License-Identifier: Apache-2.0
// One seed's run: the real cores, their mail, virtual time, clients, faults, and an oracle after every
// message.
#pragma once

#include "actors/blame_core.hpp"
#include "actors/cache_core.hpp"
#include "actors/executor_core.hpp"
#include "actors/guard_core.hpp"
#include "actors/park_core.hpp"
#include "actors/request_core.hpp"
#include "actors/scheduler_core.hpp"
#include "runtime/base/unique_function.hpp"
#include "sim/network.hpp"
#include "sim/scenario.hpp"
#include "sim/stand_in.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::sim {

using runtime::time_point;

/// An oracle's complaint.
struct violation {
  std::string what;
  std::uint64_t request = 0; ///< 0 = about nobody in particular
};

struct outcome {
  std::optional<violation> wrong;
  std::uint64_t hash = 0; ///< over everything that was delivered and when
  std::uint64_t messages = 0;
  std::uint64_t steps = 0, preemptions = 0, refused = 0, completed = 0, failed_steps = 0, prefix_found = 0,
                prefix_copied = 0, ///< positions; blocks
      seats_yielded = 0, displaced = 0, backfilled = 0, cut_steps = 0, parks = 0, resumes = 0,
                park_disk_blocks = 0, parks_lost = 0, ///< blocks written; resumes that failed
      crashes = 0, readmitted = 0, condemned = 0; ///< of the engine's actors; requests that came back; poison
  std::array<std::uint64_t, static_cast<std::size_t>(errc::internal) + 1> failed{}; ///< requests, by errc
  std::uint64_t stopped = 0, full_length = 0, cancelled = 0;
};

/// Hears every delivery, for diagrams.
class recorder {
 public:
  virtual ~recorder() = default;
  virtual void delivered(const delivery& d, time_point now) = 0;
  virtual void noted(party at, std::string_view what, std::uint64_t request, time_point now) = 0;
};

class simulation {
 public:
  simulation(std::uint64_t seed, const scenario& s, recorder* record = nullptr);
  outcome run();

 private:
  /// A request, its client, and what was seen of it.
  struct participant {
    const client_script* script = nullptr;
    std::optional<actors::request_core> core;
    lone_run expected;
    bool expects_refusal = false;                          ///< its prompt never fits
    time_point submitted{}, ended{}, told_at{}, read_at{}, ///< read_at: its core last heard of a read
        paused_since = time_point::max(), left_at = time_point::max(),
        silent_since = time_point::max(); ///< as the client sees it: its credit is used up
    bool accepted = false, over = false, retired = false, cancel_sent = false, prompt_asked = false;
    bool handed_in = false; ///< the scheduler has its prompt
    bool given_up = false;  ///< ended as a slow reader
    std::uint64_t next_seq = 0;
    std::vector<std::int32_t> tokens;
    std::size_t echoed = 0;       ///< tokens of the prompt
    std::uint64_t echo_state = 0; ///< of the model after them
    std::uint32_t given = 0;      ///< token events that spent credit
    std::string text;
    std::uint32_t events = 0, read = 0, read_told = 0;
    std::optional<actors::sequence_finished> finished; ///< as the scheduler sent it
    bool started = false, scheduler_paused = false, paused_at_plan = false;
    bool begins = false;                                 ///< in its last step it began, or began anew
    std::uint32_t failed_steps = 0, failed_in_a_row = 0; ///< the second since its last token
    std::uint64_t last_in_step = 0;
    std::uint32_t prompt_rows = 0;       ///< in steps
    std::vector<std::uint64_t> slots[2]; ///< its tokens' when run alone, within the border and beyond
    std::uint32_t known = 0;             ///< first positions that were made known of it
    std::size_t passed_over = 0;         ///< steps in a row without its decode row
    time_point seated_at{};
    std::uint32_t fresh = 0;       ///< tokens drawn since the executor opened it
    std::uint32_t scores_told = 0; ///< of its prompt's tokens, by the scheduler
    std::uint64_t version = 0;     ///< of its alarm
    // crash.cpp
    std::uint32_t crashes = 0; ///< that it was in hand at
    bool suspicious = false;   ///< it was in hand at one, and was told no token since
    bool on_trial = false;     ///< and has come back so, and drew no token since
    bool condemned = false;    ///< ended as poison by the engine
    bool gone = false;         ///< the engine ended it: its actor is stopped
    bool came_back = false;    ///< this scheduler was told of it as one that was let in
  };

  // simulation.cpp: time, mail, cores
  bool advance();
  void at(time_point when, unique_function<void()> what);
  void deliver(delivery d);
  template<class Message>
  void to_scheduler(party from, Message&& m);
  template<class Message>
  void to_cache(Message&& m);
  template<class Message>
  void to_executor(Message&& m);
  template<class Message>
  void to_parker(Message&& m);
  void start_copying(const actors::park_job& job);
  void note_writers(const actors::park_job& job);
  template<class Message>
  void to_request(participant& p, Message&& m);
  void carry_out(participant& p, actors::request_effects& effects);
  void end_step(std::uint64_t step_seq);
  void note_end(actors::request_id id);
  void carry_out_scheduler();
  void carry_out_executor();
  void set_alarm(party whose, std::uint64_t& version, time_point when);
  void submit(std::uint32_t index);
  void tokenise(participant& p);
  void leave(participant& p);
  void client_event(participant& p, stream_event&& event);
  void client_reads(participant& p);
  void start_backend(kernels::step_input&& input);
  void backend_answers(duration took);
  void trace(const delivery& d);
  void handle(delivery d);
  party party_of(const participant& p) const noexcept;
  participant& of(actors::request_id id);

  // crash.cpp: the engine's actors go and come
  static constexpr bool of_engine(party p) noexcept { return p <= guard || p == parker; }
  bool brings_down(const delivery& d);
  void crash(delivery d);
  std::vector<std::uint64_t> named_at_crash(const delivery& d) const;
  void judge(const std::vector<std::uint64_t>& in_hand);
  void lose_actors();
  void forget_generation();
  void follow_policy();
  void add_sums();
  void rebuild_if_quiet();
  void rebuild();
  void give_up();
  void end_by_engine(participant& p, error why);
  void order(bool cut);
  void tell_of_drain();
  void came_back(participant& p);
  void note_renewal(participant& p, actors::scheduler_renewed& m);
  void note_return(const actors::readmission& m);

  // oracles.cpp
  static constexpr auto slack = std::chrono::milliseconds(60); ///< mail under way, and a step or two
  [[noreturn]] void complain(std::string what, std::uint64_t request = 0) const;
  void require(bool holds, std::string_view what, std::uint64_t request = 0) const {
    if (!holds) complain(std::string(what), request);
  }
  void check_ledger();
  void check_endings();
  void check_parking();
  bool copied_now(actors::request_id id) const;
  bool is_closing(actors::request_id id) const;
  void check_step_input(const kernels::step_input& input);
  void check_bounds();
  void check_not_stalled();
  void check_end();

  // oracles_events.cpp
  void check_event(participant& p, const stream_event& event);
  void check_token(participant& p, const token_event& e);
  void check_echo(participant& p, const token_event& e);
  bool group_runs(const participant& p) const;
  time_point group_submitted(const participant& p) const;
  void check_done(participant& p, const done_event& e);
  void check_failure(participant& p, const error& why);
  void check_patience(participant& p);

  // oracles_door.cpp
  void check_refusal(const actors::refused& m);
  struct tenant_seen {
    double requests = 0; ///< that it may begin at `at`
    double at_least = 0; ///< the same, if its account was not closed and opened anew; see note_retune
    time_point at{};
    std::uint32_t live = 0;
    std::uint64_t served = 0; ///< tokens, while it and the other one wait; see check_fairness
  };
  double filled(const tenant_seen& t, double level) const;
  void note_admitted(actors::request_id id);
  void check_admission(const actors::admission_request& m);
  void check_finish(const actors::sequence_finished& m);

  // oracles_scheduler.cpp
  using views = std::vector<actors::scheduler_core::view>;
  void check_scheduler(std::string_view message);
  void check_plan(const actors::run_step& step);
  void check_step_time(const actors::run_step& step);
  void check_turns(const views& now_seen);
  void check_lengths(const views& now_seen);

  // oracles_seats.cpp
  void check_seating(const views& now_seen);
  void check_fairness(const views& now_seen);
  void check_no_idle_seat(const views& now_seen);
  void check_yielding(const views& now_seen);
  void check_preemptions(const views& now_seen, std::string_view message);

  // oracles_retune.cpp
  void note_retune(const actors::retune& m);
  void note_batch_limit(const actors::limit_batch& m);
  std::uint32_t most_seats() const { return std::min(policy_.max_batch, batch_limit_); }
  void check_queue_bounds(std::uint64_t waiting, bool admitted);
  void check_batch(const views& now_seen);

  // oracles_takers.cpp
  const actors::scheduler_core::view* seen_before(actors::request_id id) const;
  std::int64_t class_of(std::int64_t rank) const;
  void
  check_place_after(const actors::scheduler_core::view& v, std::int64_t taken_for, const views& now_seen);
  void check_takers(const views& now_seen);
  void check_shares(const views& now_seen);
  void check_scores(const actors::prompt_scored& m);

  // oracles_parking.cpp
  void note_room_heard(const actors::park_room& room);
  void check_park(const actors::park_blocks& m);
  void note_room_told(const actors::park_room& room);
  void check_room();
  void check_copy_order(const actors::park_job& job);

  // oracles_prefix.cpp
  void note_known(const actors::publish_blocks& m);
  void check_grants(const actors::blocks_reserved& m, const std::vector<actors::block_demand>& demands);
  void check_found(const actors::block_grant& g);
  void check_copies(const kernels::step_input& input);
  void check_sources();
  std::vector<std::int32_t> tokens_alone(const participant& p) const;
  const std::vector<std::uint64_t>& slots_alone(participant& p, bool beyond) const;
  void check_contents(const kernels::step_input& input);
  void check_choices();

  // oracles_groups.cpp
  void check_groups();
  void check_holes(const kernels::step_input& input);
  /// Calls `f` with each block that the row is written to.
  template<class F>
  void for_written(const kernels::step_sequence& s, const kernels::step_row& row, F f) const {
    const std::size_t groups = scenario_.model.windows.size();
    const std::size_t first = row.position / scenario_.block_tokens * groups;
    require(first + groups <= s.blocks.size(), "a row without a block");
    for (std::size_t g = 0; g < groups; ++g) f(s.blocks[first + g]);
  }

  // oracles_policy.cpp
  void check_displaced(const actors::sequence_finished& m);
  void check_prompt_shares(const views& now_seen);
  void note_shut(const actors::refused& m);
  void check_flapping(bool admitted, std::uint32_t priority);

  const scenario& scenario_;
  actors::scheduler_options policy_;                         ///< that holds now
  std::shared_ptr<const actors::scheduler_options> options_; ///< that a scheduler is made with
  recorder* record_;
  runtime::random_stream chance_;
  network mail_;
  time_point now_{};
  std::map<std::pair<time_point, std::uint64_t>, unique_function<void()>> timed_;
  std::uint64_t timed_count_ = 0;

  actors::scheduler_core scheduler_;
  actors::cache_core cache_;
  actors::executor_core executor_;
  actors::guard_core guard_;
  actors::park_core parker_;
  actors::scheduler_effects scheduler_effects_;
  actors::cache_effects cache_effects_;
  actors::executor_effects executor_effects_;
  actors::guard_effects guard_effects_;
  actors::park_effects park_effects_;
  stand_in backend_;
  stand_in_park park_store_;
  std::optional<actors::park_job> copying_;
  bool disk_failed_ = false;
  actors::park_room room_heard_, room_told_; ///< by the scheduler, less what it parked; by the parker
  std::set<std::uint64_t> saves_asked_, restores_asked_; ///< of the parker, and not answered yet
  std::vector<std::uint32_t> writers_; ///< [block] participant whose rows were written there last
  row_faults row_faults_;
  std::vector<participant> participants_;

  std::optional<kernels::step_input> in_backend_;    ///< what the backend works on
  std::vector<actors::request_id> running_requests_; ///< of the scheduler's running step
  std::vector<std::uint32_t> running_rows_;          ///< of each of those
  bool prompts_only_ = false;                        ///< all of them are prompts that had begun
  /// A request that the scheduler was told to end, until it said that it has.
  struct ending {
    actors::request_id id;
    bool in_step = false; ///< the step that ran then still runs
  };
  std::vector<ending> ending_;
  std::uint64_t limbo_allowed_ = 0; ///< blocks of those that the running step still writes
  std::optional<kernels::step_result> old_answer_;
  std::uint64_t scheduler_alarm_ = 0;
  time_point scheduler_alarm_at_ = time_point::max();
  std::uint64_t checked_step_ = 0;                  ///< the last one whose rows went to the guard
  std::uint64_t plan_seq_ = 0;                      ///< the newest step the scheduler planned
  std::vector<actors::request_id> short_of_blocks_; ///< in the answer that the scheduler handles
  std::uint64_t steps_launched_ = 0;                ///< by this scheduler
  std::size_t prompts_starved_ = 0; ///< steps in a row without a prompt's row though one waits
  std::pair<std::uint64_t, int>
      could_be_seated_;      ///< request that waits though there is room; for so many turns
  bool step_ran_ = false;    ///< before this turn, and still
  bool step_ended_ = false;  ///< in this turn
  bool refused_one_ = false; ///< in this turn
  std::array<duration, actors::priorities> goals_at_plan_{};
  std::uint32_t batch_limit_ = actors::no_limit; ///< see limit_batch
  time_point above_since_ = time_point::max();   ///< when more seats were taken than that
  /// What a queue may hold above bounds that were lowered, and the seats that had been yielded then.
  std::uint64_t queue_left_ = 0, yields_then_ = 0;
  std::pair<std::uint64_t, int> could_take_; ///< request that waits for a seat it may take; for so many steps
  std::map<std::string, tenant_seen> tenants_;
  std::size_t submitted_ = 0; ///< admission requests that the scheduler has had
  bool fairness_over_ = false;
  actors::watermark full_, shed_;                  ///< as the scheduler's, from what it says of itself
  bool shut_to_all_ = false, shut_to_low_ = false; ///< refused so, and the use has not fallen since
  std::uint32_t door_priority_ = 0;                ///< of the last admission request
  bool launched_ = false, shortage_ = false;       ///< in this turn; since the last launch
  bool draining_ = false, cut_ = false, drained_ = false, open_ = false;

  static constexpr std::uint32_t first_generation = 2; ///< any: it must only be carried along
  std::uint32_t generation_ = first_generation;
  actors::blame_core blame_;
  std::uint32_t crashes_ = 0; ///< by lot
  bool down_ = false, given_up_ = false;
  time_point up_since_{};             ///< of the actors
  std::set<std::uint64_t> returning_; ///< requests that have not answered yet
  std::uint32_t under_way_back_ = 0;  ///< readmissions that the scheduler has not had yet
  bool drain_ordered_ = false, cut_ordered_ = false;
  bool drain_sent_ = false, cut_sent_ = false, drain_told_ = false; ///< to this scheduler
  std::optional<memory_order> memory_order_;                        ///< the latest
  bool allocation_failed_ = false;
  double door_use_ = 0; ///< of the KV cache, when the last admission request came
  std::uint64_t door_queued_ = 0, door_bytes_ = 0, door_yielded_ = 0;
  bool door_was_full_ = false, door_was_shedding_ = false, door_queue_full_ = false, door_bytes_full_ = false,
       door_could_displace_ = false;
  views seen_; ///< scheduler's requests after its last turn
  outcome result_;
};

} // namespace troupe::sim
