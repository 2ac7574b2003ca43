// SPDX-License-Identifier: Apache-2.0
// Which parked blocks lie where, and what is copied next.
#include "actors/park_core.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace troupe::actors {

park_core::park_core(const park_limits& limits) : limits_(limits) {
  const auto fill = [](std::vector<std::uint32_t>& free, std::uint32_t count) {
    free.resize(count);
    for (std::uint32_t i = 0; i < count; ++i) free[i] = count - 1 - i; // the lowest leaves first
  };
  fill(free_memory_, limits.memory_blocks);
  fill(free_disk_, limits.disk_blocks);
  sums_.memory_total = limits.memory_blocks;
  sums_.disk_total = limits.disk_blocks;
  published_ = level();
  told_ = {limits.memory_blocks, limits.disk_blocks, limits.costs};
}

park_core::place park_core::find(request_id id) noexcept {
  return std::find_if(entries_.begin(), entries_.end(), [&](const entry& e) { return e.id == id; });
}

void park_core::on(park_blocks&& m, time_point now, park_effects& out) {
  const auto count = static_cast<std::uint32_t>(m.blocks.size());
  bool taken = count > 0 && count <= free_memory_.size() && find(m.id) == entries_.end();
  if (taken) try {
      entry fresh;
      fresh.id = m.id;
      fresh.count = count;
      fresh.memory.reserve(count);
      fresh.disk.reserve(limits_.disk_blocks > 0 ? count : 0);
      fresh.blocks = std::move(m.blocks);
      entries_.push_back(std::move(fresh));
    } catch (const std::bad_alloc&) {
      taken = false;
    }
  if (taken)
    take(entries_.back().memory, free_memory_, count);
  else
    out.emplace_back(sequence_parked{m.id, false, tell_room(now)});
  end_turn(now, out);
}

void park_core::on(prefetch_parked&& m, time_point now, park_effects& out) {
  const place at = find(m.id);
  if (at == entries_.end() || at->dropped) return end_turn(now, out);
  at->wanted_soon = true;
  if (at->phase == phase::on_disk && free_memory_.size() >= at->count) {
    take(at->memory, free_memory_, at->count);
    at->phase = phase::reading;
    at->done = 0;
  } else if (at->phase == phase::writing) { // the worker may still be at a piece of it, as at a restore
    give_back(at->disk, free_disk_);
    at->phase = phase::in_memory;
    at->done = 0;
  }
  end_turn(now, out);
}

void park_core::on(restore_blocks&& m, time_point now, park_effects& out) {
  const place at = find(m.id);
  const bool whole = at != entries_.end() && !at->dropped && at->phase != phase::saving &&
                     at->phase != phase::loading && !m.blocks.empty() &&
                     m.first + m.blocks.size() == at->count;
  if (!whole) { // lost to a failure of the disk, which was not told
    out.emplace_back(sequence_restored{m.id, false, tell_room(now)});
    return end_turn(now, out);
  }
  // The worker may still be at a piece of it: nothing else touches those slots before that has ended.
  if (at->phase == phase::writing) give_back(at->disk, free_disk_);
  if (at->phase == phase::reading) give_back(at->memory, free_memory_);
  at->phase = phase::loading;
  at->done = at->first = m.first;
  at->blocks = std::move(m.blocks);
  end_turn(now, out);
}

void park_core::on(drop_parked&& m, time_point now, park_effects& out) {
  const place at = find(m.id);
  if (at == entries_.end() || at->dropped) return end_turn(now, out);
  if (in_hand(*at)) {
    at->dropped = true; // goes when the worker lets go of it
  } else {
    answer(*at, false, now, out);
    remove(at);
  }
  end_turn(now, out);
}

