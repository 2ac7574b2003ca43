// SPDX-License-Identifier: Apache-2.0
// Where messages end that were accepted but never handled, or could not be sent: counted for ever, the last
// ones kept.
#pragma once

#include "runtime/clock.hpp"
#include "runtime/protocol.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace troupe::runtime {

enum class dead_reason : std::uint8_t {
  crashed,  ///< its handler threw; it is never retried
  stopped,  ///< still queued when the receiver stopped
  full,     ///< refused: the class was at its bound
  closed,   ///< refused: the receiver was gone
  draining, ///< refused: the receiver takes no new work
};
std::string_view reason_name(dead_reason r) noexcept;

struct dead_letter {
  time_point when{};
  std::string_view actor;   // protocol name of the receiver
  std::string_view message; // type name
  message_class kind = message_class::control;
  dead_reason reason = dead_reason::crashed;
  std::uint64_t request = 0; // 0 = none
};

/// Thread: any. Never on a message's normal path.
class dead_letters {
 public:
  static constexpr std::size_t kept = 256;
  using key = std::tuple<std::string_view, message_class, dead_reason>; // {actor, class, reason}

  /// True when it is the first of its {actor, class, reason}.
  bool add(const dead_letter& letter) noexcept;
  /// The last `kept` letters, oldest first.
  std::vector<dead_letter> recent() const;
  std::map<key, std::uint64_t> counts() const;
  /// All letters of one class and reason, over all actors.
  std::uint64_t count(message_class kind, dead_reason reason) const;

 private:
  mutable std::mutex mutex_;
  std::deque<dead_letter> recent_;
  std::map<key, std::uint64_t> counts_;
};

} // namespace troupe::runtime
