// SPDX-License-Identifier: Apache-2.0
// Records one request of a simulated run for the runtime's sequence diagram.
#pragma once

#include "runtime/trace_ring.hpp"
#include "sim/simulation.hpp"

#include <map>
#include <string>

namespace troupe::sim {

/// Keeps what names the request, and the step messages that carry it.
class diagram_recorder final : public recorder {
 public:
  explicit diagram_recorder(std::uint64_t request) : request_(request) {}
  void delivered(const delivery& d, time_point now) override;
  void noted(party at, std::string_view what, std::uint64_t request, time_point now) override;
  std::string text() const;

 private:
  runtime::actor_trace& ring(party of);

  std::uint64_t request_;
  std::uint32_t sequence_ = 0;
  std::map<party, runtime::actor_trace> rings_;
};

} // namespace troupe::sim
