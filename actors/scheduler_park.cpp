// SPDX-License-Identifier: Apache-2.0
// Parking: which preempted sequences keep their keys and values elsewhere, and how they come back.
#include "actors/scheduler_core.hpp"

#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

namespace troupe::actors {

/// First blocks of the sequence that others hold too: they are found again as long as one of those runs.
std::uint32_t scheduler_core::shared_with_others(const sequence& s) const {
  if (!may_find(s)) return 0;
  const std::uint32_t whole = std::min(s.computed / model_.block_tokens, full_blocks(s));
  std::uint32_t shared = 0;
  for (const std::uint64_t number : s.chain) {
    const auto at = begun_prefixes_.find(number);
    if (shared == whole || at == begun_prefixes_.end() || at->second.holders < 2) break;
    ++shared;
  }
  return shared;
}

/// What the rows of positions [from, to) of one sequence add to the steps they are in.
duration scheduler_core::time_to_compute(std::uint32_t from, std::uint32_t to) const noexcept {
  step_shape rows;
  rows.add(from, to - from, false);
  return step_times_.predict(rows) - step_times_.predict({});
}

/// There and back. What it takes of the reserve makes as much of others go to the disk, which is read again.
duration scheduler_core::time_to_park(std::uint32_t blocks) const noexcept {
  const park_costs& c = park_room_.costs;
  const std::uint32_t left = park_room_.memory - std::min(park_room_.memory, blocks),
                      reserve = park_reserve(model_.park_blocks);
  const std::uint32_t over = std::min({blocks, reserve - std::min(reserve, left), park_room_.disk});
  return blocks * (c.save + c.load) + over * (c.write + c.read);
}

/// Sends for a copy of what the sequence alone holds; its blocks are released after it. False: it is to be
/// computed anew, because that is faster, or memory has no room for it now: whoever needs its blocks waits
/// for no disk.
bool scheduler_core::begin_parking(sequence& s, turn& t) {
  if (model_.park_blocks == 0 || s.computed == 0 || !table_known(s)) return false;
  if (s.copy) return false;                       // not carried out yet, and nothing else was computed
  if (beyond_border(s) != s.beyond) return false; // would go on with other keys and values
  // Of what others may have given back meanwhile a table with holes can be made anew only as a whole.
  const std::uint32_t from = groups_.forgets() ? 0 : shared_with_others(s);
  const std::uint32_t count = groups_.blocks(from, groups_.indices(s.computed), s.computed);
  if (count == 0 || count > park_room_.memory) return false;
  if (options_.park == park_choice::by_cost &&
      (!step_times_.knows() ||
       time_to_park(count) >= time_to_compute(from * model_.block_tokens, s.computed)))
    return false;
  park_blocks m{s.id, {}};
  try {
    copy_table(s, from, s.computed, m.blocks);
  } catch (const std::bad_alloc&) {
    return false;
  }
  t.out.emplace_back(std::move(m));
  park_room_.memory -= count;
  s.parking = parking::saving;
  s.prefetched = false;
  s.parked_from = from;
  s.parked_positions = s.computed;
  ++stats_.parks;
  ++copies_;
  leaving_ += s.held;
  return true;
}

/// Unless a newer one came before it. What was sent to the parker since may be missing in it: then it has no
/// room, and says so.
void scheduler_core::note_room(const park_room& told) noexcept {
  if (told.number >= park_room_.number) park_room_ = told;
}

void scheduler_core::on(park_room&& m, time_point, scheduler_effects&) {
  note_room(m);
}

void scheduler_core::on(sequence_parked&& m, time_point now, scheduler_effects& out) {
  turn t{now, out};
  note_room(m.room);
  auto* s = find(m.id);
  if (s == nullptr || s->parking != parking::saving) return;
  --copies_;
  leaving_ -= s->in_transit;
  out.emplace_back(release_blocks{s->id, 0}); // counted when it was preempted
  s->parking = m.kept ? parking::parked : parking::none;
  if (s->phase == phase::closing) s->parking = parking::none; // which the parker knows
  if (!m.kept && s->phase != phase::closing) ++stats_.parks_failed;
  pump(t);
}

/// The sequence has blocks again, the first `cached` positions of which are known. What is parked behind
/// those comes into the others; it runs when that is done.
void scheduler_core::begin_restoring(sequence& s, std::uint32_t cached, turn& t) {
  assert(s.parking == parking::parked);
  drop_from_plan(s.id);
  s.fresh_tokens = 0;
  const std::uint32_t first = cached / model_.block_tokens, end = groups_.indices(s.parked_positions);
  restore_blocks m{s.id, first - std::min(first, s.parked_from), {}};
  bool possible = first >= s.parked_from && first < end && table_known(s);
  if (possible) try {
      copy_table(s, first, s.parked_positions, m.blocks);
    } catch (const std::bad_alloc&) {
      possible = false;
    }
  if (possible) {
    t.out.emplace_back(std::move(m));
    s.parking = parking::loading;
    ++copies_;
    return;
  }
  // All of it was found, or what it shared is gone.
  t.out.emplace_back(drop_parked{s.id});
  s.parking = parking::none;
  stuck_in_a_row_ = 0; // it has blocks and runs in the next step
  ++(first >= end ? stats_.resumes : stats_.resumes_failed);
  if (groups_.forgets()) preempt(s, t, false); // its table has holes where it would begin anew
}

void scheduler_core::on(sequence_restored&& m, time_point now, scheduler_effects& out) {
  turn t{now, out};
  note_room(m.room);
  auto* s = find(m.id);
  if (s == nullptr || s->parking != parking::loading) return;
  --copies_;
  s->parking = parking::none;
  if (s->phase == phase::closing) {
    out.emplace_back(release_blocks{s->id, 0}); // counted when it ended
  } else if (m.restored) {
    ++stats_.resumes;
    s->computed = s->parked_positions;
    publish_blocks news;
    note_filled(*s, s->computed, news);
    if (!news.all.empty()) out.emplace_back(std::move(news));
  } else {
    ++stats_.resumes_failed;
    if (groups_.forgets()) preempt(*s, t, false);
  }
  pump(t);
}

/// It is next: what went to the disk should be in memory by the time that it has blocks.
void scheduler_core::prefetch(sequence& s, turn& t) {
  if (s.parking != parking::parked || std::exchange(s.prefetched, true)) return;
  t.out.emplace_back(prefetch_parked{s.id});
}

/// Of one that ends.
void scheduler_core::forget_parked(sequence& s, turn& t) {
  if (s.parking == parking::none) return;
  ++stats_.parks_dropped;
  t.out.emplace_back(drop_parked{s.id});
  if (s.parking == parking::parked) s.parking = parking::none;
}

} // namespace troupe::actors
