// SPDX-License-Identifier: Apache-2.0
#include "engine/load_watch.hpp"

#include "runtime/base/byte_text.hpp"
#include "runtime/base/log.hpp"
#include "runtime/memory_facts.hpp"

#include <algorithm>
#include <utility>

namespace troupe::detail {
namespace {

constexpr std::uint64_t slow_bytes = 1ULL << 30;

void tell_line(const load_watch& what, const std::string& line, bool always) {
  if (!what.tell && (always || what.file_bytes >= slow_bytes)) return log().info("{}", line);
  if (what.tell && what.file_bytes >= slow_bytes) what.tell(line);
}

error too_large(std::string message) {
  return error{errc::no_memory, std::move(message), "kv_memory", 0};
}

std::string
forecast_line(const load_watch& what, const models::load_forecast& needs, std::uint64_t available) {
  const std::uint32_t context = what.context > 0 ? std::min(what.context, needs.context) : needs.context;
  return "memory forecast: weights " + human_bytes(needs.weight_bytes) + ", KV " +
         human_bytes(needs.kv_position_bytes) + " per token, " +
         human_bytes(needs.kv_bytes(context, what.chunk)) + " for one sequence of " +
         std::to_string(context) + "; " + human_bytes(available) + " available";
}

/// Whether what the model will need is there.
result<void>
check_forecast(const load_watch& what, const models::load_forecast& needs, std::uint64_t available) {
  if (needs.weight_bytes > available)
    return too_large(
        what.path + ": " + human_bytes(needs.weight_bytes) + " of weights, " + human_bytes(available) +
        " of memory are available: use a smaller model");
  const std::uint64_t left = available - needs.weight_bytes;
  const std::string beside = "beside the weights (" + human_bytes(needs.weight_bytes) + ") " +
                             human_bytes(left) + " are available: ";
  if (what.kv_memory > left) // else the exact plan comes with the model
    return too_large(
        "kv-memory is " + human_bytes(what.kv_memory) + ", and " + beside +
        "lower it, or leave it out to have it chosen");
  const std::uint64_t kv_bytes = needs.kv_bytes(what.positions, what.positions);
  if (kv_bytes > left)
    return too_large(
        what.path + ": the KV cache of " + std::to_string(what.positions) + " tokens takes " +
        human_bytes(kv_bytes) + ", and " + beside + "use fewer tokens or a smaller model");
  return {};
}

} // namespace

void watch_loading(models::model_options& options, load_watch what) {
  options.progress = [what, next = std::uint64_t{1}](std::uint64_t done, std::uint64_t total) mutable {
    if (total == 0) return;
    const std::uint64_t tenth = done * 10 / total;
    if (tenth < next) return;
    next = tenth + 1;
    tell_line(what, "loading: " + std::to_string(tenth * 10) + " %", false);
  };
  options.forecast = [what = std::move(what)](const models::load_forecast& needs) {
    const runtime::memory_facts facts = runtime::read_memory_facts();
    const std::uint64_t available = std::min(facts.available(), facts.data_left);
    auto fits = check_forecast(what, needs, available);
    // A refusal has the numbers that count: one line tells all.
    if (fits) tell_line(what, forecast_line(what, needs, available), true);
    return fits;
  };
}

} // namespace troupe::detail
