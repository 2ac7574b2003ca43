// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_state.hpp"

#include "actors/cache_actor.hpp"
#include "actors/executor_actor.hpp"
#include "actors/guard_actor.hpp"
#include "actors/park_actor.hpp"
#include "actors/scheduler_actor.hpp"
#include "engine/contained.hpp"
#include "runtime/compute_pool.hpp"
#include "runtime/mailbox.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

#include <algorithm>
#include <random>

namespace troupe::detail {
namespace {

namespace asio = boost::asio;

result<void> check_options(const engine_options& o, std::uint32_t door_slack) {
  const auto wrong = [](std::string text, std::string param) {
    return error{errc::bad_config, std::move(text), std::move(param), 0};
  };
  if (o.max_batch == 0) return wrong("max-batch is 0, at least 1 is needed", "max_batch");
  if (o.max_step_tokens == 0) return wrong("max-step-tokens is 0, at least 1 is needed", "max_step_tokens");
  if (o.park_disk_bytes > 0 && o.park_ram_bytes == 0)
    return wrong(
        "park-disk is for what park-ram has no room for, and park-ram is 0: give both, or no park-disk",
        "park_disk_bytes");
  // Every live request has its slots in the scheduler's mailbox.
  constexpr std::uint64_t most =
      (runtime::most_mailbox_messages - actors::scheduler_slots) / actors::scheduler_slots_per_request;
  const std::uint64_t live = std::uint64_t{o.max_batch} + o.max_queue + door_slack;
  if (live > most)
    return wrong(
        "max-queue is " + std::to_string(o.max_queue) + " and max-batch " + std::to_string(o.max_batch) +
            ", together at most " + std::to_string(most - door_slack) + " are allowed",
        "max_queue");
  return {};
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
  e.make_park_worker = [] {
    auto worker = std::make_shared<asio::thread_pool>(1);
    return std::pair<asio::any_io_executor, std::shared_ptr<void>>(worker->get_executor(), worker);
  };
  e.load = load_model_host;
  e.read_memory = [] { return read_memory_sample(); };
  e.seed = std::random_device{}();
  return e;
}

engine_state::engine_state(asio::any_io_executor ex, engine_options given, engine_environment around) :
    executor(std::move(ex)), options(std::move(given)), environment(std::move(around)),
    system(*environment.clock, *environment.timers),
    restarts_(runtime::restart_strategy::one_for_one, {}, environment.seed), most_queue_(options.max_queue),
    memory_({options.max_batch, options.memory_high_watermark, options.memory_low_watermark}) {
  memory_stats_.batch = options.max_batch;
}

/// An executor that is gone runs no `abandon`; the background is joined next, and must not load on.
engine_state::~engine_state() {
  loading_.request_stop();
}

std::uint32_t engine_state::most_live() const noexcept {
  return options.max_batch + most_queue_ + environment.door_slack;
}

void engine_state::cancel_timer(runtime::timer_handle& timer) noexcept {
  if (timer) environment.timers->cancel(timer);
  timer = {};
}

// ---- start ----

void engine_state::start(start_handler done, std::uint64_t number) {
  stage expected = stage::new_made;
  if (!stage_.compare_exchange_strong(expected, stage::loading)) {
    complete(
        executor, std::move(done),
        result<void>(error{errc::internal, "the engine was started before", {}, 0}));
    return;
  }
  on_start_.emplace(waiting_handler{std::move(done), tracked(executor), number});
  if (auto checked = check_options(options, environment.door_slack); !checked) return loaded(checked.error());
  // The job holds no strong reference: the engine must never be destroyed on its own text thread.
  asio::post(
      environment.background, [weak = weak_from_this(), ex = tracked(executor), o = options,
                               load = environment.load, stop = loading_.get_token()] {
        auto what = contained("loading the model", [&] { return load(o, stop); });
        asio::post(ex, [weak, w = std::move(what)]() mutable {
          if (auto self = weak.lock()) self->loaded(std::move(w));
        });
      });
}

void engine_state::loaded(host_result what) {
  if (stage_ == stage::over) { // shut down, or destroyed: then nobody waits any more
    answer_start(error{errc::shutdown, "the engine was shut down while it loaded", {}, 0});
    answer_shutdown({});
    return;
  }
  result<void> outcome;
  if (start_cancelled_) {
    outcome = error{errc::cancelled, "the start was cancelled", {}, 0};
  } else if (what) {
    host = std::move(*what);
    outcome = spawn_actors();
  } else
    outcome = what.error();
  if (!outcome) start_failure_ = outcome.error();
  // Nobody cancelled the requests, which would be an answer of its own.
  if (start_cancelled_) start_failure_->code = errc::shutdown;
  stage_ = outcome ? stage::ready : stage::failed;
  answer_start(std::move(outcome));
}

/// The start ends when its loading has: nothing of it is left then.
void engine_state::cancel_start(std::uint64_t number) {
  if (stage_ != stage::loading || !on_start_ || on_start_->number != number) return;
  start_cancelled_ = true;
  loading_.request_stop();
}

void engine_state::answer_start(result<void> outcome) {
  if (!on_start_) return;
  waiting_handler waiting = std::move(*on_start_);
  on_start_.reset();
  complete(executor, std::move(waiting.handler), std::move(outcome));
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

/// All of the engine's actors, or none. The requests that there are keep the cast that they know.
result<void> engine_state::spawn_actors() {
  if (!cast_) cast_ = std::make_shared<actors::cast>();
  cast_->listener = this;
  cast_->generation = generation_;
  cast_->in_step.reserve(options.max_batch); // so that a step that is launched needs no memory for it
  auto spawned = spawn_cast();
  if (spawned)
    crashed_ = false;
  else
    stop_cast();
  return spawned;
}

result<void> engine_state::spawn_cast() {
  const std::uint32_t blocks = host->memory.kv_blocks;
  const auto slots = [live = most_live()](std::uint32_t per_request, std::uint32_t together) {
    return per_request * live + together;
  };
  auto guard =
      runtime::spawn<actors::guard_actor>(system, executor, engine_actor(actors::guard_slots, 0), cast_);
  if (!guard) return guard.error();
  cast_->guard = *guard;
  ++engine_actors_;
  auto cache = runtime::spawn<actors::cache_actor>(
      system, executor, engine_actor(slots(actors::cache_slots_per_request, actors::cache_slots), 0),
      actors::pool_key{}, blocks, host->kv_groups, cast_);
  if (!cache) return cache.error();
  cast_->cache = *cache;
  ++engine_actors_;
  auto scheduler = runtime::spawn<actors::scheduler_actor>(
      system, executor,
      engine_actor(slots(actors::scheduler_slots_per_request, actors::scheduler_slots), most_live()),
      scheduler_options_of(options), cast_);
  if (!scheduler) return scheduler.error();
  cast_->scheduler = *scheduler;
  ++engine_actors_;
  auto runner = runtime::spawn<actors::executor_actor>(
      system, executor, engine_actor(slots(actors::executor_slots_per_request, actors::executor_slots), 0),
      host->backend, host->program, cast_);
  if (!runner) return runner.error();
  cast_->executor = *runner;
  ++engine_actors_;
  if (auto parker = spawn_parker(); !parker) return parker;

  actors::model_ready facts;
  facts.kv_blocks = blocks;
  facts.block_tokens = host->kv_groups.block_tokens();
  facts.windows = host->kv_groups.windows();
  facts.context = host->context;
  facts.end_of_sequence = host->info.end_of_sequence;
  facts.reach_border = host->program->reach_border();
  if (host->park) {
    const actors::park_limits park = host->park->limits();
    facts.park_blocks = park.memory_blocks;
    facts.parking_room = {park.memory_blocks, park.disk_blocks, park.costs};
  }
  if (cast_->scheduler.tell(std::move(facts)) != runtime::enqueue_result::ok)
    return error{errc::internal, "the scheduler took no mail", {}, 0};
  if (memory_.step() > 0) order_memory(); // a new scheduler knows of no shortage
  return {};
}

result<void> engine_state::spawn_parker() {
  if (!host->park) return {};
  try {
    if (!park_worker_.first) park_worker_ = environment.make_park_worker();
  } catch (const std::exception& e) { // of its thread
    return error{errc::no_memory, runtime::describe_thread_failure(e), {}, 0};
  }
  const std::uint32_t control = actors::park_slots_per_request * most_live() + actors::park_slots;
  // Its jobs keep the whole host: the backend alone must not outlive the weights of its running step.
  auto parker = runtime::spawn<actors::park_actor>(
      system, executor, engine_actor(control, 0), host->park,
      std::shared_ptr<kernels::backend>(host, host->backend.get()), park_worker_.first, cast_);
  if (!parker) return parker.error();
  cast_->parker = *parker;
  ++engine_actors_;
  const std::lock_guard lock(stats_mutex_);
  park_block_bytes_ = host->park->block_bytes();
  return {};
}

void engine_state::stop_cast() {
  cast_->guard.stop();
  cast_->cache.stop();
  cast_->scheduler.stop();
  cast_->executor.stop();
  cast_->parker.stop();
}

} // namespace troupe::detail
