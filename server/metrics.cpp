// SPDX-License-Identifier: Apache-2.0
#include "server/metrics.hpp"

#include "server/door_context.hpp"
#include "troupe/engine.hpp"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <limits>

namespace troupe::server {
namespace {

namespace prom = prometheus;

struct sample {
  std::string_view label;
  std::string_view value;
  double number = 0;
  std::string_view second_label = {};
  std::string_view second_value = {};
};

constexpr std::array<std::string_view, 10> priority_names{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};

class exposition {
 public:
  explicit exposition(std::string_view model_name) : model_(model_name) {}

  void
  add(prom::MetricType type, std::string_view name, std::string_view help, std::span<const sample> samples) {
    prom::MetricFamily& family = start(type, name, help);
    for (const sample& s : samples) {
      prom::ClientMetric metric = labelled(name);
      if (!s.label.empty()) metric.label.push_back({std::string(s.label), std::string(s.value)});
      if (!s.second_label.empty())
        metric.label.push_back({std::string(s.second_label), std::string(s.second_value)});
      if (type == prom::MetricType::Counter)
        metric.counter.value = s.number;
      else
        metric.gauge.value = s.number;
      family.metric.push_back(std::move(metric));
    }
  }
  void counter(std::string_view name, std::string_view help, double number) {
    const sample one[] = {{{}, {}, number}};
    add(prom::MetricType::Counter, name, help, one);
  }
  void gauge(std::string_view name, std::string_view help, double number) {
    const sample one[] = {{{}, {}, number}};
    add(prom::MetricType::Gauge, name, help, one);
  }
  void latency(std::string_view name, std::string_view help, const histogram& h) {
    prom::ClientMetric metric = labelled(name);
    std::uint64_t cumulative = 0;
    for (std::size_t i = 0; i < h.counts.size(); ++i) {
      cumulative += h.counts[i];
      const double bound = i < h.bounds.size() ? h.bounds[i] : std::numeric_limits<double>::infinity();
      metric.histogram.bucket.push_back({cumulative, bound});
    }
    metric.histogram.sample_count = cumulative;
    metric.histogram.sample_sum = h.sum;
    start(prom::MetricType::Histogram, name, help).metric.push_back(std::move(metric));
  }

  std::string text() const { return prom::TextSerializer().Serialize(families_); }

 private:
  prom::MetricFamily& start(prom::MetricType type, std::string_view name, std::string_view help) {
    prom::MetricFamily family;
    family.name = name;
    family.help = help;
    family.type = type;
    families_.push_back(std::move(family));
    return families_.back();
  }
  // The names taken from elsewhere carry the label that goes with them.
  prom::ClientMetric labelled(std::string_view name) const {
    prom::ClientMetric metric;
    if (name.starts_with("vllm:")) metric.label.push_back({"model_name", model_});
    return metric;
  }

