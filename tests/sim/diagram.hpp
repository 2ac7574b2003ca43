// SPDX-License-Identifier: Apache-2.0
// Records a simulated run for the runtime's sequence diagram.
#pragma once

#include "runtime/trace_ring.hpp"
#include "sim/simulation.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace troupe::sim {

/// Keeps what names the request, and the step messages that carry it; all messages when `request` is 0.
class diagram_recorder final : public recorder {
 public:
  /// Of more than `most_messages` the last are kept.
  explicit diagram_recorder(std::uint64_t request, std::size_t most_messages = SIZE_MAX) :
      request_(request), most_messages_(most_messages) {}
  void delivered(const delivery& d, time_point now) override;
  void noted(party at, std::string_view what, std::uint64_t request, time_point now) override;
  std::string text() const;

 private:
  void keep(party from, party to, runtime::trace_record r);

  struct kept {
    party from = 0, to = 0; // the same for a note
    runtime::trace_record record;
  };
  std::uint64_t request_;
  std::size_t most_messages_;
  std::uint32_t sequence_ = 0;
  std::deque<kept> messages_; // oldest first
};

} // namespace troupe::sim
