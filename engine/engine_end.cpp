// SPDX-License-Identifier: Apache-2.0
// Crashes and what follows them, the ordered shutdown, and the end without one.
#include "engine/complete.hpp"
#include "engine/engine_state.hpp"
#include "models/json_document.hpp"
#include "runtime/base/log.hpp"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <map>
#include <new>
#include <span>
#include <string_view>
#include <utility>

namespace troupe::detail {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::milliseconds backend_poll{5}; // after a crash only
constexpr std::size_t most_named = 100;              // requests, in one line of the log
constexpr std::chrono::seconds shutdown_grace{5};    // beyond the client's limit, to cut and to stop
constexpr std::chrono::hours longest_drain{24 * 365};

const error engine_destroyed{errc::shutdown, "the engine was destroyed", {}, 0};
const error engine_shut_down{errc::shutdown, "the engine shut down before the answer was complete", {}, 0};

} // namespace

void engine_state::fail_everything(const error& why) {
  auto all = std::move(live_);
  live_.clear();
  cancel_timer(memory_timer_);
  groups_.clear(); // their clients are told as their members', once
  if (cast_) cast_->requests.clear();
  for (auto& [id, live] : all) {
    if (live.trace) remember(live, failed_event{why});
    finish_trace(id, live);
    tell(*live.client, failed_event{why});
    live.actor.stop();
  }
}

void engine_state::actor_ended(const runtime::exit_report& report) {
  --engine_actors_;
  const bool serves = stage_ == stage::ready || stage_ == stage::draining;
  if (report.reason == runtime::exit_reason::crashed && !crashed_ && serves) {
    crashed_ = true;
    log().error("actor {} crashed at {}: {}", report.crash.actor, report.crash.message, report.crash.what);
    blame(report);
    fail_everything({errc::executor_failed, "the engine failed and starts anew: try again", {}, 1000});
    stop_cast();
  }
  if (engine_actors_ > 0 || !crashed_) return;
  if (stage_ == stage::draining) return drained();
  if (stage_ != stage::ready) return;
  const auto decision = restarts_.crashed(0, 1, environment.clock->now());
  if (decision.escalate) {
    log().critical("the engine failed too often and stays down");
    stage_ = stage::down;
    return;
  }
  rebuild_after(decision.delay);
}

/// A request that was alone in hand at two crashes is poison. Of several nobody knows which it was: the
/// restart limits answer those.
void engine_state::blame(const runtime::exit_report& report) {
  if (report.crash.requests.size() != 1) return;
  const auto found = live_.find(report.crash.requests.front());
  if (found == live_.end()) return;
  if (!poison_.crashed(std::span(&found->second.digest, 1)).empty())
    log().error(
        "request {}: its prompt was in hand at two failures and is refused from now on", found->first);
}

void engine_state::rebuild_after(runtime::duration delay) {
  rebuild_timer_ = environment.timers->start(delay, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->rebuild();
  });
}

void engine_state::rebuild() {
  rebuild_timer_ = {};
  if (stage_ != stage::ready) return;
  // The step of the executor that is gone may still write the KV pool, and so may the parker's worker.
  if (cast_->backend_busy || cast_->parker_busy) return rebuild_after(backend_poll);
  ++generation_;
  keep_sums();
  if (auto spawned = spawn_actors(); !spawned) {
    log().critical("{}", spawned.error().message);
    stage_ = stage::down;
  }
}

void engine_state::drained() {
  scheduler_drained_ = true;
  finish_drain();
}

/// The scheduler is done with a request before the request's actor has told its client the end.
void engine_state::finish_drain() {
  if (!scheduler_drained_ || !live_.empty() || !on_drained_) return;
  cancel_timer(drain_alarm_);
  std::exchange(on_drained_, {})();
}

void engine_state::shut_down(std::chrono::milliseconds limit, start_handler done, std::uint64_t number) {
  limit = std::clamp<std::chrono::milliseconds>(limit, std::chrono::milliseconds(0), longest_drain);
  on_shutdown_.push_back({std::move(done), tracked(executor), number});
  switch (stage_.load()) {
  case stage::ready:
  case stage::down:
    return begin_shutdown(limit);
  case stage::draining:
    return shorten_shutdown(limit);
  case stage::loading: // answered when the loading has ended
    stage_ = stage::over;
    loading_.request_stop();
    return;
  case stage::over:
    if (on_start_) return;
    if (shutdown_) return shorten_shutdown(limit);
    break;
  case stage::new_made:
  case stage::failed:
    break;
  }
  stage_ = stage::over;
  answer_shutdown({});
}

void engine_state::cancel_shutdown_wait(std::uint64_t number) {
  const auto found = std::find_if(on_shutdown_.begin(), on_shutdown_.end(), [number](const auto& waiting) {
    return waiting.number == number;
  });
  if (found == on_shutdown_.end()) return;
  waiting_handler waiting = std::move(*found);
  on_shutdown_.erase(found);
  complete(
      executor, std::move(waiting.handler),
      result<void>(error{errc::cancelled, "the wait for the shutdown was cancelled", {}, 0}));
}

