// SPDX-License-Identifier: Apache-2.0
// Oracles of the parker's order of work and of what the scheduler knows of its room.
#include "sim/simulation.hpp"

namespace troupe::sim {

using actors::park_work;

/// What the scheduler hears of the room for parked blocks.
void simulation::note_room_heard(const actors::park_room& room) {
  if (room.number >= room_heard_.number) room_heard_ = room;
}

/// The scheduler parks only what memory has room for as far as it knows: else the one that needs the blocks
/// would wait for a disk.
void simulation::check_park(const actors::park_blocks& m) {
  require(m.blocks.size() <= room_heard_.memory, "parked without room in memory", m.id.number);
  room_heard_.memory -= static_cast<std::uint32_t>(m.blocks.size());
}

/// What the parker says of its room.
void simulation::note_room_told(const actors::park_room& room) {
  require(room.number > room_told_.number, "an older room is told after a newer one");
  room_told_ = room;
}

/// After each of the parker's turns.
void simulation::check_room() {
  require(
      room_told_.memory == parker_.room(now_).memory,
      "the scheduler was not told of the room in park memory");
}

/// At most the piece of the disk's that is under way when a copy between memory and the KV pool is asked for
/// is waited for, and nothing ahead of need while one waits for the disk.
void simulation::check_copy_order(const actors::park_job& job) {
  const bool ahead = job.work == park_work::write || job.work == park_work::read;
  if (ahead || job.work == park_work::fetch)
    for (const auto number : saves_asked_) complain("one that is to be parked waits for the disk", number);
  if (ahead)
    for (const auto number : restores_asked_)
      complain("one that goes on waits for copies ahead of need", number);
}

} // namespace troupe::sim
