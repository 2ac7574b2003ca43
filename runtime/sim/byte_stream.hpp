// SPDX-License-Identifier: Apache-2.0
// An in-memory connection for simulations: two byte pipes with latency, short writes, resets and stalled
// readers.
#pragma once

#include "runtime/clock.hpp"
#include "runtime/rng.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace troupe::runtime::sim {

enum class io_status : std::uint8_t {
  ok,          ///< `bytes` were moved
  would_block, ///< nothing now; see next_change
  eof,         ///< the other side has shut down its writing and all it wrote was read
  reset,       ///< the connection is gone, data in flight is lost
};
struct io_result {
  io_status status = io_status::ok;
  std::size_t bytes = 0;
};

struct pipe_faults {
  std::size_t capacity = 64 << 10; // bytes in flight and unread, as socket buffers bound them; at least 1
  duration latency_min{};          // each write arrives after a delay drawn from [min, max], in order
  duration latency_max{};
  double short_write = 0;                   // probability that a write takes only a part
  double short_read = 0;                    // probability that a read gives only a part
  std::optional<std::uint64_t> reset_after; // the connection resets once this many bytes were written
};

/// One direction. Pure data: the caller passes the time, nothing calls back. Thread: one.
class byte_pipe {
 public:
  byte_pipe(const pipe_faults& faults, std::uint64_t seed);

  io_result write(std::span<const std::byte> data, time_point now);
  io_result read(std::span<std::byte> into, time_point now);
  /// The writer is done; what it wrote still arrives.
  void shut_down() noexcept { shut_down_ = true; }
  void reset() noexcept;
  /// Until then the reader reads nothing, as a client that has stopped reading would.
  void stall_reader(time_point until) noexcept { stalled_until_ = until; }

  /// When a read that gives would_block now may succeed without another write: null = only a write, shutdown
  /// or reset can help.
  std::optional<time_point> next_readable(time_point now) const;
  bool readable(time_point now) const;
  bool writable() const noexcept { return reset_ || held_ < faults_.capacity; }
  std::size_t held() const noexcept { return held_; }
  std::uint64_t written() const noexcept { return written_; }

 private:
  struct segment {
    time_point arrives;
    std::vector<std::byte> bytes;
    std::size_t consumed = 0;
  };

  pipe_faults faults_;
  random_stream chance_;
  std::deque<segment> segments_; // in order of arrival
  std::size_t held_ = 0;
  std::uint64_t written_ = 0;
  time_point stalled_until_{};
  bool shut_down_ = false;
  bool reset_ = false;
};

/// Both directions; `a` writes into `a_to_b` and reads from `b_to_a`. A reset takes both down.
struct byte_stream_pair {
  byte_stream_pair(const pipe_faults& faults, std::uint64_t seed) :
      a_to_b(faults, seed), b_to_a(faults, seed + 1) {}
  void reset() noexcept {
    a_to_b.reset();
    b_to_a.reset();
  }
  byte_pipe a_to_b;
  byte_pipe b_to_a;
};

} // namespace troupe::runtime::sim
