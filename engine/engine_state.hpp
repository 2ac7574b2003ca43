// SPDX-License-Identifier: Apache-2.0
// What stands behind troupe::engine: the loaded model, the actors, and every live stream.
#pragma once

#include "actors/cast.hpp"
#include "engine/complete.hpp"
#include "engine/model_host.hpp"
#include "engine/stream_state.hpp"
#include "engine/trace_file.hpp"
#include "runtime/actor_system.hpp"
#include "runtime/shutdown.hpp"
#include "runtime/supervisor.hpp"
#include "runtime/timers.hpp"

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace troupe::detail {

/// What an engine takes from its surroundings; the simulation puts its own in place.
struct engine_environment {
  std::shared_ptr<runtime::clock> clock;
  std::shared_ptr<runtime::timers> timers;
  /// Where loading, tokenising and trace writing happen; not the engine's executor in production.
  boost::asio::any_io_executor background;
  std::shared_ptr<void> keep; ///< what `background` belongs to
  std::function<host_result(const engine_options&)> load;
  std::uint64_t seed = 0;          ///< of sampling seeds that requests leave open
  std::uint32_t drain_budget = 64; ///< messages per actor turn
};

/// One background thread, the machine's clock, Asio's timers, the loader of model files.
engine_environment real_environment(const boost::asio::any_io_executor& executor);

using start_handler = boost::asio::any_completion_handler<void(result<void>)>;
using generate_handler = boost::asio::any_completion_handler<void(result<completion>)>;

/// Thread: the engine's executor, but where said.
struct engine_state final : stream_owner, actors::cast_listener, std::enable_shared_from_this<engine_state> {
  engine_state(boost::asio::any_io_executor ex, engine_options given, engine_environment around);
  ~engine_state() override;

  void start(start_handler done);
  stream submit(request what); // Thread: any
  void generate(request what, generate_handler done);
  void shut_down(std::chrono::milliseconds limit, start_handler done);
  /// Ends everything where it stands: every stream fails with errc::shutdown, the actors stop.
  void abandon();
  engine_stats stats() const; // Thread: any

  // stream_owner
  void events_read(std::uint64_t stream_id, std::uint32_t count) override;
  void cancel_stream(std::uint64_t stream_id) override; // Thread: any

  // cast_listener
  void tokenize(actors::request_id id) override;
  void emit(actors::request_id id, stream_event event) override;
  void retired(actors::request_id id) override;
  void drained() override;
  void scheduler_changed(const actors::scheduler_stats& now) override;
  void cache_changed(const actors::kv_level& level) override;

  const boost::asio::any_io_executor executor;
  const engine_options options;
  std::shared_ptr<const model_host> host; ///< null until loaded; set once, before `phase` says ready
  const engine_environment environment;
  runtime::actor_system system;

 private:
  enum class stage : std::uint8_t {
    new_made,
    loading,
    ready,
    draining,
    over, ///< shut down
    down, ///< failed too often
  };

  /// One submitted request. The stream half is shared with the client.
  struct live_request {
    std::shared_ptr<stream_state> client;
    std::shared_ptr<const request> asked;
    runtime::ref<actors::request_protocol> actor;
    std::uint64_t seed = 0;
    std::unique_ptr<request_trace> trace; ///< kept only when traces are written
  };

  void loaded(host_result what, start_handler done);
  result<void> spawn_actors();
  void begin(std::uint64_t id, std::shared_ptr<stream_state> client, std::shared_ptr<const request> asked);
  result<void> open(std::uint64_t id, live_request live);
  void refuse(stream_state& client, error why);
  void remember(live_request& live, const stream_event& event);
  void finish_trace(std::uint64_t id, live_request& live);
  void actor_ended(const runtime::exit_report& report);
  void rebuild();
  void finish_drain();
  void fail_everything(const error& why);
  void count_failure(errc code);
  std::uint32_t most_live() const noexcept;
  runtime::spawn_options engine_actor(std::uint32_t control, std::uint32_t admission);

  std::atomic<std::uint64_t> next_id_{1};
  std::atomic<stage> stage_{stage::new_made};
  std::unordered_map<std::uint64_t, live_request> live_;
  std::shared_ptr<actors::cast> cast_;
  runtime::restart_core restarts_;
  std::uint32_t generation_ = 0;    ///< of the engine's actors, one more after each crash
  std::uint32_t engine_actors_ = 0; ///< alive
  bool scheduler_drained_ = false;  ///< it holds no request any more and takes none
  bool crashed_ = false;            ///< the others of the generation are on their way out
  std::unique_ptr<runtime::shutdown_sequence> shutdown_;
  unique_function<void()> on_drained_;

  mutable std::mutex stats_mutex_; // guards the three below
  actors::scheduler_stats scheduler_stats_;
  actors::kv_level kv_level_;
  std::map<errc, std::uint64_t> door_failures_; ///< refused by the engine itself, before the scheduler
};

} // namespace troupe::detail
