// SPDX-License-Identifier: Apache-2.0
// Supervision: who is restarted after a crash, how often and how soon; which requests are poison.
#pragma once

#include "runtime/actor.hpp"
#include "runtime/rng.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace troupe::runtime {

enum class restart_strategy : std::uint8_t {
  one_for_one,  ///< only the crashed child is restarted
  rest_for_one, ///< and every child adopted after it, in order: they depend on it
};

struct restart_limits {
  std::uint32_t intensity = 3;               // restarts within `period`; one more escalates
  duration period = std::chrono::seconds(5); // as OTP's default
  duration backoff_first = std::chrono::milliseconds(20);
  duration backoff_max = std::chrono::seconds(5); // the delay doubles with each crash inside the period
  double jitter = 0.2;                            // the delay is spread by +- this share
};

/// Decides what follows a crash. Pure: no clock, no actors.
class restart_core {
 public:
  restart_core(restart_strategy strategy, const restart_limits& limits, std::uint64_t seed) :
      strategy_(strategy), limits_(limits), jitter_(seed) {}

  struct decision {
    bool escalate = false; // the intensity is spent; nothing below applies
    duration delay{};      // before the restarts
    std::size_t first = 0; // children [first, last) are restarted
    std::size_t last = 0;
  };
  decision crashed(std::size_t child, std::size_t children, time_point now);
  /// After the parent restarted the whole branch.
  void reset() noexcept { crashes_.clear(); }

 private:
  restart_strategy strategy_;
  restart_limits limits_;
  random_stream jitter_;
  std::deque<time_point> crashes_; // inside the period, oldest first
};

/// Finds the requests that bring actors down: an id in hand at two crashes is poison and must never be
/// replayed. Pure.
class poison_ledger {
 public:
  /// Remembers up to `capacity` ids, the newest; at least 1.
  explicit poison_ledger(std::size_t capacity = 4096) : capacity_(capacity < 1 ? 1 : capacity) {}

  /// Counts one crash for each id; returns those that are poison by now.
  std::vector<std::uint64_t> crashed(std::span<const std::uint64_t> requests);
  bool poisoned(std::uint64_t request) const;
  /// The request has ended: its id will not come again.
  void forget(std::uint64_t request);
  std::size_t size() const noexcept { return crashes_.size(); }

 private:
  std::size_t capacity_;
  std::map<std::uint64_t, std::uint32_t> crashes_; // id -> crashes it was present at
  std::deque<std::uint64_t> order_;                // oldest first, for eviction
};

struct child_adopted {
  actor_address child;
};
struct child_crashed {
  actor_address child;
  crash_report report;
};
struct child_restarted {
  actor_address child;
};
struct child_gone {
  actor_address child;
};
struct restart_due {
  std::uint64_t round = 0;
};

struct supervisor_protocol : protocol<
                                 control<child_adopted>, control<child_crashed>, control<child_restarted>,
                                 control<child_gone>, control<restart_due>> {
  static constexpr std::string_view name = "supervisor";
};

struct supervisor_options {
  restart_strategy strategy = restart_strategy::one_for_one;
  restart_limits limits;
  std::uint64_t seed = 0; // of the backoff jitter
  std::uint32_t max_children = 64;
  /// Called on the supervisor's executor for each crash, before the restart, with the ids that are poison by
  /// now.
  unique_function<void(const crash_report&, std::span<const std::uint64_t> poison)> on_crash;
};

/// A node of the supervision tree. Children are adopted in the order of their spawn_supervised calls; they
/// keep their references and their queued mail across restarts. A supervisor may itself be a child. When the
/// intensity is spent it suspends its children and crashes: its parent restarts the whole branch in order,
/// and the root just ends (reason `crashed`, children stopped newest first). State: children, crash times,
/// poison ledger. Mailbox: control only, reserved per child at adoption. On stop: children are asked to stop,
/// newest first.
class supervisor final : public actor<supervisor_protocol> {
 public:
  explicit supervisor(supervisor_options options);
  ~supervisor() override;

  void on(child_adopted m);
  void on(child_crashed&& m);
  void on(child_restarted m);
  void on(child_gone m);
  void on(restart_due m);

 private:
  bool restart_in_place() override;
  void requests_in_hand(std::vector<std::uint64_t>& ids) const override;
  std::size_t index_of(const actor_address& child) const noexcept; // children_.size() when unknown
  void restart_next();
  void command(std::size_t child, actor_cell::command bit) noexcept;

  supervisor_options options_;
  restart_core core_;
  poison_ledger poison_;
  std::vector<actor_address> children_; // in order of adoption
  std::set<std::size_t> pending_;       // to be restarted, lowest first, one at a time
  std::uint64_t round_ = 0;             // of the backoff timer; older ones are void
  std::vector<std::uint64_t> last_requests_;
};

/// Makes a supervisor, at the root or below `parent`.
result<ref<supervisor_protocol>> spawn_supervisor(
    actor_system& system, const boost::asio::any_io_executor& executor, std::string name,
    supervisor_options options, unique_function<void(const exit_report&)> on_exit = {},
    const ref<supervisor_protocol>* parent = nullptr);

/// The child's end of the tie: the control slots in its supervisor's mailbox. Internal.
class supervisor_link {
 public:
  explicit supervisor_link(reservation<supervisor_protocol> slots) noexcept : gone_(std::move(slots)) {
    crash_ = gone_.split(1);
    restarted_ = gone_.split(1);
  }
  // Thread: the child's run.
  bool
  crashed(const actor_cell& child, const crash_report& report) noexcept; // false: nobody supervises any more
  void restarted(const actor_cell& child) noexcept;
  void gone(const actor_cell& child) noexcept;
  // Thread: the supervisor's run, before it sends the command that lets the child use the slot again.
  void refill_crash(reservation<supervisor_protocol> slot) noexcept { crash_ = std::move(slot); }
  void refill_restarted(reservation<supervisor_protocol> slot) noexcept { restarted_ = std::move(slot); }

 private:
  reservation<supervisor_protocol> crash_;
  reservation<supervisor_protocol> restarted_;
  reservation<supervisor_protocol> gone_;
};

} // namespace troupe::runtime