void park_core::on(park_job_done&& m, time_point now, park_effects& out) {
  if (m.number == 0 || m.number != job_.number) return end_turn(now, out);
  const park_job job = std::exchange(job_, {});
  const place at = find(std::exchange(in_hand_, {}));
  if (m.outcome == park_outcome::done) measure(job, m.took);
  if (at->dropped) {
    answer(*at, false, now, out);
    remove(at);
  } else if (!works(*at) || work_of(*at) != job.work) { // it is wanted back; what was done is not needed
  } else if (m.outcome != park_outcome::done) {
    fail(at, m.outcome, now, out);
  } else if ((at->done += job.count) == at->count) {
    finish(at, now, out);
  }
  end_turn(now, out);
}

/// The phase's work on all of the sequence's blocks is done.
void park_core::finish(place at, time_point now, park_effects& out) {
  at->done = 0;
  switch (at->phase) {
  case phase::saving:
    answer(*at, true, now, out);
    at->blocks = {}; // its memory too
    at->phase = phase::in_memory;
    break;
  case phase::writing:
    give_back(at->memory, free_memory_);
    at->phase = phase::on_disk;
    break;
  case phase::reading:
    give_back(at->disk, free_disk_);
    at->phase = phase::in_memory;
    break;
  default:
    // The slots first: the answer tells of the room with them.
    give_back(at->memory, free_memory_);
    give_back(at->disk, free_disk_);
    answer(*at, true, now, out);
    remove(at);
  }
}

/// Costs what the disk held. Of what could not be written the copy in memory is whole.
void park_core::fail(place at, park_outcome why, time_point now, park_effects& out) {
  if (at->phase == phase::writing) {
    ++sums_.write_failures;
    disk_rests_until_ = now + disk_rest;
    give_back(at->disk, free_disk_);
    at->phase = phase::in_memory;
    at->done = 0;
    return;
  }
  if (at->phase != phase::saving) ++(why == park_outcome::corrupt ? sums_.corrupt : sums_.read_failures);
  answer(*at, false, now, out);
  remove(at);
}

/// To the scheduler, if it waits for one.
void park_core::answer(const entry& e, bool good, time_point now, park_effects& out) {
  if (e.phase == phase::saving) out.emplace_back(sequence_parked{e.id, good, tell_room(now)});
  if (e.phase == phase::loading) out.emplace_back(sequence_restored{e.id, good, tell_room(now)});
}

const park_room& park_core::tell_room(time_point now) noexcept {
  const std::uint64_t number = told_.number + 1;
  told_ = room(now);
  told_.number = number;
  return told_;
}

void park_core::remove(place at) noexcept {
  give_back(at->memory, free_memory_);
  give_back(at->disk, free_disk_);
  entries_.erase(at);
}

void park_core::take(
    std::vector<std::uint32_t>& slots, std::vector<std::uint32_t>& free, std::uint32_t count) {
  slots.assign(free.end() - static_cast<std::ptrdiff_t>(count), free.end()); // reserved when it came
  free.resize(free.size() - count);
}

void park_core::give_back(std::vector<std::uint32_t>& slots, std::vector<std::uint32_t>& free) noexcept {
  free.insert(free.end(), slots.begin(), slots.end()); // within its capacity
  slots.clear();
}

void park_core::end_turn(time_point now, park_effects& out) {
  advance(now, out);
  publish(now, out);
}

/// Gives the worker its next piece, if it has none.
void park_core::advance(time_point now, park_effects& out) {
  if (busy()) return;
  for (const park_work each : {park_work::load, park_work::save, park_work::fetch, park_work::read})
    if (advance_work(each, out)) return;
  begin_write(now);
  advance_work(park_work::write, out);
}

bool park_core::advance_work(park_work which, park_effects& out) {
  for (entry& e : entries_)
    if (works(e) && work_of(e) == which) {
      start(e, out);
      return true;
    }
  return false;
}