/// No stage holds the engine: one that is destroyed takes its shutdown with it.
void engine_state::begin_shutdown(std::chrono::milliseconds limit) {
  stage_ = stage::draining;
  cancel_timer(rebuild_timer_);
  drain_due_ = environment.clock->now() + limit;
  shutdown_ = std::make_unique<runtime::shutdown_sequence>(system);
  const auto add = [this](std::string name, void (engine_state::*act)(unique_function<void()>)) {
    shutdown_->add(std::move(name), [weak = weak_from_this(), act](auto finished) {
      if (auto self = weak.lock()) (self.get()->*act)(std::move(finished));
    });
  };
  add("drain", &engine_state::drain);
  add("stop actors", &engine_state::stop_actors);
  if (!options.trace_dir.empty()) add("write traces", &engine_state::write_traces_out);
  shutdown_->run(limit + shutdown_grace, [weak = weak_from_this()](const runtime::shutdown_report& report) {
    auto self = weak.lock();
    if (!self) return;
    self->stage_ = stage::over;
    self->cancel_timer(self->drain_alarm_);
    self->on_drained_ = {};
    self->fail_everything(engine_shut_down);
    result<void> outcome;
    if (!report.clean) outcome = error{errc::internal, "shutdown is not clean: " + report.text(), {}, 0};
    self->answer_shutdown(outcome);
  });
}

void engine_state::drain(unique_function<void()> finished) {
  on_drained_ = std::move(finished);
  if (engine_actors_ == 0 || cast_->scheduler.tell(actors::drain{}) != runtime::enqueue_result::ok)
    return drained();
  cut_at_limit(std::chrono::duration_cast<std::chrono::milliseconds>(drain_due_ - environment.clock->now()));
}

void engine_state::cut_at_limit(std::chrono::milliseconds limit) {
  drain_alarm_ = environment.timers->start(limit, [weak = weak_from_this()] {
    auto self = weak.lock();
    if (!self) return;
    self->drain_alarm_ = {};
    try {
      self->name_what_is_cut();
    } catch (const std::bad_alloc&) { // they are cut all the same
    }
    if (self->cast_->scheduler.tell(actors::cut{engine_shut_down}) != runtime::enqueue_result::full) return;
    self->fail_everything(engine_shut_down); // nothing else would end them
    self->drained();
  });
}

/// One line, the requests in order of arrival; what clients chose is shown so that it cannot pass for more.
void engine_state::name_what_is_cut() const {
  std::map<std::uint64_t, std::pair<std::string_view, std::uint64_t>> cut; // by stream: name, events taken
  for (const auto& [id, live] : live_) {
    auto& [name, taken] = cut[live.group != 0 ? live.group : id];
    name = live.name;
    taken += live.events_taken;
  }
  if (cut.empty()) return;
  std::string names;
  std::size_t named = 0;
  for (const auto& [stream, told] : cut) {
    if (++named > most_named) break;
    names += (names.empty() ? "" : ", ");
    names += told.first.empty() ? "request " + std::to_string(stream) : models::for_message(told.first);
    names += " (" + std::to_string(told.second) + " token events read)";
  }
  if (cut.size() > most_named) names += " and " + std::to_string(cut.size() - most_named) + " more";
  log().warn(
      "the drain is at its limit, and cuts {} request{}: {}", cut.size(), cut.size() == 1 ? "" : "s", names);
}

void engine_state::shorten_shutdown(std::chrono::milliseconds limit) {
  const auto due = environment.clock->now() + limit;
  if (due >= drain_due_) return;
  drain_due_ = due;
  shutdown_->shorten(limit + shutdown_grace);
  if (!drain_alarm_) return;
  cancel_timer(drain_alarm_);
  cut_at_limit(limit);
}

void engine_state::stop_actors(unique_function<void()> finished) {
  stage_ = stage::over;
  system.when_empty(std::move(finished));
  system.stop_all();
}

/// The background thread does its jobs in order: what was handed in before this one is on the disk after it.
void engine_state::write_traces_out(unique_function<void()> finished) {
  asio::post(environment.background, [ex = tracked(executor), done = std::move(finished)]() mutable {
    asio::post(ex, std::move(done));
  });
}

void engine_state::answer_shutdown(const result<void>& outcome) {
  shutdown_.reset();
  for (waiting_handler& waiting : std::exchange(on_shutdown_, {}))
    complete(executor, std::move(waiting.handler), outcome);
}

void engine_state::abandon() {
  stage_ = stage::over;
  loading_.request_stop();
  cancel_timer(rebuild_timer_);
  cancel_timer(drain_alarm_);
  shutdown_.reset();
  on_drained_ = {};
  fail_everything(engine_destroyed);
  system.end_all();
  answer_start(engine_destroyed);
  answer_shutdown(engine_destroyed);
}

} // namespace troupe::detail
