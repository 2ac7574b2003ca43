// SPDX-License-Identifier: Apache-2.0
// One troupe of real cores in a world of generated load: their mail in order, steps that only take time.
#pragma once

#include "actors/cache_core.hpp"
#include "actors/executor_core.hpp"
#include "actors/guard_core.hpp"
#include "actors/request_core.hpp"
#include "actors/scheduler_core.hpp"
#include "sim/load_costs.hpp"
#include "sim/load_workload.hpp"
#include "sim/network.hpp"

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>

namespace troupe::sim {

using runtime::time_point;
class load_watch;

/// Of one replica, while the world measures.
struct replica_meters {
  std::uint64_t steps = 0;
  double fill = 0, kv_seconds = 0, busy_seconds = 0;
};

class load_replica {
 public:
  /// What it needs of the world.
  class outside {
   public:
    virtual ~outside() = default;
    virtual actors::token_list prompt_of(std::uint64_t request) = 0;
    /// Calls `ring(request, version)` at `at`; request 0 is the scheduler.
    virtual void
    ring_at(std::uint32_t replica, std::uint64_t request, std::uint64_t version, time_point at) = 0;
    /// Calls `end_step()` then.
    virtual void step_ends_at(std::uint32_t replica, time_point at) = 0;
    /// Answers how many token events the client has taken in all, or 0: nothing new to tell.
    virtual std::uint64_t heard(std::uint64_t request, stream_event&& event) = 0;
    virtual bool measuring() const = 0;
  };

  /// `watch` may be null; both outlive it.
  load_replica(
      std::uint32_t index, const load_settings& s, const step_costs& costs, std::uint64_t seed,
      outside& world, load_watch* watch);

  /// What a seed of a request says of its answer: the request's number and how many tokens it has.
  static constexpr std::uint32_t most_output = (1U << 20) - 1;
  static std::uint64_t seed_of(std::uint64_t request, std::uint32_t output) noexcept {
    return request << 20 | output;
  }

  // Each handles all mail that follows from it.
  void begin(actors::request_options options, time_point now);
  void cancel(std::uint64_t request, time_point now);
  void read(std::uint64_t request, std::uint64_t taken, time_point now);
  void ring(std::uint64_t request, std::uint64_t version, time_point now);
  void end_step(time_point now);

  std::size_t live() const noexcept { return requests_.size(); }
  const actors::scheduler_core& scheduler() const noexcept { return scheduler_; }
  const actors::cache_core& cache() const noexcept { return cache_; }
  const replica_meters& meters() const noexcept { return meters_; }
  std::uint64_t delivered() const noexcept { return delivered_; }

 private:
  struct live_request {
    actors::request_core core;
    std::uint64_t version = 0; ///< of its alarm
  };
  actors::request_id id_of(std::uint64_t number) const noexcept { return {1, index_, number}; }
  void settle();
  void deliver(delivery d);
  template<class Message>
  void to_scheduler(Message&& m);
  template<class Message>
  void to_cache(Message&& m);
  template<class Message>
  void to_executor(Message&& m);
  template<class Message>
  void to_request(std::uint64_t number, Message&& m);
  void carry_out(std::uint64_t number, actors::request_effects& effects);
  void start_step(kernels::step_input&& input);
  void post(party from, party to, any_message&& m) { mail_.push_back({from, to, std::move(m)}); }

  std::uint32_t index_;
  const step_costs& costs_;
  outside& world_;
  load_watch* watch_;
  runtime::random_stream noise_;
  time_point now_{};
  std::uint32_t max_batch_;

  actors::scheduler_core scheduler_;
  actors::cache_core cache_;
  actors::executor_core executor_;
  actors::guard_core guard_;
  actors::scheduler_effects scheduler_effects_;
  actors::cache_effects cache_effects_;
  actors::executor_effects executor_effects_;
  actors::guard_effects guard_effects_;
  std::unordered_map<std::uint64_t, live_request> requests_; ///< by number; looked up, never walked
  std::deque<delivery> mail_;
  std::optional<kernels::step_input> in_step_;
  runtime::duration takes_{};
  std::uint64_t scheduler_alarm_ = 0, delivered_ = 0;
  replica_meters meters_;
};

} // namespace troupe::sim
