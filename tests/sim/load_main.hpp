// SPDX-License-Identifier: Apache-2.0
// troupe-sim --workload: curves of throughput and latency.
#pragma once

namespace troupe::sim {

/// Whether these arguments ask for it.
bool asks_for_load(int argc, char** argv) noexcept;
/// The exit status: 1 when a bound was not kept, 2 for wrong usage.
int load_main(int argc, char** argv);
extern const char load_usage[];

} // namespace troupe::sim
