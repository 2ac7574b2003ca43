// SPDX-License-Identifier: Apache-2.0
// The whole way a client goes, simulated: bytes over an in-memory connection, the real protocol cores, the
// real engine and its actors on a seeded executor, and a stand-in for the model.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace troupe::sim {

struct door_outcome {
  std::string failure;      ///< empty: every oracle held
  std::uint64_t events = 0; ///< tasks, timers and transfers
  std::uint64_t hash = 0;   ///< of all bytes in their order: equal for equal runs
  std::uint32_t asked = 0;  ///< right requests on connections that lived
  std::uint32_t finished = 0, refused = 0, cut = 0;
  std::map<std::string, std::uint32_t> codes; ///< of the refused
  std::string diagram; ///< of the request that broke an oracle, if it is still in the traces; if none did,
                       ///< but something else failed, of the oldest that is
};

/// One run. The same seed gives the same run.
/// Oracles, after every event: the KV pool's sum; no control message refused as full; every bound of
/// door_watch kept, in virtual time. At every failure: its cause. At the end: each answer on the wire is the
/// one the request gets alone, or the engine's failure; exactly one terminal object per request of a
/// connection that lived; every block free, no request, session or actor left. When the shutdown is told: no
/// timer of the engine's left. A cancelled end only where the client cancelled.
door_outcome run_doors(std::uint64_t seed);

} // namespace troupe::sim
