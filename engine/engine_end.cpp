// SPDX-License-Identifier: Apache-2.0
// Crashes and what follows them, the ordered shutdown, and the end without one.
#include "engine/complete.hpp"
#include "engine/engine_state.hpp"
#include "models/json_document.hpp"
#include "runtime/base/log.hpp"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

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
  returning_.clear();
  if (cast_) cast_->requests.clear();
  for (auto& [id, live] : all) {
    blame_.gone(id);
    if (live.trace) remember(live, failed_event{why});
    finish_trace(id, live);
    tell(*live.client, failed_event{why});
    live.actor.stop();
  }
}

/// After the crash of one of the engine's actors all of them go: each knows a part of the same facts. The
/// requests stay, and are told of the new ones, but for one that is found to be poison.
void engine_state::actor_ended(const runtime::exit_report& report) {
  --engine_actors_;
  const bool serves = stage_ == stage::ready || stage_ == stage::draining;
  if (report.reason == runtime::exit_reason::crashed && !crashed_ && serves) {
    crashed_ = true;
    cast_->generation = generation_ + 1;
    log().error("actor {} crashed at {}: {}", report.crash.actor, report.crash.message, report.crash.what);
    try {
      judge(report.crash);
    } catch (const std::bad_alloc&) { // nobody is suspect; the restart limits answer that
      log().error("no memory to find who is to blame");
    }
    stop_cast();
  }
  if (engine_actors_ == 0 && crashed_ && serves) recover();
}

/// Ends the request that is to blame, once that is known of one.
void engine_state::judge(const runtime::crash_report& report) {
  std::vector<actors::blame_core::request_in_hand> in_hand;
  for (const auto number : actors::in_hand_at_crash(report.request, cast_->in_step, report.requests))
    if (const auto at = live_.find(number); at != live_.end()) in_hand.push_back({number, at->second.digest});
  cast_->in_step.clear();
  const auto poison = blame_.crashed(in_hand);
  if (!poison) return;
  log().error("request {}: it was in hand at two failures, and its prompt is refused from now on", *poison);
  end_alone(*poison, {errc::poison_request, "the engine failed twice over this request", {}, 0});
}

/// Of a request that no scheduler knows.
void engine_state::end_alone(std::uint64_t id, const error& why) {
  live_.at(id).actor.stop();
  const actors::request_id named{0, generation_, id};
  emit(named, failed_event{why});
  retired(named);
}

/// The actors of the generation are gone.
void engine_state::recover() {
  if (stage_ != stage::ready && stage_ != stage::draining) return;
  if (cut_ordered_) return give_up(engine_shut_down);
  const auto decision = restarts_.crashed(0, 1, environment.clock->now());
  if (decision.escalate) {
    log().critical("the engine failed too often and stays down");
    return give_up({errc::executor_failed, "the engine is not running: it failed too often", {}, 0});
  }
  rebuild_after(decision.delay);
}

/// There will be no scheduler any more.
void engine_state::give_up(const error& why) {
  const bool drains = stage_ == stage::draining;
  keep_sums();
  if (!drains) stage_ = stage::down;
  fail_everything(why);
  if (drains) drained();
}

void engine_state::rebuild_after(runtime::duration delay) {
  rebuild_timer_ = environment.timers->start(delay, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->rebuild();
  });
}

void engine_state::rebuild() {
  rebuild_timer_ = {};
  if (stage_ != stage::ready && stage_ != stage::draining) return;
  // The step of the executor that is gone may still write the KV pool, and so may the parker's worker.
  if (cast_->backend_busy || cast_->parker_busy) return rebuild_after(backend_poll);
  ++generation_;
  keep_sums();
  if (auto spawned = spawn_actors(); !spawned) {
    log().critical("{}", spawned.error().message);
    return give_up(spawned.error());
  }
  {
    const std::lock_guard lock(stats_mutex_);
    ++restarts_made_;
  }
  log().warn("the engine's actors are made anew: {} requests go on", live_.size());
  call_back();
}

/// The eldest first, so that whoever can run first is the one who may.
void engine_state::call_back() {
  std::vector<std::uint64_t> all;
  all.reserve(live_.size());
  for (const auto& [id, live] : live_) all.push_back(id);
  std::sort(all.begin(), all.end());
  returning_.clear();
  returning_.insert(all.begin(), all.end());
  for (const std::uint64_t id : all) {
    const auto found = live_.find(id);
    if (found == live_.end()) continue; // with another choice of its request
    const auto group = groups_.find(found->second.group);
    const actors::request_id named{0, generation_, id};
    const bool begun = group != groups_.end() && group->second.joined.started();
    if (found->second.actor.tell(actors::scheduler_renewed{named, begun, blame_.suspect(id)}) ==
        runtime::enqueue_result::full)
      unreachable(named);
  }
  tell_of_drain();
}

void engine_state::came_back(actors::request_id id) {
  if (id.generation != generation_) return; // it answers an earlier call
  if (returning_.erase(id.number) != 0) tell_of_drain();
}

/// Of the drain, or of its end, behind what the requests that came back had to say: the scheduler is not done
/// before it knows of them.
void engine_state::tell_of_drain() {
  if (stage_ != stage::draining || crashed_ || !returning_.empty() || !on_drained_) return;
  const auto told = cut_ordered_ ? cast_->scheduler.tell(actors::cut{engine_shut_down})
                                 : cast_->scheduler.tell(actors::drain{});
  if (told == runtime::enqueue_result::ok) return;
  if (cut_ordered_) fail_everything(engine_shut_down); // nothing else would end them
  drained();
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
    self->cancel_timer(self->rebuild_timer_);
    self->cancel_timer(self->drain_alarm_);
    self->on_drained_ = {};
    self->fail_everything(engine_shut_down);
    result<void> outcome;
    if (!report.clean) outcome = error{errc::internal, "shutdown is not clean: " + report.text(), {}, 0};
    self->answer_shutdown(outcome);
  });
}

/// In a recovery the scheduler that comes is told, unless there is nothing left for it to do.
void engine_state::drain(unique_function<void()> finished) {
  on_drained_ = std::move(finished);
  if (scheduler_drained_ || (engine_actors_ == 0 && live_.empty())) return drained();
  cut_at_limit(std::chrono::duration_cast<std::chrono::milliseconds>(drain_due_ - environment.clock->now()));
  tell_of_drain();
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
    self->cut_ordered_ = true;
    if (self->crashed_) return self->give_up(engine_shut_down);
    self->tell_of_drain();
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
  cancel_timer(rebuild_timer_);
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
