// SPDX-License-Identifier: Apache-2.0
// The Prometheus text of /metrics, from a snapshot of the engine's and the doors' counters.
#pragma once

#include <string>
#include <string_view>

namespace troupe {
struct engine_stats;
}

namespace troupe::server {

struct door_counters;

/// Own names begin with `troupe_`; the `vllm:` ones are the same numbers under the names that existing
/// dashboards and routers know. The label set is fixed: nothing a client sends becomes a label.
std::string metrics_text(const engine_stats& engine, const door_counters& doors, std::string_view model_name);

} // namespace troupe::server
