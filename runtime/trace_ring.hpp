// SPDX-License-Identifier: Apache-2.0
// The always-on flight recorder of one actor, and the merge that prints one request as a sequence diagram.
#pragma once

#include "runtime/clock.hpp"
#include "runtime/protocol.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::runtime {

enum class trace_event : std::uint8_t {
  spawned,
  sent,     ///< by the ring's actor to `peer`
  refused,  ///< sent, but the receiver was full, closed or draining (`extra` is the enqueue_result)
  received, ///< the handler starts; `peer` is the sender
  crashed,  ///< the handler of this message threw
  note,     ///< written by the actor itself
  restarted,
  stopped,
};
std::string_view event_name(trace_event e) noexcept;

/// One event, 32 bytes.
struct trace_record {
  std::int64_t time_ns = 0;
  std::uint64_t request = 0;  // 0 = belongs to no request
  std::uint32_t sequence = 0; // the sender's message count: pairs `sent` with `received`
  std::uint32_t peer = 0;     // actor id of the other side, 0 = a caller outside the actors
  std::uint32_t message = 0;  // message_id of the type
  trace_event event = trace_event::note;
  message_class kind = message_class::control;
  std::uint16_t extra = 0;
  friend bool operator==(const trace_record&, const trace_record&) = default;
};
static_assert(sizeof(trace_record) == 32);

/// Stable 32-bit id of a message type, the same in every process (FNV-1a of its name).
constexpr std::uint32_t message_id(std::string_view name) noexcept {
  std::uint32_t hash = 2166136261U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return hash;
}
/// Makes a name known to the printer; `name` must live for ever. Thread: any.
void register_message_name(std::string_view name);
/// The registered name, or "#xxxxxxxx". Thread: any.
std::string message_name(std::uint32_t id);

/// A fixed ring of the last records. Thread: one writer at a time (the running actor); any may take a
/// snapshot while it writes. Never blocks, never allocates after construction.
class trace_ring {
 public:
  static constexpr std::uint32_t default_records = 4096;
  /// Keeps the last `records` events, rounded up to a power of two, at least 16.
  explicit trace_ring(std::uint32_t records = default_records);

  void write(const trace_record& record) noexcept;
  /// Oldest first; records overwritten during the copy are left out, never torn.
  std::vector<trace_record> snapshot() const;
  /// Records written since the start.
  std::uint64_t written() const noexcept { return head_.load(std::memory_order_acquire); }
  std::uint64_t capacity() const noexcept { return mask_ + 1; }

 private:
  using cell = std::array<std::atomic<std::uint64_t>, 4>; // one record as four words
  std::uint64_t mask_;
  std::unique_ptr<cell[]> cells_;
  std::atomic<std::uint64_t> head_{0};
};

/// The records of one actor, live or gone.
struct actor_trace {
  std::uint32_t actor = 0;
  std::string name;
  std::vector<trace_record> records;
};

/// One request over all actors as text: one column per participant in order of appearance, time running down,
/// an arrow per message from sender to receiver with its time since the first event and its time in the
/// mailbox. Empty when no record names the request.
std::string sequence_diagram(std::span<const actor_trace> traces, std::uint64_t request);

} // namespace troupe::runtime
