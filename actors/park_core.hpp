// SPDX-License-Identifier: Apache-2.0
// The parker: KV blocks of sequences that wait, kept in memory and on disk until they go on.
#pragma once

#include "actors/messages.hpp"

#include <array>
#include <cstdint>
#include <list>
#include <span>
#include <variant>
#include <vector>

namespace troupe::actors {

/// Bounds of the park pool, in blocks, and what copying costs before anything was measured.
struct park_limits {
  std::uint32_t memory_blocks = 0, disk_blocks = 0;
  park_costs costs;
};

enum class park_work : std::uint8_t {
  save,  ///< KV pool to memory
  load,  ///< memory to KV pool
  write, ///< memory to disk
  read,  ///< disk to memory
  fetch, ///< disk to KV pool
};
/// From where to where, as far as the work needs it.
struct park_move {
  block_id block = 0;
  std::uint32_t memory_slot = 0, disk_slot = 0;
};
/// Copy these blocks off the event loop; the answer comes back as `park_job_done`. Short, so that what is
/// more urgent need not wait long; it holds no memory of its own.
struct park_job {
  static constexpr std::uint32_t most_moves = 8;
  std::uint64_t number = 0;
  park_work work = park_work::save;
  std::uint32_t count = 0;
  std::array<park_move, most_moves> moves{};
  std::span<const park_move> all() const noexcept { return {moves.data(), count}; }
};

using park_effect = std::variant<park_job, sequence_parked, sequence_restored, park_room, park_level>;
using park_effects = std::vector<park_effect>;

/// Pure: no clock, no Asio, no thread. Every `park_blocks` is answered by one `sequence_parked`, every
/// `restore_blocks` by one `sequence_restored`. One job at a time, in pieces: what is between the KV pool and
/// memory comes first, then restores from the disk, then what is read ahead, then what is written ahead. So
/// whoever waits for a copy in memory waits for one piece of the disk's at most.
///
/// A sequence is saved into memory that is free when it comes; else it is not kept. While less than the
/// reserve (`park_reserve`) is free, the eldest parked ones are written to the disk, but for those that are
/// wanted soon. A failure of the disk costs what it held, or the attempt: after a failed write it is left
/// alone for a while. A failed allocation costs the parking at hand.
class park_core {
 public:
  static constexpr duration disk_rest = std::chrono::seconds(10); ///< after a failed write
  /// Of a block there is room for, in memory or on disk: its slot while it is free, and two in the lists of
  /// the sequence it is parked with.
  static constexpr std::uint64_t ledger_bytes_per_block = 3 * sizeof(std::uint32_t);

  explicit park_core(const park_limits& limits);

  void on(park_blocks&& m, time_point now, park_effects& out);
  void on(prefetch_parked&& m, time_point now, park_effects& out);
  void on(restore_blocks&& m, time_point now, park_effects& out);
  void on(drop_parked&& m, time_point now, park_effects& out);
  void on(park_job_done&& m, time_point now, park_effects& out);

  park_level level() const noexcept;
  park_room room(time_point now) const noexcept;
  bool busy() const noexcept { return job_.number != 0; }
  /// Recounts the slots, and looks for work that is left undone, as of the last message's time; linear in the
  /// pool. For the simulation and tests.
  bool audit(time_point now) const;

 private:
  enum class phase : std::uint8_t {
    saving,
    in_memory,
    writing, ///< in memory still
    on_disk,
    reading, ///< on disk still
    loading,
  };
  struct entry {
    request_id id;
    actors::park_core::phase phase = phase::saving;
    std::vector<block_id> blocks;            ///< of the KV pool, while it is saved or loaded
    std::vector<std::uint32_t> memory, disk; ///< slots, of all its blocks or none
    std::uint32_t count = 0;                 ///< blocks
    std::uint32_t done = 0;                  ///< of those, by the phase's work
    std::uint32_t first = 0;                 ///< of those, the first that is loaded
    bool wanted_soon = false;
    bool dropped = false; ///< and in the hands of the worker
  };
  using place = std::list<entry>::iterator;

  place find(request_id id) noexcept;
  bool in_hand(const entry& e) const noexcept { return job_.number != 0 && in_hand_ == e.id; }
  void end_turn(time_point now, park_effects& out);
  void advance(time_point now, park_effects& out);
  bool advance_work(park_work which, park_effects& out);
  void start(entry& e, park_effects& out);
  void begin_write(time_point now) noexcept;
  void finish(place at, time_point now, park_effects& out);
  void fail(place at, park_outcome why, time_point now, park_effects& out);
  void answer(const entry& e, bool good, time_point now, park_effects& out);
  const park_room& tell_room(time_point now) noexcept;
  void remove(place at) noexcept;
  void give_back(std::vector<std::uint32_t>& slots, std::vector<std::uint32_t>& free) noexcept;
  static void take(std::vector<std::uint32_t>& slots, std::vector<std::uint32_t>& free, std::uint32_t count);
  static bool works(const entry& e) noexcept {
    return e.phase != phase::in_memory && e.phase != phase::on_disk;
  }
  park_work work_of(const entry& e) const noexcept;
  void measure(const park_job& job, duration took) noexcept;
  void publish(time_point now, park_effects& out);

  park_limits limits_;
  std::vector<std::uint32_t> free_memory_, free_disk_; ///< slots, stacks with capacity for all
  std::list<entry> entries_;                           ///< the eldest first
  park_job job_;                                       ///< in the worker's hands; number 0: none
  request_id in_hand_;
  std::uint64_t last_job_ = 0;
  time_point disk_rests_until_{};
  park_level sums_, published_;
  park_room told_; ///< to the scheduler, last
};

} // namespace troupe::actors