/// Chooses what is written ahead of need: the eldest that the disk has room for, when less than the reserve
/// is free and nothing is being written.
void park_core::begin_write(time_point now) noexcept {
  if (free_memory_.size() >= park_reserve(limits_.memory_blocks) || now < disk_rests_until_) return;
  entry* eldest = nullptr;
  for (entry& e : entries_) {
    if (e.phase == phase::writing) return;
    const bool fits = e.phase == phase::in_memory && !e.wanted_soon && free_disk_.size() >= e.count;
    if (eldest == nullptr && fits) eldest = &e;
  }
  if (eldest == nullptr) return;
  take(eldest->disk, free_disk_, eldest->count);
  eldest->phase = phase::writing;
  eldest->done = 0;
}

park_work park_core::work_of(const entry& e) const noexcept {
  switch (e.phase) {
  case phase::saving:
    return park_work::save;
  case phase::writing:
    return park_work::write;
  case phase::reading:
    return park_work::read;
  default:
    return e.memory.empty() ? park_work::fetch : park_work::load;
  }
}

void park_core::start(entry& e, park_effects& out) {
  job_ = {};
  job_.number = ++last_job_;
  job_.work = work_of(e);
  for (std::uint32_t i = e.done; i < e.count && job_.count < park_job::most_moves; ++i) {
    park_move& move = job_.moves[job_.count++];
    if (!e.blocks.empty()) move.block = e.blocks[i - e.first];
    if (!e.memory.empty()) move.memory_slot = e.memory[i];
    if (!e.disk.empty()) move.disk_slot = e.disk[i];
  }
  in_hand_ = e.id;
  out.emplace_back(job_);
}

/// Costs follow what was measured, a quarter of the way each time. What is fetched is read and loaded at
/// once.
void park_core::measure(const park_job& job, duration took) noexcept {
  const std::uint32_t n = job.count;
  const auto follow = [&](duration& cost) { cost += (took / n - cost) / 4; };
  switch (job.work) {
  case park_work::save:
    sums_.saved += n;
    return follow(limits_.costs.save);
  case park_work::load:
    sums_.loaded += n;
    return follow(limits_.costs.load);
  case park_work::write:
    sums_.written += n;
    return follow(limits_.costs.write);
  case park_work::fetch:
    sums_.loaded += n;
    [[fallthrough]];
  case park_work::read:
    sums_.read += n;
    return follow(limits_.costs.read);
  }
}

park_room park_core::room(time_point now) const noexcept {
  const auto disk = now < disk_rests_until_ ? 0 : static_cast<std::uint32_t>(free_disk_.size());
  return {static_cast<std::uint32_t>(free_memory_.size()), disk, limits_.costs};
}

park_level park_core::level() const noexcept {
  park_level l = sums_;
  l.sequences = static_cast<std::uint32_t>(entries_.size());
  l.memory = l.memory_total - static_cast<std::uint32_t>(free_memory_.size());
  l.disk = l.disk_total - static_cast<std::uint32_t>(free_disk_.size());
  return l;
}

/// What has changed, unless an answer has told it.
void park_core::publish(time_point now, park_effects& out) {
  if (const park_room r = room(now); r.memory != told_.memory || r.disk != told_.disk)
    out.emplace_back(tell_room(now));
  const park_level l = level();
  if (l == published_) return;
  published_ = l;
  out.emplace_back(l);
}

bool park_core::audit(time_point now) const {
  if (!busy()) { // then there is nothing to do
    const bool fills = free_memory_.size() < park_reserve(limits_.memory_blocks) && now >= disk_rests_until_;
    for (const entry& e : entries_)
      if (works(e) || (fills && !e.memory.empty() && !e.wanted_soon && e.count <= free_disk_.size()))
        return false;
  }
  const auto all_there = [&](std::vector<std::uint32_t> slots, std::uint32_t total, auto member) {
    for (const entry& e : entries_) slots.insert(slots.end(), (e.*member).begin(), (e.*member).end());
    std::sort(slots.begin(), slots.end());
    for (std::size_t i = 0; i < slots.size(); ++i)
      if (slots[i] != i) return false;
    return slots.size() == total;
  };
  return all_there(free_memory_, limits_.memory_blocks, &entry::memory) &&
         all_there(free_disk_, limits_.disk_blocks, &entry::disk);
}

} // namespace troupe::actors
