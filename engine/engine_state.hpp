// SPDX-License-Identifier: Apache-2.0
// What stands behind troupe::engine: the loaded model, the actors, and every live stream.
#pragma once

#include "actors/blame_core.hpp"
#include "actors/cast.hpp"
#include "engine/choice_group.hpp"
#include "engine/complete.hpp"
#include "engine/memory_watch.hpp"
#include "engine/model_host.hpp"
#include "engine/stream_state.hpp"
#include "engine/trace_file.hpp"
#include "runtime/actor_system.hpp"
#include "runtime/shutdown.hpp"
#include "runtime/supervisor.hpp"
#include "runtime/timers.hpp"

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace troupe::detail {

/// What an engine takes from its surroundings; the simulation puts its own in place.
struct engine_environment {
  std::shared_ptr<runtime::clock> clock;
  std::shared_ptr<runtime::timers> timers;
  /// Where loading, tokenising and trace writing happen; not the engine's executor in production.
  boost::asio::any_io_executor background;
  std::shared_ptr<void> keep; ///< what `background` belongs to
  /// Where parked blocks are copied: a worker of its own, because it waits for disks, made when there is a
  /// park pool. The second is what the executor belongs to.
  std::function<std::pair<boost::asio::any_io_executor, std::shared_ptr<void>>()> make_park_worker;
  std::function<host_result(const engine_options&, std::stop_token)> load;
  std::function<memory_sample()> read_memory; ///< empty: memory is not watched
  std::uint64_t seed = 0;                     ///< of sampling seeds that requests leave open
  std::uint32_t drain_budget = 64;            ///< messages per actor turn
  /// Requests between submission and the scheduler's answer, beyond those that run and queue. With them the
  /// mailboxes are sized.
  std::uint32_t door_slack = 256;
};

/// The scheduler's part of the options.
actors::scheduler_options scheduler_options_of(const engine_options& o);

/// One background thread, the machine's clock, Asio's timers, the loader of model files.
engine_environment real_environment(const boost::asio::any_io_executor& executor);

using start_handler = boost::asio::any_completion_handler<void(result<void>)>;
using generate_handler = boost::asio::any_completion_handler<void(result<completion>)>;

/// The handler of an operation under way, and what keeps its executor running meanwhile.
struct waiting_handler {
  start_handler handler;
  boost::asio::any_io_executor work;
  std::uint64_t number = 0; ///< names the operation to its cancellation
};

/// A prompt that is not tokenised yet, shared by its choices. Its bytes count against the backlog for as long
/// as anyone holds it.
struct held_prompt {
  held_prompt(prompt given, bool parse_special, std::shared_ptr<std::atomic<std::uint64_t>> counter);
  ~held_prompt();
  held_prompt(const held_prompt&) = delete;
  held_prompt& operator=(const held_prompt&) = delete;

  const prompt what;
  const bool special; ///< request::parse_special
  const std::shared_ptr<std::atomic<std::uint64_t>> backlog;
  const std::uint64_t bytes;
  /// What the first of its choices made of it. Thread: the background's, which does one job at a time.
  mutable std::optional<result<actors::token_list>> encoded;
};

/// Thread: the engine's executor, but where said.
struct engine_state final : stream_owner, actors::cast_listener, std::enable_shared_from_this<engine_state> {
  engine_state(boost::asio::any_io_executor ex, engine_options given, engine_environment around);
  ~engine_state() override;

  /// `number` names the start, or the wait for the shutdown, to its cancellation.
  void start(start_handler done, std::uint64_t number = 0);
  void cancel_start(std::uint64_t number);
  stream submit(request what); // Thread: any
  void shut_down(std::chrono::milliseconds limit, start_handler done, std::uint64_t number = 0);
  void cancel_shutdown_wait(std::uint64_t number);
  /// Ends everything where it stands: every stream, start and shutdown under way fails with errc::shutdown,
  /// no actor is left. Called from no actor's turn. From then on the last reference may go on any thread.
  void abandon();
  engine_stats stats() const; // Thread: any
  /// See engine::reconfigure.
  result<void> reconfigure(const engine_options& wanted);

  // stream_owner
  void event_read(std::uint64_t stream_id, std::uint32_t index) override;
  void cancel_stream(std::uint64_t stream_id) override; // Thread: any

  // cast_listener
  void tokenize(actors::request_id id) override;
  void emit(actors::request_id id, stream_event event) override;
  void retired(actors::request_id id) override;
  void unreachable(actors::request_id id) override;
  void drained() override;
  void came_back(actors::request_id id) override;
  void scheduler_changed(const actors::scheduler_stats& now) override;
  void cache_changed(const actors::kv_level& level) override;
  void discard(std::span<const actors::block_id> blocks, std::uint32_t forgotten) override;
  void park_changed(const actors::park_level& level) override;

  const boost::asio::any_io_executor executor;
  engine_options options;                 ///< as given, but for what `reconfigure` changed
  std::shared_ptr<const model_host> host; ///< null until loaded; set once, before `phase` says ready
  const engine_environment environment;
  runtime::actor_system system;
  // Starts and shutdowns asked for; a slot outlives its operation, and must not end the next one.
  std::atomic<std::uint64_t> operations{0};

 private:
  enum class stage : std::uint8_t {
    new_made,
    loading,
    ready,
    draining,
    over,   ///< shut down
    failed, ///< the start failed
    down,   ///< failed too often
  };

  /// One sequence: a submitted request, or one choice of it. The stream half is shared with the client.
  struct live_request {
    std::shared_ptr<stream_state> client;
    std::string name;                        ///< request::name
    std::shared_ptr<const held_prompt> text; ///< null once its tokenising began
    std::uint64_t digest = 0;                ///< of the prompt: the same when a client tries again
    runtime::ref<actors::request_protocol> actor;
    std::unique_ptr<request_trace> trace; ///< kept only when traces are written
    bool prompt_traced = false;           ///< its prompt is in the trace
    std::uint32_t most_tokens = 0;        ///< that may be drawn
    std::uint64_t group = 0;              ///< id of the stream that it is a choice of; 0: it has its own
    std::uint64_t events_taken = 0;       ///< token events, by the client
  };
  /// A request of several sequences; their ids follow that of the stream, which is the first one's.
  struct live_group {
    std::shared_ptr<stream_state> client;
    choice_group joined;
    std::uint32_t alive = 0;    ///< members in `live_`
    runtime::time_point told{}; ///< when all members last heard that the client reads
  };
  /// What a sequence is opened with.
  struct opening {
    std::uint64_t id = 0, group = 0;
    std::shared_ptr<const held_prompt> text;
    std::uint64_t digest = 0; ///< of the prompt
    bool score_prompt = false;
    bool continues = false;                   ///< actors::text_options::continues
    std::shared_ptr<const std::string> given; ///< actors::text_options::given
  };

  void loaded(host_result what);
  void answer_start(result<void> outcome);
  result<void> spawn_actors();
  result<void> spawn_cast();
  result<void> spawn_parker();
  void stop_cast();
  void begin(std::uint64_t id, std::shared_ptr<stream_state> client, request asked);
  std::optional<error> refusal(const stream_state& client, std::uint64_t sequences) const;
  std::optional<error> prompt_refusal(const prompt& asked, std::uint32_t max_tokens) const;
  std::optional<error> prompts_refusal(const request& asked) const;
  opening opening_of(prompt& taken, const request& asked) const;
  result<void> open(opening what, std::shared_ptr<stream_state> client, request asked);
  void open_group(std::uint64_t id, std::shared_ptr<stream_state> client, request asked);
  void carry_out(std::uint64_t group, std::uint32_t member, choice_group::output what);
  void prompt_known(std::uint64_t group, std::uint64_t id, const actors::token_list& tokens);
  void close_group(std::uint64_t group);
  void cancel_sequence(std::uint64_t id);
  void tell_of_events(std::uint64_t id, std::uint32_t more);
  std::vector<lost_messages> lost() const;
  void tell_of_reading(std::uint64_t group);
  void tell(stream_state& client, stream_event event);
  void refuse(stream_state& client, error why);
  static void remember_prompt(live_request& live, const std::vector<std::int32_t>& ids);
  static void remember(live_request& live, const stream_event& event);
  void finish_trace(std::uint64_t id, live_request& live);
  void actor_ended(const runtime::exit_report& report);
  void judge(const runtime::crash_report& report);
  void end_alone(std::uint64_t id, const error& why);
  void recover();
  void give_up(const error& why);
  void rebuild_after(runtime::duration delay);
  void rebuild();
  void call_back();
  void tell_of_drain();
  void keep_sums();
  void begin_shutdown(std::chrono::milliseconds limit);
  void shorten_shutdown(std::chrono::milliseconds limit);
  void drain(unique_function<void()> finished);
  void cut_at_limit(std::chrono::milliseconds limit);
  void name_what_is_cut() const;
  void stop_actors(unique_function<void()> finished);
  void write_traces_out(unique_function<void()> finished);
  void answer_shutdown(const result<void>& outcome);
  void finish_drain();
  void fail_everything(const error& why);
  void count_end(const stream_event& event);
  void watch_memory();
  void look_at_memory();
  void publish_memory(const memory_sample& sample);
  void stop_sparing();
  void order_memory();
  void cancel_timer(runtime::timer_handle& timer) noexcept;
  std::uint32_t most_live() const noexcept;
  std::uint32_t prompt_limit(std::uint32_t max_tokens) const noexcept;
  runtime::spawn_options engine_actor(std::uint32_t control, std::uint32_t admission);

  std::atomic<std::uint64_t> next_id_{1};
  std::atomic<stage> stage_{stage::new_made};
  std::unordered_map<std::uint64_t, live_request> live_;
  std::unordered_map<std::uint64_t, live_group> groups_; ///< by stream id
  std::shared_ptr<actors::cast> cast_;
  std::pair<boost::asio::any_io_executor, std::shared_ptr<void>> park_worker_; ///< once there is a park pool
  const std::string run_ = trace_run_name();
  std::stop_source loading_;
  std::optional<waiting_handler> on_start_;
  bool start_cancelled_ = false;
  std::optional<error> start_failure_;
  const std::shared_ptr<std::atomic<std::uint64_t>> prompt_backlog_ =
      std::make_shared<std::atomic<std::uint64_t>>(0);
  runtime::restart_core restarts_;
  actors::blame_core blame_; ///< prompts by digest: a client that tries again comes with a new id
  /// Live requests that were told of the new actors, and have not answered yet. While the engine drains the
  /// scheduler hears of that behind what they have to say.
  std::unordered_set<std::uint64_t> returning_;
  bool cut_ordered_ = false; ///< the drain was at its limit
  runtime::timer_handle rebuild_timer_;
  std::uint32_t generation_ = 0;     ///< of the engine's actors, one more after each crash
  std::uint32_t engine_actors_ = 0;  ///< alive
  bool scheduler_drained_ = false;   ///< it holds no request any more and takes none
  std::atomic<bool> crashed_{false}; ///< no scheduler: the others of the generation go, new ones come
  std::unique_ptr<runtime::shutdown_sequence> shutdown_;
  std::list<waiting_handler> on_shutdown_; // one may leave, and handlers of Boost 1.81 cannot be assigned
  const std::uint32_t most_queue_;         ///< max_queue at the start, for which the mailboxes are made
  memory_watch memory_;
  runtime::timer_handle memory_timer_; ///< runs while requests are in hand
  runtime::time_point memory_seen_{};  ///< when it was last looked at
  unique_function<void()> on_drained_;
  runtime::timer_handle drain_alarm_;
  runtime::time_point drain_due_{}; ///< of the alarm

  /// How requests ended, as their clients were told.
  struct end_counts {
    std::uint64_t stop = 0, length = 0, cancelled = 0;
    std::map<errc, std::uint64_t> failed;
  };
  std::atomic<std::uint64_t> submitted_{0};
  mutable std::mutex stats_mutex_;          // guards what follows
  actors::scheduler_stats scheduler_stats_; ///< of this generation
  actors::scheduler_stats earlier_;         ///< sums of those before it
  std::uint64_t restarts_made_ = 0;         ///< of the engine's actors
  actors::kv_level kv_level_;
  actors::park_level park_level_, park_earlier_; ///< as scheduler_stats_ and earlier_
  std::uint64_t park_block_bytes_ = 0;
  end_counts ends_;
  memory_stats memory_stats_;
};

} // namespace troupe::detail
