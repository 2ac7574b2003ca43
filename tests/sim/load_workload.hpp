// SPDX-License-Identifier: Apache-2.0
// Who sends what and when: crowds of clients, as text and by name.
#pragma once

#include "actors/scheduler_core.hpp"
#include "sim/load_law.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::sim {

/// Clients that are alike.
struct crowd {
  enum class arrival : std::uint8_t {
    poisson, ///< requests come whatever becomes of them
    bursts,  ///< as Poisson's, in phases; none between them
    closed,  ///< so many clients, each with one request at a time and a pause after it
  };
  std::string name;
  arrival arrives = arrival::poisson;
  double on_s = 1, off_s = 1; ///< mean lengths of a burst and of the time between two
  law think;                  ///< seconds
  double load = 1;            ///< its part of the row's load
  bool fixed = false;         ///< `load` is its own, whatever the row's is
  law prompt{law::shape::fixed, 128}, output{law::shape::fixed, 64}; ///< tokens
  std::uint32_t max_tokens = actors::no_limit;                       ///< as its requests say
  std::uint32_t priority_from = 5, priority_to = 5;
  std::uint32_t tenants = 0; ///< that it belongs to; 0: to the one that all others without one belong to
  std::uint32_t prefix_tokens = 0, prefixes = 1; ///< so many beginnings of so many tokens
  double cancels = 0;                            ///< share of requests
  law cancel_after{law::shape::exponential, 1};  ///< seconds
  double stalls = 0;                             ///< share of requests whose reader stops somewhere
  double read_s = 0;                             ///< time to read an event
  std::uint32_t credit = 256;
  double deadline_s = 0;   ///< 0: none
  std::uint32_t tries = 1; ///< of one request, each after its Retry-After
  double load_of(double row) const noexcept { return fixed ? load : load * row; }
};

/// The machine and the policies: what --set names.
struct load_settings {
  actors::scheduler_options options;
  std::uint32_t kv_blocks = 728, block_tokens = 32, context = 8192; ///< SmolLM2-135M with 512 MiB
  double slow_consumer_s = 30;
};
/// Throws std::runtime_error when there is no such setting or the value is none of its.
void set(load_settings& s, std::string_view name, std::string_view value);
/// Names that `set` takes, each with its value.
std::vector<std::pair<std::string, std::string>> list_settings(const load_settings& s);

struct workload {
  enum class axis : std::uint8_t {
    rate,     ///< requests a second
    clients,  ///< of closed crowds
    capacity, ///< requests a second, in parts of what is served when there are always more
  };
  std::string name, about;
  axis unit = axis::rate;
  std::vector<double> loads;           ///< rows of the curve
  double seconds = 120, warm_up = 0.2; ///< simulated; the share of it that is not measured
  /// Its crowds are tenants who always want more: in each such window they are served alike, in tokens. 0:
  /// not.
  double fair_window_s = 0;
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<crowd> crowds;
};

/// Lines `name = value` before the first `[crowd NAME]` are the workload's, then the crowd's; # begins a
/// comment. Throws std::runtime_error that names the line.
workload parse_workload(std::string_view name, std::string_view text);

/// Those that come with the program.
struct named_workload {
  std::string_view name, text;
};
const std::vector<named_workload>& named_workloads();
/// By name, else from the file of that name. Throws std::runtime_error.
workload find_workload(const std::string& name_or_file);

} // namespace troupe::sim
