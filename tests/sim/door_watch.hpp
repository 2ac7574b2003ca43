// SPDX-License-Identifier: Apache-2.0
// What a client of the simulated doors may be told, and until when: each refusal needs its cause, each wait
// its bound.
#pragma once

#include "runtime/clock.hpp"
#include "sim/door_client.hpp"
#include "troupe/error.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace troupe::detail {
struct engine_state;
}

namespace troupe::sim {

using runtime::duration;
using runtime::time_point;

/// Facts of a run that its refusals are measured with.
struct door_facts {
  std::uint32_t blocks = 0, block_tokens = 1, max_queue = 0;
  std::uint64_t places = 0; ///< for sequences, running and waiting
  double kv_high = 0, kv_low = 0;
  duration queue_timeout{}, slow_consumer{};
  duration drain_limit{};
  duration lateness{};     ///< of a timer, at most
  duration longest_step{}; ///< of the backend
  bool steps_fail = false; ///< by lot
  duration recovery{};     ///< from a crash until the requests are back, at most; 0: nothing crashes
};

/// How things stand at the moment of an answer.
struct door_circumstances {
  time_point now{};
  std::optional<time_point> stalled_since; ///< when this client last stopped reading
  std::optional<time_point> draining_since;
  bool cancel_sent = false;
  std::uint32_t failed_steps = 0; ///< that this request was in
  std::uint32_t crashes = 0;      ///< that it may have been in hand at
  bool down = false;              ///< the engine failed too often
  bool text_failed = false;       ///< memory ran out in this request
};

/// Follows the requests of a run from the engine's door to their end. A request is known by its drawn seed.
class door_watch {
 public:
  explicit door_watch(const door_facts& facts) : facts_(facts) {}

  void submitted(const door_wish& wish, std::uint64_t stream_id, bool loading, time_point now);
  /// The engine said that the request failed. What is wrong with that, or nothing.
  std::string failed(const door_wish& wish, const error& why, const door_circumstances& c);
  /// Its terminal event is out, or its client is gone: nobody waits for it any more.
  void left(std::uint64_t seed, time_point now);
  /// A token event was taken by a session.
  void event_read(time_point now) { last_read_ = now; }
  /// After every event. What is wrong, or nothing.
  std::string check(const detail::engine_state& engine, time_point now);

  bool knows(std::uint64_t seed) const { return requests_.contains(seed); }
  /// The code that the engine ended the request with, if it failed.
  std::optional<errc> failure_of(std::uint64_t seed) const;

 private:
  struct followed {
    std::uint64_t stream_id = 0;
    std::uint64_t sequences = 0, blocks = 0; ///< at most
    bool loading = false;
    time_point submitted{};
    duration deadline{}; ///< zero = none
    std::optional<time_point> left;
    std::uint64_t peak_sequences = 0, peak_blocks = 0; ///< of all requests, while it was on its way
    std::optional<errc> failure;
  };
  std::string
  cause_fault(const followed& f, const door_wish& wish, const error& why, const door_circumstances& c) const;
  static bool acts(const followed& f, const std::set<std::uint64_t>& ids);
  void forget_gone(const detail::engine_state& engine, time_point now);

  door_facts facts_;
  std::map<std::uint64_t, followed> requests_;
  std::vector<std::uint64_t> alive_; ///< seeds of those that may still have actors
  time_point last_read_{}, paused_changed_{};
  std::uint32_t paused_ = 0;
};

} // namespace troupe::sim
