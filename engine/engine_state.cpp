// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_state.hpp"

#include "actors/cache_actor.hpp"
#include "actors/executor_actor.hpp"
#include "actors/guard_actor.hpp"
#include "actors/request_actor.hpp"
#include "actors/scheduler_actor.hpp"
#include "engine/request_check.hpp"
#include "runtime/base/log.hpp"

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

#include <random>

namespace troupe::detail {
namespace {

namespace asio = boost::asio;

constexpr std::uint32_t door_slack = 256; // requests between submission and the scheduler's answer
constexpr std::uint32_t request_trace_records = 256;
constexpr std::chrono::milliseconds backend_poll{5}; // after a crash only
constexpr std::chrono::seconds shutdown_grace{5};    // beyond the client's limit, to cut and to stop

actors::scheduler_options scheduler_options_of(const engine_options& o) {
  actors::scheduler_options s;
  s.max_batch = o.max_batch;
  s.max_step_tokens = o.max_step_tokens;
  s.max_wait = std::chrono::milliseconds(o.max_wait_ms);
  s.max_queue = o.max_queue;
  s.queue_timeout = std::chrono::milliseconds(o.queue_timeout_ms);
  s.kv_high_watermark = o.kv_high_watermark;
  s.kv_low_watermark = o.kv_low_watermark;
  s.preempt_every = o.preempt_every;
  return s;
}

} // namespace

engine_environment real_environment(const asio::any_io_executor& executor) {
  // The pool is joined when the last user of its executor is gone: jobs hold no engine, so never on its own
  // thread.
  auto pool = std::make_shared<asio::thread_pool>(1);
  engine_environment e;
  e.clock = std::make_shared<runtime::steady_clock>();
  e.timers = std::make_shared<runtime::asio_timers>(executor);
  e.background = pool->get_executor();
  e.keep = pool;
  e.load = load_model_host;
  e.seed = std::random_device{}();
  return e;
}

engine_state::engine_state(asio::any_io_executor ex, engine_options given, engine_environment around) :
    executor(std::move(ex)), options(std::move(given)), environment(std::move(around)),
    system(*environment.clock, *environment.timers),
    restarts_(runtime::restart_strategy::one_for_one, {}, environment.seed) {}

engine_state::~engine_state() = default;

std::uint32_t engine_state::most_live() const noexcept {
  return options.max_batch + options.max_queue + door_slack;
}

// ---- start
// -------------------------------------------------------------------------------------------------

void engine_state::start(start_handler done) {
  stage expected = stage::new_made;
  if (!stage_.compare_exchange_strong(expected, stage::loading)) {
    complete(
        executor, std::move(done),
        result<void>(error{errc::internal, "the engine was started before", {}, 0}));
    return;
  }
  // The job holds no strong reference: the engine must never be destroyed on its own text thread.
  asio::post(
      environment.background, [weak = weak_from_this(), ex = tracked(executor), o = options, load = environment.load,
              d = std::move(done)]() mutable {
        auto what = load(o);
        asio::post(ex, [weak, w = std::move(what), d = std::move(d)]() mutable {
          if (auto self = weak.lock()) self->loaded(std::move(w), std::move(d));
        });
      });
}

void engine_state::loaded(host_result what, start_handler done) {
  result<void> outcome;
  if (!what)
    outcome = what.error();
  else if (stage_ != stage::loading)
    outcome = error{errc::shutdown, "the engine was shut down while it loaded", {}, 0};
  else {
    host = std::move(*what);
    outcome = spawn_actors();
    if (outcome) stage_ = stage::ready;
  }
  complete(executor, std::move(done), std::move(outcome));
}

runtime::spawn_options engine_state::engine_actor(std::uint32_t control, std::uint32_t admission) {
  runtime::spawn_options o;
  o.drain_budget = environment.drain_budget;
  o.mailbox.control = {control, std::uint64_t{control} << 12};
  if (admission > 0) o.mailbox.admission = {admission, std::uint64_t{admission} << 10};
  o.on_exit = [weak = weak_from_this()](const runtime::exit_report& report) {
    if (auto self = weak.lock()) self->actor_ended(report);
  };
  return o;
}

result<void> engine_state::spawn_actors() {
  cast_ = std::make_shared<actors::cast>();
  cast_->listener = this;
  const std::uint32_t blocks = host->memory.kv_blocks;

  auto guard = runtime::spawn<actors::guard_actor>(system, executor, engine_actor(16, 0), cast_);
  if (!guard) return guard.error();
  auto cache = runtime::spawn<actors::cache_actor>(
      system, executor, engine_actor(2 * most_live(), 0), actors::pool_key{}, blocks, host->block_tokens,
      cast_);
  if (!cache) return cache.error();
  auto scheduler = runtime::spawn<actors::scheduler_actor>(
      system, executor, engine_actor(actors::scheduler_slots_per_request * most_live(), most_live()),
      scheduler_options_of(options), cast_);
  if (!scheduler) return scheduler.error();
  auto runner = runtime::spawn<actors::executor_actor>(
      system, executor, engine_actor(2 * most_live(), 0), host->backend, host->program, cast_);
  if (!runner) return runner.error();
  cast_->guard = *guard;
  cast_->cache = *cache;
  cast_->scheduler = *scheduler;
  cast_->executor = *runner;
  engine_actors_ = 4;
  crashed_ = false;

  actors::model_ready facts;
  facts.kv_blocks = blocks;
  facts.block_tokens = host->block_tokens;
  facts.context = host->context;
  facts.end_of_sequence = host->info.end_of_sequence;
  if (cast_->scheduler.tell(std::move(facts)) != runtime::enqueue_result::ok)
    return error{errc::internal, "the scheduler took no mail", {}, 0};
  return {};
}

// ---- a request's way in
// --------------------------------------------------------------------------------------

stream engine_state::submit(request what) {
  const std::uint64_t id = next_id_.fetch_add(1);
  auto client = std::make_shared<stream_state>(executor, id, weak_from_this());
  auto asked = std::make_shared<const request>(std::move(what));
  asio::dispatch(executor, [self = shared_from_this(), id, client, asked]() mutable {
    self->begin(id, std::move(client), std::move(asked));
  });
  return stream(std::move(client));
}

void engine_state::count_failure(errc code) {
  const std::lock_guard lock(stats_mutex_);
  ++door_failures_[code];
}

void engine_state::refuse(stream_state& client, error why) {
  count_failure(why.code);
  client.push(failed_event{std::move(why)});
}

void engine_state::begin(
    std::uint64_t id, std::shared_ptr<stream_state> client, std::shared_ptr<const request> asked) {
  switch (stage_.load()) {
  case stage::new_made:
  case stage::loading:
    return refuse(*client, {errc::model_loading, "the model is being loaded", {}, 1000});
  case stage::down:
    return refuse(*client, {errc::executor_failed, "the engine is not running", {}, 0});
  case stage::over:
  case stage::draining:
    return refuse(*client, {errc::draining, "the engine is shutting down", {}, 0});
  case stage::ready:
    break;
  }
  if (client->cancelled) return refuse(*client, {errc::cancelled, "the client cancelled", {}, 0});
  if (crashed_)
    return refuse(
        *client, {errc::executor_failed, "the engine recovers from a failure: try again", {}, 1000});
  if (live_.size() >= most_live())
    return refuse(*client, {errc::queue_full, "too many requests are in flight: try again", {}, 1000});
  if (auto checked = check_request(*asked, host->info.vocabulary); !checked)
    return refuse(*client, checked.error());
  live_request live;
  live.client = client;
  live.asked = std::move(asked);
  if (auto opened = open(id, std::move(live)); !opened) {
    live_.erase(id);
    cast_->requests.erase(id);
    refuse(*client, opened.error());
  }
}

result<void> engine_state::open(std::uint64_t id, live_request live) {
  const request& asked = *live.asked;
  // Distinct per request, reproducible from the trace.
  live.seed = asked.sampling.seed.value_or((environment.seed << 20) ^ (id * 0x9E3779B97F4A7C15U));
  if (!options.trace_dir.empty()) {
    live.trace = std::make_unique<request_trace>();
    live.trace->asked = asked;
    live.trace->asked.sampling.seed = live.seed;
    live.trace->model_path = host->info.path;
    live.trace->system_fingerprint = host->info.system_fingerprint;
    live.trace->plans.push_back({0, host->plan_number, false});
  }
  auto o = actors::make_request_options({0, generation_, id}, asked, live.seed, options.stream_credit);
  o.slow_consumer = std::chrono::milliseconds(options.slow_consumer_ms);
  o.model = host->info.name;
  o.system_fingerprint = host->info.system_fingerprint;
  auto text = host->make_text(asked.stop, !asked.skip_special_tokens);

  runtime::spawn_options spawning;
  spawning.drain_budget = environment.drain_budget;
  spawning.name = "request/" + std::to_string(id);
  spawning.mailbox.control = {24, 64U << 10};
  spawning.mailbox.stream = {64, 256U << 10};
  spawning.trace_records = request_trace_records;
  spawning.on_exit = [weak = weak_from_this(), id](const runtime::exit_report& report) {
    if (report.reason != runtime::exit_reason::crashed) return;
    auto self = weak.lock();
    if (!self) return;
    log().error("request {} crashed at {}: {}", id, report.crash.message, report.crash.what);
    if (self->cast_->scheduler.tell(
            actors::cancel{{0, self->generation_, id}, error{errc::internal, "the request failed", {}, 0}}) !=
        runtime::enqueue_result::ok)
      log().error("request {}: its place could not be given back", id);
    self->emit(
        {0, self->generation_, id},
        failed_event{{errc::internal, "the request failed inside the engine", {}, 0}});
    self->retired({0, self->generation_, id});
  };
  live_.emplace(id, std::move(live));
  auto spawned = runtime::spawn<actors::request_actor>(
      system, executor, std::move(spawning), std::move(o), std::move(text), cast_);
  if (!spawned) return spawned.error();
  live_[id].actor = *spawned;
  cast_->requests.emplace(id, *spawned);
  return {};
}

void engine_state::tokenize(actors::request_id id) {
  const auto found = live_.find(id.number);
  if (found == live_.end()) return;
  asio::post(
      environment.background, [h = host, asked = found->second.asked, actor = found->second.actor, id] {
        auto ids = h->encode(asked->prompt);
        auto told = runtime::enqueue_result::ok;
        if (ids)
          told = actor.tell(
              actors::prompt_ready{id, std::make_shared<const std::vector<std::int32_t>>(std::move(*ids))});
        else
          told = actor.tell(actors::prompt_failed{id, ids.error()});
        if (told == runtime::enqueue_result::full)
          log().error("request {}: no room for its prompt", id.number);
      });
}

// ---- a request's way out
// -------------------------------------------------------------------------------------

void engine_state::emit(actors::request_id id, stream_event event) {
  const auto found = live_.find(id.number);
  if (found == live_.end()) return;
  if (found->second.trace) remember(found->second, event);
  found->second.client->push(std::move(event));
}

void engine_state::remember(live_request& live, const stream_event& event) {
  if (const auto* accepted = std::get_if<accepted_event>(&event))
    live.trace->asked.prompt = accepted->prompt_token_ids;
  if (const auto* token = std::get_if<token_event>(&event)) {
    live.trace->token_ids.insert(
        live.trace->token_ids.end(), token->token_ids.begin(), token->token_ids.end());
    live.trace->text += token->text;
  }
  if (const auto* done = std::get_if<done_event>(&event)) live.trace->reason = done->reason;
  if (std::holds_alternative<failed_event>(event)) live.trace.reset(); // nothing to reproduce
}

void engine_state::finish_trace(std::uint64_t id, live_request& live) {
  if (!live.trace) return;
  asio::post(
      environment.background,
      [t = std::shared_ptr<request_trace>(std::move(live.trace)), dir = options.trace_dir, id] {
        if (auto written = write_trace(*t, dir, id); !written) log().error("{}", written.error().message);
      });
}

void engine_state::retired(actors::request_id id) {
  cast_->requests.erase(id.number);
  const auto found = live_.find(id.number);
  if (found == live_.end()) return;
  finish_trace(id.number, found->second);
  live_.erase(found);
  finish_drain();
}

void engine_state::events_read(std::uint64_t stream_id, std::uint32_t count) {
  const auto found = live_.find(stream_id);
  if (found == live_.end()) return;
  (void)found->second.actor.tell(actors::events_read{{0, generation_, stream_id}, count});
}

void engine_state::cancel_stream(std::uint64_t stream_id) {
  asio::dispatch(executor, [self = shared_from_this(), stream_id] {
    const auto found = self->live_.find(stream_id);
    if (found == self->live_.end()) return;
    (void)found->second.actor.tell(actors::client_cancel{
        {0, self->generation_, stream_id}, error{errc::cancelled, "the client cancelled", {}, 0}});
  });
}

// ---- failures and the end
// ------------------------------------------------------------------------------------

void engine_state::fail_everything(const error& why) {
  auto all = std::move(live_);
  live_.clear();
  if (cast_) cast_->requests.clear();
  for (auto& [id, live] : all) {
    if (!live.client->ended()) count_failure(why.code);
    live.client->push(failed_event{why});
    live.actor.stop();
  }
}

void engine_state::actor_ended(const runtime::exit_report& report) {
  --engine_actors_;
  if (report.reason == runtime::exit_reason::crashed && !crashed_ && stage_ != stage::over) {
    crashed_ = true;
    log().error("actor {} crashed at {}: {}", report.crash.actor, report.crash.message, report.crash.what);
    fail_everything({errc::executor_failed, "the engine failed and starts anew: try again", {}, 1000});
    cast_->guard.stop();
    cast_->cache.stop();
    cast_->scheduler.stop();
    cast_->executor.stop();
  }
  if (engine_actors_ > 0 || !crashed_) return;
  if (stage_ == stage::draining) return drained();
  const auto decision = restarts_.crashed(0, 1, environment.clock->now());
  if (decision.escalate) {
    log().critical("the engine failed too often and stays down");
    stage_ = stage::down;
    return;
  }
  environment.timers->start(decision.delay, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->rebuild();
  });
}