  std::string model_;
  std::vector<prom::MetricFamily> families_;
};

void add_memory(exposition& out, const engine_stats& e) {
  const double used = double{0} + e.kv_leased + e.kv_limbo;
  const sample states[] = {
      {"state", "free", double(e.kv_free)},
      {"state", "leased", double(e.kv_leased)},
      {"state", "limbo", double(e.kv_limbo)},
      {"state", "cached", double(e.kv_cached)}};
  out.add(
      prom::MetricType::Gauge, "troupe_kv_blocks", "KV cache blocks by state; they sum to the total", states);
  out.gauge("troupe_kv_blocks_total", "KV cache blocks", e.kv_total);
  out.gauge("troupe_kv_blocks_used", "KV cache blocks that requests hold (leased and limbo)", used);
  const double ratio = e.kv_total > 0 ? used / e.kv_total : 0;
  out.gauge("troupe_kv_usage_ratio", "Used KV cache blocks over all", ratio);
  out.gauge("vllm:kv_cache_usage_perc", "Used KV cache blocks over all, 0 to 1", ratio);
  out.gauge("vllm:gpu_cache_usage_perc", "Former name of vllm:kv_cache_usage_perc", ratio);
}

void add_process_memory(exposition& out, const memory_stats& m) {
  out.gauge("troupe_memory_resident_bytes", "Memory of the process when last looked at", double(m.resident));
  out.gauge("troupe_memory_limit_bytes", "What it may have; 0 before the first look", double(m.limit));
  out.gauge("troupe_memory_forecast_bytes", "What it was forecast to need at most", double(m.forecast));
  out.gauge(
      "troupe_memory_forecast_data_bytes", "Data it was forecast to need at most, as ulimit -d counts it",
      double(m.forecast_data));
  out.gauge("troupe_kv_memory_bytes", "Memory of all KV cache blocks", double(m.kv));
  const sample levels[] = {
      {"level", "normal", m.level == "normal" ? 1.0 : 0.0},
      {"level", "batch", m.level == "batch" ? 1.0 : 0.0},
      {"level", "cache", m.level == "cache" ? 1.0 : 0.0}};
  out.add(
      prom::MetricType::Gauge, "troupe_memory_level", "1 for what is given up for want of memory", levels);
  out.gauge("troupe_memory_batch_limit", "Sequences that may run at once", m.batch);
  const sample changes[] = {
      {"change", "batch_shrunk", double(m.batch_shrinks)},
      {"change", "cache_given_up", double(m.cache_shrinks)},
      {"change", "grown_back", double(m.recoveries)}};
  out.add(
      prom::MetricType::Counter, "troupe_memory_changes_total",
      "What was done as memory ran short or came back", changes);
  out.counter(
      "troupe_memory_forgotten_blocks_total", "Cached KV blocks given away for want of memory",
      double(m.forgotten_blocks));
  out.counter(
      "troupe_memory_discarded_bytes_total", "Memory of free KV blocks given back to the system",
      double(m.discarded));
}

void add_parking(exposition& out, const engine_stats& e) {
  const sample places[] = {
      {"place", "memory", double(e.park_memory)}, {"place", "disk", double(e.park_disk)}};
  out.add(
      prom::MetricType::Gauge, "troupe_parked_blocks",
      "KV blocks of preempted requests that are kept outside the KV cache", places);
  const sample most[] = {
      {"place", "memory", double(e.park_memory_total)}, {"place", "disk", double(e.park_disk_total)}};
  out.add(prom::MetricType::Gauge, "troupe_parked_blocks_limit", "Room for them", most);
  out.gauge("troupe_requests_parked", "Preempted requests whose KV blocks are kept", e.parked);
  out.counter("troupe_parks_total", "Preempted requests whose KV blocks were to be kept", e.parks);
  const sample ends[] = {
      {"end", "resumed", double(e.resumes)},
      {"end", "not_kept", double(e.parks_failed)},
      {"end", "lost", double(e.resumes_failed)},
      {"end", "dropped", double(e.parks_dropped)}};
  out.add(
      prom::MetricType::Counter, "troupe_parks_ended_total",
      "What became of them: went on, computed again, or ended first", ends);
  const sample bytes[] = {
      {"copy", "saved", double(e.park_saved_bytes)},
      {"copy", "loaded", double(e.park_loaded_bytes)},
      {"copy", "written", double(e.park_written_bytes)},
      {"copy", "read", double(e.park_read_bytes)}};
  out.add(
      prom::MetricType::Counter, "troupe_parked_bytes_total",
      "Copied away, back, to the disk and from the disk", bytes);
  const sample faults[] = {
      {"fault", "write", double(e.park_write_failures)},
      {"fault", "read", double(e.park_read_failures)},
      {"fault", "checksum", double(e.park_corrupt)}};
  out.add(
      prom::MetricType::Counter, "troupe_park_disk_faults_total",
      "What the disk did wrong; those requests were computed again", faults);
}

void add_requests(exposition& out, const engine_stats& e) {
  out.gauge("troupe_requests_running", "Requests that hold a place in the batch", e.running);
  out.gauge("troupe_requests_waiting", "Admitted requests that wait for a place", e.waiting);
  std::vector<sample> waiting;
  for (std::size_t p = 0; p < e.waiting_by_priority.size(); ++p)
    waiting.push_back({"priority", priority_names[p], double(e.waiting_by_priority[p])});
  out.add(
      prom::MetricType::Gauge, "troupe_requests_waiting_by_priority",
      "Requests that wait for a place, by priority", waiting);
  out.gauge("troupe_requests_paused", "Requests paused because their client does not read", e.paused);
  out.counter("troupe_requests_submitted_total", "Requests handed to the engine", e.submitted);
  const sample reasons[] = {
      {"reason", "stop", double(e.finished_stop)},
      {"reason", "length", double(e.finished_length)},
      {"reason", "cancelled", double(e.cancelled)}};
  out.add(
      prom::MetricType::Counter, "troupe_requests_finished_total", "Requests that ended with an answer",
      reasons);
  std::vector<sample> failed;
  for (const auto& [code, count] : e.failed) failed.push_back({"code", code_name(code), double(count)});
  out.add(
      prom::MetricType::Counter, "troupe_requests_failed_total", "Requests refused or broken, by code",
      failed);
  out.latency("troupe_queue_seconds", "From submission to the first step", e.queue_time);
  out.latency(
      "troupe_time_to_first_token_seconds", "From submission to the first token", e.time_to_first_token);
  out.latency("troupe_time_per_output_token_seconds", "Between tokens of a request", e.time_per_output_token);

  out.gauge("vllm:num_requests_running", "Requests that hold a place in the batch", e.running);
  out.gauge("vllm:num_requests_waiting", "Admitted requests that wait for a place", e.waiting);
  const sample success[] = {
      {"finished_reason", "stop", double(e.finished_stop)},
      {"finished_reason", "length", double(e.finished_length)},
      {"finished_reason", "abort", double(e.cancelled)}};
  out.add(
      prom::MetricType::Counter, "vllm:request_success_total", "Requests that ended with an answer", success);
  out.latency("vllm:request_queue_time_seconds", "From submission to the first step", e.queue_time);
  out.latency(
      "vllm:time_to_first_token_seconds", "From submission to the first token", e.time_to_first_token);
  out.latency("vllm:time_per_output_token_seconds", "Between tokens of a request", e.time_per_output_token);
  out.latency("vllm:inter_token_latency_seconds", "Between tokens of a request", e.time_per_output_token);
}

void add_steps(exposition& out, const engine_stats& e) {
  out.counter("troupe_steps_total", "Steps of the executor", e.steps);
  out.latency("troupe_step_seconds", "Duration of a step", e.step_time);
  const sample tokens[] = {
      {"kind", "prefill", double(e.prefill_tokens)}, {"kind", "decode", double(e.decode_tokens)}};
  out.add(prom::MetricType::Counter, "troupe_tokens_total", "Tokens computed", tokens);
  out.counter(
      "troupe_recomputed_tokens_total", "Tokens computed again after preemption", e.recomputed_tokens);
  out.counter(
      "troupe_prefix_asked_tokens_total", "Tokens of requests that began, or began anew",
      e.prefix_asked_tokens);
  out.counter(
      "troupe_prefix_found_tokens_total", "Of those, tokens whose KV blocks were there",
      e.prefix_found_tokens);
  out.counter(
      "troupe_prefix_copied_blocks_total",
      "KV blocks of which the first tokens were copied for a request that goes on otherwise",
      e.prefix_copied_blocks);
  out.counter("troupe_preemptions_total", "Running requests put back into the queue", e.preemptions);
  const sample decisions[] = {
      {"decision", "seat_yielded", double(e.seats_yielded)},
      {"decision", "displaced", double(e.displaced)},
      {"decision", "backfilled", double(e.backfilled)},
      {"decision", "waited_for_company", double(e.company_waits)},
      {"decision", "prompts_cut", double(e.cut_steps)}};
  out.add(
      prom::MetricType::Counter, "troupe_scheduler_decisions_total",
      "What the scheduler did to keep its goals, see docs/operations.md", decisions);
  const sample parts[] = {
      {"part", "step", e.step_seconds[0]},
      {"part", "decode_row", e.step_seconds[1]},
      {"part", "prefill_row", e.step_seconds[2]},
      {"part", "position", e.step_seconds[3]}};
  out.add(
      prom::MetricType::Gauge, "troupe_step_cost_seconds", "What a step's time is made of, as learnt", parts);
  out.gauge(
      "troupe_compute_use_ratio",
      "Sequences that want rows over those that meet the TPOT goal; 0 without one", e.compute_use);
  out.gauge("troupe_tenants", "Tenants with requests in hand or limits to wait off", e.tenants);
  out.gauge("troupe_step_rows_max", "Most rows in one step so far", e.step_rows_max);
  out.gauge("troupe_step_sequences_max", "Most sequences in one step so far", e.step_sequences_max);
  out.gauge("troupe_last_step_rows", "Rows of the latest step", e.last_step_rows);
  out.gauge("troupe_last_step_sequences", "Sequences of the latest step", e.last_step_sequences);
  out.counter("troupe_engine_restarts_total", "Times that the engine's actors were made anew", e.restarts);
  out.counter(
      "troupe_requests_carried_over_total", "Requests that went on after such a restart", e.carried_over);
  out.gauge("troupe_ready", "1 when requests are taken", e.ready ? 1 : 0);
  out.gauge("troupe_draining", "1 when shutting down", e.draining ? 1 : 0);

  out.counter("vllm:prompt_tokens_total", "Prompt tokens computed", e.prefill_tokens);
  out.counter("vllm:generation_tokens_total", "Tokens generated", e.decode_tokens);
  out.counter("vllm:prefix_cache_queries_total", "Tokens looked up", e.prefix_asked_tokens);
  out.counter("vllm:prefix_cache_hits_total", "Tokens found", e.prefix_found_tokens);
  out.counter("vllm:num_preemptions_total", "Running requests put back into the queue", e.preemptions);
}

void add_messages(exposition& out, const engine_stats& e) {
  std::vector<sample> lost;
  for (const lost_messages& one : e.dead_letters)
    lost.push_back({"class", one.message_class, double(one.count), "reason", one.reason});
  out.add(
      prom::MetricType::Counter, "troupe_dead_letters_total",
      "Messages between actors that nobody handled, by class and reason", lost);
}

void add_doors(exposition& out, const door_counters& d) {
  out.gauge("troupe_connections_open", "Connections of all doors", d.connections_open);
  out.gauge("troupe_buffered_bytes", "Input and output that the sessions hold", double(d.buffered_bytes));
  out.counter("troupe_connections_accepted_total", "Connections taken", d.connections_accepted);
  out.counter(
      "troupe_connections_refused_total", "Connections closed at once, over the cap", d.connections_refused);
  out.counter("troupe_slow_consumers_total", "Connections cut because they did not read", d.slow_consumers);
  out.counter(
      "troupe_protocol_errors_total", "Connections ended because the peer broke a protocol",
      d.protocol_errors);
  out.counter("troupe_object_messages_total", "Objects received on WebSocket and TCP", d.object_messages);
  std::vector<std::string> names;
  names.reserve(d.http_responses.size());
  std::vector<sample> responses;
  for (const auto& [status, count] : d.http_responses) {
    names.push_back(std::to_string(status));
    responses.push_back({"status", names.back(), double(count)});
  }
  out.add(prom::MetricType::Counter, "troupe_http_responses_total", "HTTP responses by status", responses);
}

} // namespace

std::string
metrics_text(const engine_stats& engine, const door_counters& doors, std::string_view model_name) {
  exposition out(model_name);
  add_memory(out, engine);
  add_process_memory(out, engine.memory);
  add_parking(out, engine);
  add_requests(out, engine);
  add_steps(out, engine);
  add_messages(out, engine);
  add_doors(out, doors);
  return out.text();
}

} // namespace troupe::server
