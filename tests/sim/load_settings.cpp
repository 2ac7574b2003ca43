// SPDX-License-Identifier: Apache-2.0
// Settings by the names that docs/config.md has for them, without "engine.".
#include "sim/load_workload.hpp"

#include "runtime/clock.hpp"

#include <charconv>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>

namespace troupe::sim {
namespace {

using runtime::duration;

/// A setting as a number.
struct knob {
  std::string_view name;
  double least, most;
  std::function<double(const load_settings&)> get;
  std::function<void(load_settings&, double)> put;
};

template<class Field>
knob number(std::string_view name, double least, double most, Field field) {
  return {
      name, least, most,
      [field](const load_settings& s) {
        return static_cast<double>(std::invoke(field, const_cast<load_settings&>(s)));
      },
      [field](load_settings& s, double x) {
        auto& member = std::invoke(field, s);
        member = static_cast<std::remove_reference_t<decltype(member)>>(x);
      }};
}

constexpr double ms_of(duration d) noexcept {
  return std::chrono::duration<double, std::milli>(d).count();
}
duration from_ms(double ms) noexcept {
  return std::chrono::duration_cast<duration>(std::chrono::duration<double, std::milli>(ms));
}

template<class Field>
knob milliseconds(std::string_view name, Field field) {
  return {
      name, 0, 86'400'000,
      [field](const load_settings& s) { return ms_of(std::invoke(field, const_cast<load_settings&>(s))); },
      [field](load_settings& s, double x) { std::invoke(field, s) = from_ms(x); }};
}

#define TROUPE_OPTION(member)                                                                                \
  [](load_settings & s) -> auto& {                                                                           \
    return s.options.member;                                                                                 \
  }
#define TROUPE_MACHINE(member)                                                                               \
  [](load_settings & s) -> auto& {                                                                           \
    return s.member;                                                                                         \
  }

const std::vector<knob>& knobs() {
  constexpr double many = 1e9;
  static const std::vector<knob> all{
      number("kv_blocks", 1, many, TROUPE_MACHINE(kv_blocks)),
      number("block_tokens", 1, 1024, TROUPE_MACHINE(block_tokens)),
      number("max_context", 2, many, TROUPE_MACHINE(context)),
      number("max_batch", 1, 4096, TROUPE_OPTION(max_batch)),
      number("max_step_tokens", 1, 65536, TROUPE_OPTION(max_step_tokens)),
      number("least_prefill_rows", 1, 65536, TROUPE_OPTION(least_prefill_rows)),
      milliseconds("max_wait_ms", TROUPE_OPTION(max_wait)),
      number("max_queue", 0, many, TROUPE_OPTION(max_queue)),
      number("max_queue_bytes", 0, 1e15, TROUPE_OPTION(max_queue_bytes)),
      milliseconds("queue_timeout_ms", TROUPE_OPTION(queue_timeout)),
      number("kv_high_watermark", 0.01, 10, TROUPE_OPTION(kv_high_watermark)),
      number("kv_low_watermark", 0.01, 10, TROUPE_OPTION(kv_low_watermark)),
      number("compute_low_watermark", 0.01, 10, TROUPE_OPTION(compute_low_watermark)),
      number("hysteresis", 0, 1, TROUPE_OPTION(hysteresis)),
      number("low_priority", 0, 10, TROUPE_OPTION(low_priority)),
      milliseconds("ageing_quantum_ms", TROUPE_OPTION(ageing_quantum)),
      milliseconds("ttft_goal_ms", TROUPE_OPTION(ttft_goal)),
      {"tpot_goal_ms", 0, 86'400'000, [](const load_settings& s) { return ms_of(s.options.tpot_goals[5]); },
       [](load_settings& s, double x) { s.options.tpot_goals.fill(from_ms(x)); }},
      number("prefix_cache", 0, 1, TROUPE_OPTION(prefix_cache)),
      number("tenant_requests_per_second", 0, many, TROUPE_OPTION(tenants.requests_per_second)),
      number("tenant_request_burst", 1, many, TROUPE_OPTION(tenants.request_burst)),
      number("tenant_tokens_per_second", 0, many, TROUPE_OPTION(tenants.tokens_per_second)),
      number("tenant_token_burst", 1, many, TROUPE_OPTION(tenants.token_burst)),
      number("tenant_max_requests", 0, many, TROUPE_OPTION(tenants.max_live)),
      {"slow_consumer_ms", 1, 86'400'000, [](const load_settings& s) { return 1000 * s.slow_consumer_s; },
       [](load_settings& s, double x) { s.slow_consumer_s = x / 1000; }},
  };
  return all;
}

} // namespace

void set(load_settings& s, std::string_view name, std::string_view value) {
  for (const knob& k : knobs()) {
    if (k.name != name) continue;
    double x = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), x);
    if (error != std::errc{} || end != value.data() + value.size() || !(x >= k.least && x <= k.most))
      throw std::runtime_error(
          std::string(name) + " takes a number from " + std::to_string(std::llround(k.least)) + " to " +
          std::to_string(std::llround(k.most)) + ", not \"" + std::string(value) + "\"");
    k.put(s, x);
    return;
  }
  throw std::runtime_error("there is no setting \"" + std::string(name) + "\"");
}

std::vector<std::pair<std::string, std::string>> list_settings(const load_settings& s) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const knob& k : knobs()) {
    std::string text = std::to_string(k.get(s));
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
    all.emplace_back(k.name, text);
  }
  return all;
}

} // namespace troupe::sim