void engine_state::rebuild() {
  if (stage_ != stage::ready) return;
  if (cast_->backend_busy) { // the step of the executor that is gone still writes the KV pool
    environment.timers->start(backend_poll, [weak = weak_from_this()] {
      if (auto self = weak.lock()) self->rebuild();
    });
    return;
  }
  ++generation_;
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
  if (scheduler_drained_ && live_.empty() && on_drained_) std::exchange(on_drained_, {})();
}

void engine_state::shut_down(std::chrono::milliseconds limit, start_handler done) {
  const stage before = stage_.load();
  if (before != stage::ready || shutdown_) {
    if (before != stage::draining) stage_ = stage::over;
    complete(executor, std::move(done), result<void>());
    return;
  }
  stage_ = stage::draining;
  shutdown_ = std::make_unique<runtime::shutdown_sequence>(system);
  shutdown_->add("drain", [self = shared_from_this(), limit](auto finished) {
    self->on_drained_ = std::move(finished);
    if (self->engine_actors_ == 0 ||
        self->cast_->scheduler.tell(actors::drain{}) != runtime::enqueue_result::ok)
      return self->drained();
    self->environment.timers->start(limit, [weak = self->weak_from_this()] {
      auto strong = weak.lock();
      if (!strong || !strong->on_drained_) return;
      (void)strong->cast_->scheduler.tell(
          actors::cut{error{errc::shutdown, "the engine shut down before the answer was complete", {}, 0}});
    });
  });
  shutdown_->add("stop actors", [self = shared_from_this()](auto finished) {
    self->stage_ = stage::over;
    self->system.when_empty(std::move(finished));
    self->system.stop_all();
  });
  shutdown_->run(
      limit + shutdown_grace, [weak = weak_from_this(), ex = tracked(executor),
                               d = std::move(done)](const runtime::shutdown_report& report) mutable {
        if (auto self = weak.lock())
          self->fail_everything(
              {errc::shutdown, "the engine shut down before the answer was complete", {}, 0});
        result<void> outcome;
        if (!report.clean) outcome = error{errc::internal, "shutdown is not clean: " + report.text(), {}, 0};
        complete(ex, std::move(d), std::move(outcome));
      });
}

