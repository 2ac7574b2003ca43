// SPDX-License-Identifier: Apache-2.0
// Shutdown as an ordered list of named stages with one deadline, and a report that names whoever is still
// alive.
#pragma once

#include "runtime/actor_system.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::runtime {

struct shutdown_report {
  bool clean = true;               // every stage finished before the deadline
  std::string stage;               // where it stood at the deadline, empty when clean
  std::vector<actor_status> alive; // actors still alive then, in spawn order
  /// For the log: one line, then one per live actor with its state, mailbox depth and message in hand.
  std::string text() const;
};

/// Runs stages one after the other. A stage gets a `done` function and calls it once, now or later, on any
/// thread; the next stage starts there. Works half-started: add only the stages of what was started. Thread:
/// any.
class shutdown_sequence {
 public:
  using done_function = unique_function<void()>;

  explicit shutdown_sequence(actor_system& system);
  ~shutdown_sequence();
  shutdown_sequence(const shutdown_sequence&) = delete;
  shutdown_sequence& operator=(const shutdown_sequence&) = delete;

  /// Adds a stage at the end; before `run` only.
  void add(std::string name, unique_function<void(done_function)> act);
  /// Starts; calls `finished` exactly once: after the last stage, or at the deadline whatever the stages do
  /// (what they call later is ignored). Then, and when the sequence is destroyed, the stages that did not
  /// start are dropped. A second `run` is ignored.
  void run(duration deadline, unique_function<void(const shutdown_report&)> finished);
  /// Moves the deadline to `deadline` from now, if that is earlier and the sequence runs.
  void shorten(duration deadline);
  /// Name of the stage in progress; empty before the start and after the end.
  std::string stage() const;

 private:
  struct sequence;
  std::shared_ptr<sequence> sequence_;
};

} // namespace troupe::runtime
