// SPDX-License-Identifier: Apache-2.0
// What changes while the engine serves: live settings, and what is given up when memory runs short.
#include "engine/engine_state.hpp"
#include "runtime/base/byte_text.hpp"
#include "runtime/base/log.hpp"

#include <chrono>
#include <memory>
#include <new>
#include <utility>

namespace troupe::detail {

actors::scheduler_options scheduler_options_of(const engine_options& o) {
  actors::scheduler_options s;
  s.max_batch = o.max_batch;
  s.max_step_tokens = o.max_step_tokens;
  s.max_wait = std::chrono::milliseconds(o.max_wait_ms);
  s.max_queue = o.max_queue;
  s.queue_timeout = std::chrono::milliseconds(o.queue_timeout_ms);
  s.kv_high_watermark = o.kv_high_watermark;
  s.kv_low_watermark = o.kv_low_watermark;
  s.compute_low_watermark = o.compute_low_watermark;
  s.max_queue_bytes = o.max_queue_bytes;
  for (std::size_t i = 0; i < s.tpot_goals.size(); ++i)
    s.tpot_goals[i] = std::chrono::milliseconds(o.tpot_goals_ms[i]);
  s.ttft_goal = std::chrono::milliseconds(o.ttft_goal_ms);
  s.tenants.max_live = o.tenant_max_live;
  s.tenants.requests_per_second = o.tenant_requests_per_second;
  s.tenants.request_burst = o.tenant_request_burst;
  s.tenants.tokens_per_second = o.tenant_tokens_per_second;
  s.tenants.token_burst = o.tenant_token_burst;
  s.prefix_cache = o.prefix_cache;
  s.preempt_every = o.preempt_every;
  if (o.park_always) s.park = actors::park_choice::always;
  return s;
}

/// The queue cannot grow beyond the mailboxes, which were made for that of the start.
result<void> engine_state::reconfigure(const engine_options& wanted) {
  if (wanted.max_queue > most_queue_)
    return error{
        errc::bad_config,
        "engine.max_queue cannot be raised to " + std::to_string(wanted.max_queue) +
            " while the server runs: it began with " + std::to_string(most_queue_) + "; restart to raise it",
        "max_queue", 0};
  options.max_wait_ms = wanted.max_wait_ms;
  options.max_queue = wanted.max_queue;
  options.max_queue_bytes = wanted.max_queue_bytes;
  options.stream_credit = wanted.stream_credit;
  options.slow_consumer_ms = wanted.slow_consumer_ms;
  options.queue_timeout_ms = wanted.queue_timeout_ms;
  options.kv_high_watermark = wanted.kv_high_watermark;
  options.kv_low_watermark = wanted.kv_low_watermark;
  options.compute_low_watermark = wanted.compute_low_watermark;
  options.tpot_goals_ms = wanted.tpot_goals_ms;
  options.ttft_goal_ms = wanted.ttft_goal_ms;
  options.tenant_max_live = wanted.tenant_max_live;
  options.tenant_requests_per_second = wanted.tenant_requests_per_second;
  options.tenant_request_burst = wanted.tenant_request_burst;
  options.tenant_tokens_per_second = wanted.tenant_tokens_per_second;
  options.tenant_token_burst = wanted.tenant_token_burst;
  options.memory_interval_ms = wanted.memory_interval_ms;
  options.memory_high_watermark = wanted.memory_high_watermark;
  options.memory_low_watermark = wanted.memory_low_watermark;
  memory_.retune(options.memory_high_watermark, options.memory_low_watermark);
  cancel_timer(memory_timer_);
  if (options.memory_interval_ms == 0) stop_sparing();
  if (!live_.empty()) watch_memory();
  // One that is being made anew gets the options with its start.
  if (cast_)
    (void)cast_->scheduler.tell(
        actors::retune{std::make_shared<const actors::scheduler_options>(scheduler_options_of(options))});
  return {};
}

// ---- memory ----

/// A timer keeps the caller's executor busy, so there is one only while requests are in hand.
void engine_state::watch_memory() {
  if (memory_timer_ || !environment.read_memory || options.memory_interval_ms == 0) return;
  const std::chrono::milliseconds interval(options.memory_interval_ms);
  if (environment.clock->now() - memory_seen_ >= interval) look_at_memory();
  memory_timer_ = environment.timers->start(interval, [weak = weak_from_this()] {
    auto self = weak.lock();
    if (!self) return;
    self->memory_timer_ = {};
    if (!self->live_.empty()) self->watch_memory();
  });
}

void engine_state::look_at_memory() {
  memory_seen_ = environment.clock->now();
  memory_sample sample;
  try {
    sample = environment.read_memory();
  } catch (const std::bad_alloc&) { // as one that could not be read
  }
  const bool changed = memory_.observe(sample);
  publish_memory(sample);
  if (changed)
    log().log(
        sample.use() >= options.memory_high_watermark ? spdlog::level::warn : spdlog::level::info,
        "memory: {} of {} in use, {:.0f} %: no request begins while {} (of {}) or more run, {}",
        human_bytes(sample.resident), human_bytes(sample.limit()), 100 * sample.use(), memory_.batch(),
        options.max_batch,
        memory_.level() == memory_level::cache ? "no prefixes are kept" : "prefixes are kept");
  if (changed || memory_.step() > 0) order_memory();
}

void engine_state::publish_memory(const memory_sample& sample) {
  const std::lock_guard lock(stats_mutex_);
  memory_stats_.resident = sample.resident;
  memory_stats_.limit = sample.resident == 0 ? 0 : sample.limit();
  memory_stats_.level = name_of(memory_.level());
  memory_stats_.batch = memory_.batch();
  memory_stats_.batch_shrinks = memory_.batch_shrinks();
  memory_stats_.cache_shrinks = memory_.cache_shrinks();
  memory_stats_.recoveries = memory_.recoveries();
}

/// The watch is turned off: what was given up comes back, for nobody would bring it back later.
void engine_state::stop_sparing() {
  const bool spared = memory_.step() > 0;
  memory_.let_be();
  publish_memory({});
  if (!spared || !cast_) return;
  (void)cast_->scheduler.tell(actors::limit_batch{memory_.batch()});
  (void)cast_->cache.tell(actors::spare_memory{false});
}

/// The latest order counts. While memory is short each look sends more free blocks' memory back.
void engine_state::order_memory() {
  (void)cast_->scheduler.tell(actors::limit_batch{memory_.batch()});
  if (memory_.step() > 0)
    (void)cast_->cache.tell(actors::spare_memory{memory_.level() == memory_level::cache});
}

void engine_state::discard(std::span<const actors::block_id> blocks, std::uint32_t forgotten) {
  const std::uint64_t bytes = host->backend->discard(blocks);
  const std::lock_guard lock(stats_mutex_);
  memory_stats_.discarded += bytes;
  memory_stats_.forgotten_blocks += forgotten;
}

} // namespace troupe::detail