void engine_state::abandon() {
  stage_ = stage::over;
  fail_everything({errc::shutdown, "the engine was destroyed", {}, 0});
  system.stop_all();
}

// ---- statistics
// ------------------------------------------------------------------------------------------------

void engine_state::scheduler_changed(const actors::scheduler_stats& now) {
  const std::lock_guard lock(stats_mutex_);
  scheduler_stats_ = now;
}

void engine_state::cache_changed(const actors::kv_level& level) {
  const std::lock_guard lock(stats_mutex_);
  kv_level_ = level;
}

namespace {

template<class Latency>
histogram to_histogram(const Latency& from) {
  histogram out;
  out.counts = from.counts;
  out.sum = from.sum;
  return out;
}

} // namespace

engine_stats engine_state::stats() const {
  engine_stats out;
  const stage now = stage_.load();
  out.ready = now == stage::ready;
  out.draining = now == stage::draining;
  const std::lock_guard lock(stats_mutex_);
  out.kv_total = kv_level_.total;
  out.kv_free = kv_level_.free;
  out.kv_leased = kv_level_.leased;
  out.kv_limbo = kv_level_.limbo;
  out.kv_cached = kv_level_.cached;
  const actors::scheduler_stats& s = scheduler_stats_;
  out.running = s.running;
  out.waiting = s.waiting;
  out.paused = s.paused;
  out.steps = s.steps;
  out.prefill_tokens = s.prefill_tokens;
  out.decode_tokens = s.decode_tokens;
  out.preemptions = s.preemptions;
  out.recomputed_tokens = s.recomputed_tokens;
  out.step_rows_max = s.step_rows_max;
  out.step_sequences_max = s.step_sequences_max;
  out.last_step_rows = s.last_step_rows;
  out.last_step_sequences = s.last_step_sequences;
  out.submitted = s.submitted;
  out.finished_stop = s.finished_stop;
  out.finished_length = s.finished_length;
  out.cancelled = s.cancelled;
  out.time_to_first_token = to_histogram(s.time_to_first_token);
  out.time_per_output_token = to_histogram(s.time_per_output_token);
  out.step_time = to_histogram(s.step_time);
  out.queue_time = to_histogram(s.queue_time);
  auto failures = door_failures_;
  for (std::size_t i = 0; i < s.failed.size(); ++i)
    if (s.failed[i] > 0) failures[static_cast<errc>(i)] += s.failed[i];
  for (const auto& [code, count] : failures) out.failed.emplace_back(code, count);
  for (const auto& [code, count] : door_failures_) out.submitted += count;
  return out;
}

} // namespace troupe::detail
