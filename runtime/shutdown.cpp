// SPDX-License-Identifier: Apache-2.0
#include "runtime/shutdown.hpp"

#include <mutex>

namespace troupe::runtime {

struct shutdown_sequence::sequence : std::enable_shared_from_this<sequence> {
  struct named_stage {
    std::string name;
    unique_function<void(done_function)> act;
  };
  enum class phase : std::uint8_t { waiting, running, finished };

  explicit sequence(actor_system& s) : system(s) {}

  // Starts stage `next`, provided that stage `from` is still the one in progress.
  void advance(std::size_t from, std::size_t next) {
    unique_function<void(done_function)> act;
    {
      const std::lock_guard lock(mutex);
      if (state != phase::running || at != from) return;
      at = next;
      if (at < stages.size()) act = std::move(stages[at].act);
    }
    if (act)
      act([self = shared_from_this(), next] { self->advance(next, next + 1); });
    else
      finish(true);
  }

  // The caller drops what it gets outside the lock: a stage may own anything, its own sequence too.
  std::vector<named_stage> close() {
    state = phase::finished;
    return std::move(stages);
  }

  void finish(bool clean) {
    unique_function<void(const shutdown_report&)> call;
    shutdown_report report;
    std::vector<named_stage> dropped;
    {
      const std::lock_guard lock(mutex);
      if (state != phase::running) return;
      report.clean = clean;
      if (!clean) report.stage = stages[at].name;
      dropped = close();
      call = std::move(finished);
    }
    if (clean)
      system.timers().cancel(alarm);
    else
      report.alive = system.status();
    call(report);
  }

  actor_system& system;
  mutable std::mutex mutex;
  std::vector<named_stage> stages;
  std::size_t at = 0;
  phase state = phase::waiting;
  timer_handle alarm;
  time_point due{}; // of the alarm
  unique_function<void(const shutdown_report&)> finished;
};

shutdown_sequence::shutdown_sequence(actor_system& system) : sequence_(std::make_shared<sequence>(system)) {}

shutdown_sequence::~shutdown_sequence() {
  timer_handle alarm;
  std::vector<sequence::named_stage> dropped;
  {
    const std::lock_guard lock(sequence_->mutex);
    const bool runs = sequence_->state == sequence::phase::running;
    dropped = sequence_->close();
    if (!runs) return;
    alarm = sequence_->alarm;
  }
  sequence_->system.timers().cancel(alarm);
}

void shutdown_sequence::add(std::string name, unique_function<void(done_function)> act) {
  const std::lock_guard lock(sequence_->mutex);
  if (sequence_->state == sequence::phase::waiting)
    sequence_->stages.push_back({std::move(name), std::move(act)});
}

void shutdown_sequence::run(duration deadline, unique_function<void(const shutdown_report&)> finished) {
  constexpr auto before_first = static_cast<std::size_t>(-1);
  {
    const std::lock_guard lock(sequence_->mutex);
    if (sequence_->state != sequence::phase::waiting) return;
    sequence_->finished = std::move(finished);
    sequence_->state = sequence::phase::running;
    sequence_->at = before_first;
    // The timer never fires inside `start`, and its callback takes the lock: the handle is stored before it
    // runs.
    sequence_->due = sequence_->system.clock().now() + deadline;
    sequence_->alarm =
        sequence_->system.timers().start(deadline, [self = sequence_] { self->finish(false); });
  }
  const auto kept = sequence_; // stages that end at once may end in the destruction of this object
  kept->advance(before_first, 0);
}

void shutdown_sequence::shorten(duration deadline) {
  const std::lock_guard lock(sequence_->mutex);
  const time_point due = sequence_->system.clock().now() + deadline;
  if (sequence_->state != sequence::phase::running || due >= sequence_->due) return;
  if (!sequence_->system.timers().cancel(sequence_->alarm)) return; // it is ringing
  sequence_->due = due;
  sequence_->alarm = sequence_->system.timers().start(deadline, [self = sequence_] { self->finish(false); });
}

std::string shutdown_sequence::stage() const {
  const std::lock_guard lock(sequence_->mutex);
  if (sequence_->state != sequence::phase::running || sequence_->at >= sequence_->stages.size()) return {};
  return sequence_->stages[sequence_->at].name;
}

std::string shutdown_report::text() const {
  if (clean) return "shutdown complete";
  std::string out = "shutdown deadline passed in stage '" + stage + "', " + std::to_string(alive.size()) +
                    " actors still alive";
  for (const auto& a : alive) {
    out +=
        "\n  " + a.name + " (" + std::string(a.state) + "): " + std::to_string(a.depth) + " messages waiting";
    if (a.message.empty()) continue;
    out += ", in hand " + a.message;
    if (a.request != 0) out += " of request " + std::to_string(a.request);
    out += " for " + std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(a.busy).count()) +
           " ms";
  }
  return out;
}

} // namespace troupe::runtime
