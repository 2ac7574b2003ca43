// SPDX-License-Identifier: Apache-2.0
// Settings to engine options, field by field.
#include "cli/engine_settings.hpp"

#include "cli/catalogue.hpp"
#include "config/property.hpp"
#include "runtime/base/log.hpp"

#include <cstdio>
#include <filesystem>
#include <unistd.h>

namespace troupe::cli {
namespace {

void make_trace_dir(const std::string& dir) {
  if (dir.empty()) return;
  std::error_code code;
  std::filesystem::create_directories(dir, code);
  if (code || access(dir.c_str(), W_OK) != 0)
    throw failure(errc::io, "--trace-dir " + dir + ": cannot be written; give a folder that can");
}

} // namespace

void copy_engine_settings(const config::settings& all, engine_options& out) {
  const auto& from = all.engine;
  out.isa = from.isa;
  out.reference = from.reference;
  out.threads = from.threads;
  out.kv_memory_bytes = from.kv_memory;
  out.max_batch = from.max_batch;
  out.max_step_tokens = from.max_step_tokens;
  out.max_wait_ms = from.max_wait_ms;
  out.max_queue = from.max_queue;
  out.max_context = from.max_context;
  out.stream_credit = from.stream_credit;
  out.slow_consumer_ms = from.slow_consumer_ms;
  out.queue_timeout_ms = from.queue_timeout_ms;
  out.kv_high_watermark = from.kv_high_watermark;
  out.kv_low_watermark = from.kv_low_watermark;
  out.compute_low_watermark = from.compute_low_watermark;
  out.max_queue_bytes = from.max_queue_bytes;
  out.tpot_goals_ms = config::parse_by_priority(from.tpot_goal_ms).value(); // checked with the settings
  out.ttft_goal_ms = from.ttft_goal_ms;
  out.tenant_max_live = from.tenant_max_live;
  out.tenant_requests_per_second = from.tenant_requests_per_second;
  out.tenant_request_burst = from.tenant_request_burst;
  out.tenant_tokens_per_second = from.tenant_tokens_per_second;
  out.tenant_token_burst = from.tenant_token_burst;
  out.memory_interval_ms = from.memory_interval_ms;
  out.memory_high_watermark = from.memory_high_watermark;
  out.memory_low_watermark = from.memory_low_watermark;
  out.prefix_cache = from.prefix_cache;
  out.preempt_every = from.preempt_every;
  out.park_ram_bytes = from.park_ram_bytes;
  out.park_disk_bytes = from.park_disk_bytes;
  out.park_folder = from.park_folder;
  out.park_always = from.park_always;
  out.trace_dir = from.trace_dir;
}

engine_options make_engine_options(const config::settings& all) {
  engine_options out;
  out.model_path = resolve_model(all.model.path);
  out.model_name = all.model.name;
  // Asked for by its catalogue name, a model keeps that name.
  if (out.model_name.empty() && out.model_path != all.model.path) out.model_name = all.model.path;
  copy_engine_settings(all, out);
  make_trace_dir(out.trace_dir);
  return out;
}

void tell_loading(std::string_view line) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

void apply_log_level(const config::settings& all) {
  log().set_level(spdlog::level::from_str(all.log.level));
}

} // namespace troupe::cli
