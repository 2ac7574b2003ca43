// SPDX-License-Identifier: Apache-2.0
// The engine's statistics: how requests ended, and the scheduler's sums over its generations.
#include "engine/engine_state.hpp"

#include <algorithm>

namespace troupe::detail {

void engine_state::count_end(const stream_event& event) {
  const std::lock_guard lock(stats_mutex_);
  if (const auto* failed = std::get_if<failed_event>(&event))
    ++(failed->why.code == errc::cancelled ? ends_.cancelled : ends_.failed[failed->why.code]);
  if (const auto* done = std::get_if<done_event>(&event))
    ++(done->reason == finish_reason::stop     ? ends_.stop
       : done->reason == finish_reason::length ? ends_.length
                                               : ends_.cancelled);
}

void engine_state::scheduler_changed(const actors::scheduler_stats& now) {
  const std::lock_guard lock(stats_mutex_);
  scheduler_stats_ = now;
}

void engine_state::cache_changed(const actors::kv_level& level) {
  const std::lock_guard lock(stats_mutex_);
  kv_level_ = level;
}

void engine_state::park_changed(const actors::park_level& level) {
  const std::lock_guard lock(stats_mutex_);
  park_level_ = level;
}

namespace {

template<class Latency>
histogram to_histogram(const Latency& from) {
  histogram out;
  out.counts = from.counts;
  out.sum = from.sum;
  return out;
}

void add(actors::latency_histogram& to, const actors::latency_histogram& from) {
  for (std::size_t i = 0; i < to.counts.size(); ++i) to.counts[i] += from.counts[i];
  to.sum += from.sum;
}

/// Sums and maxima of an earlier generation joined to the figures of this one.
actors::scheduler_stats joined(const actors::scheduler_stats& earlier, actors::scheduler_stats now) {
  now.steps += earlier.steps;
  now.prefill_tokens += earlier.prefill_tokens;
  now.decode_tokens += earlier.decode_tokens;
  now.preemptions += earlier.preemptions;
  now.recomputed_tokens += earlier.recomputed_tokens;
  now.parks += earlier.parks;
  now.parks_failed += earlier.parks_failed;
  now.parks_dropped += earlier.parks_dropped + earlier.parked; // with the actors
  now.resumes += earlier.resumes;
  now.resumes_failed += earlier.resumes_failed;
  now.prefix_asked_tokens += earlier.prefix_asked_tokens;
  now.prefix_found_tokens += earlier.prefix_found_tokens;
  now.prefix_copied_blocks += earlier.prefix_copied_blocks;
  now.seats_yielded += earlier.seats_yielded;
  now.displaced += earlier.displaced;
  now.backfilled += earlier.backfilled;
  now.company_waits += earlier.company_waits;
  now.cut_steps += earlier.cut_steps;
  now.readmitted += earlier.readmitted;
  now.step_rows_max = std::max(now.step_rows_max, earlier.step_rows_max);
  now.step_sequences_max = std::max(now.step_sequences_max, earlier.step_sequences_max);
  add(now.time_to_first_token, earlier.time_to_first_token);
  add(now.time_per_output_token, earlier.time_per_output_token);
  add(now.step_time, earlier.step_time);
  add(now.queue_time, earlier.queue_time);
  return now;
}

actors::park_level joined(const actors::park_level& earlier, actors::park_level now) {
  now.saved += earlier.saved;
  now.loaded += earlier.loaded;
  now.written += earlier.written;
  now.read += earlier.read;
  now.write_failures += earlier.write_failures;
  now.read_failures += earlier.read_failures;
  now.corrupt += earlier.corrupt;
  return now;
}

} // namespace

/// The scheduler and the parker count from zero in each generation, and the ledger begins empty.
void engine_state::keep_sums() {
  const std::lock_guard lock(stats_mutex_);
  earlier_ = joined(earlier_, scheduler_stats_);
  scheduler_stats_ = {};
  park_earlier_ = joined(park_earlier_, park_level_);
  park_level_ = {};
  kv_level_ = {kv_level_.total, 0, 0, 0, kv_level_.total};
}

std::vector<lost_messages> engine_state::lost() const {
  using runtime::dead_reason, runtime::message_class;
  std::map<std::pair<message_class, dead_reason>, std::uint64_t> sums{
      {{message_class::control, dead_reason::full}, 0}};
  for (const auto& [key, count] : system.dead().counts())
    sums[{std::get<message_class>(key), std::get<dead_reason>(key)}] += count;
  std::vector<lost_messages> out;
  for (const auto& [what, count] : sums)
    out.push_back({runtime::class_name(what.first), runtime::reason_name(what.second), count});
  return out;
}

engine_stats engine_state::stats() const {
  engine_stats out;
  const stage now = stage_.load();
  out.ready = now == stage::ready && !crashed_;
  out.draining = now == stage::draining;
  out.submitted = submitted_;
  out.dead_letters = lost();
  const std::lock_guard lock(stats_mutex_);
  out.kv_total = kv_level_.total;
  out.kv_free = kv_level_.free;
  out.kv_leased = kv_level_.leased;
  out.kv_limbo = kv_level_.limbo;
  out.kv_cached = kv_level_.cached;
  out.memory = memory_stats_;
  if (out.ready || out.draining) {
    out.memory.forecast = host->memory.total();
    out.memory.forecast_data = host->memory.data;
    out.memory.kv = host->memory.kv;
  }
  const actors::park_level p = joined(park_earlier_, park_level_);
  const std::uint64_t block = park_block_bytes_;
  out.restarts = restarts_made_;
  out.park_memory = p.memory;
  out.park_memory_total = p.memory_total;
  out.park_disk = p.disk;
  out.park_disk_total = p.disk_total;
  out.park_saved_bytes = p.saved * block;
  out.park_loaded_bytes = p.loaded * block;
  out.park_written_bytes = p.written * block;
  out.park_read_bytes = p.read * block;
  out.park_write_failures = p.write_failures;
  out.park_read_failures = p.read_failures;
  out.park_corrupt = p.corrupt;
  out.finished_stop = ends_.stop;
  out.finished_length = ends_.length;
  out.cancelled = ends_.cancelled;
  out.failed.assign(ends_.failed.begin(), ends_.failed.end());
  const actors::scheduler_stats s = joined(earlier_, scheduler_stats_);
  out.carried_over = s.readmitted;
  out.running = s.running;
  out.waiting = s.waiting;
  out.paused = s.paused;
  out.steps = s.steps;
  out.prefill_tokens = s.prefill_tokens;
  out.decode_tokens = s.decode_tokens;
  out.preemptions = s.preemptions;
  out.recomputed_tokens = s.recomputed_tokens;
  out.prefix_asked_tokens = s.prefix_asked_tokens;
  out.prefix_found_tokens = s.prefix_found_tokens;
  out.prefix_copied_blocks = s.prefix_copied_blocks;
  out.parks = s.parks;
  out.parks_failed = s.parks_failed;
  out.parks_dropped = s.parks_dropped;
  out.resumes = s.resumes;
  out.resumes_failed = s.resumes_failed;
  out.parked = s.parked;
  out.waiting_by_priority = s.waiting_by_priority;
  out.seats_yielded = s.seats_yielded;
  out.displaced = s.displaced;
  out.backfilled = s.backfilled;
  out.company_waits = s.company_waits;
  out.cut_steps = s.cut_steps;
  out.compute_use = s.compute_use;
  out.step_seconds = s.step_seconds;
  out.tenants = s.tenants;
  out.step_rows_max = s.step_rows_max;
  out.step_sequences_max = s.step_sequences_max;
  out.last_step_rows = s.last_step_rows;
  out.last_step_sequences = s.last_step_sequences;
  out.time_to_first_token = to_histogram(s.time_to_first_token);
  out.time_per_output_token = to_histogram(s.time_per_output_token);
  out.step_time = to_histogram(s.step_time);
  out.queue_time = to_histogram(s.queue_time);
  return out;
}

} // namespace troupe::detail
