// SPDX-License-Identifier: Apache-2.0
// Requests that an earlier scheduler had let in, and whose actors hand them in anew.
#include "actors/scheduler_core.hpp"

#include <algorithm>
#include <new>
#include <utility>
#include <xxhash.h>

namespace troupe::actors {

/// Its place is by its age, with no word of load. What its tenant was charged with is past: at its end only
/// the difference to the truth is settled.
void scheduler_core::on(readmission&& m, time_point now, scheduler_effects& out) {
  turn t{now, out};
  if (find(m.id) != nullptr) return;
  ++stats_.submitted;
  std::optional<error> why;
  if (!ready_)
    why = error{errc::model_loading, "the model is not loaded yet", {}, 1000};
  else if (m.place->wish.prompt) // the earlier one may not have seen it
    why = prompt_refusal(m.place->wish);
  try {
    if (!why) let_in_again(m.id, *m.place, t);
  } catch (const std::bad_alloc&) {
    if (auto* s = find(m.id)) forget(*s, now);
    why = error{errc::no_memory, "no memory to go on with the request", {}, 0};
  }
  if (why) {
    tenants_.close_if_idle(m.place->tenant, now);
    ++stats_.failed[static_cast<std::size_t>(why->code)];
    out.emplace_back(refused{m.id, std::move(*why)});
    return;
  }
  ++stats_.readmitted;
  sequence& s = *find(m.id);
  // The crash may have come between the last of what it was told and its end.
  if (const auto reason = whole_answer(s)) end_sequence(s, *reason, t);
  pump(t);
}

/// May throw std::bad_alloc: what is entered then is forgotten by the caller.
void scheduler_core::let_in_again(request_id id, const held_place& place, turn& t) {
  tenant_account& tenant = tenants_.open(place.tenant);
  sequence& s = sequences_[id];
  s.id = id;
  s.priority = place.priority;
  s.arrival = place.arrival;
  s.rank =
      (place.arrival.time_since_epoch() + options_.ageing_quantum * static_cast<std::int64_t>(place.priority))
          .count();
  s.group = place.group;
  s.salt = XXH3_64bits(place.tenant.data(), place.tenant.size());
  s.prompt_tokens = place.prompt_tokens;
  s.foreseen_tokens = forecast_tokens(place.prompt_tokens, place.wish.max_tokens);
  s.foreseen = forecast_positions(place.prompt_tokens, place.wish.max_tokens);
  foresee(s);
  s.tenant = &tenant;
  ++tenant.live;
  s.wish.max_tokens = place.wish.max_tokens;
  s.generated = place.drawn;
  s.scored = place.scored;
  s.last_token = place.last_token;
  s.started = place.started;
  s.paused = place.paused;
  s.strikes = place.suspect ? 1 : 0;
  join_line(s);
  if (place.started && s.group != 0) begin_group(s.group);
  if (!place.started && !place.begun && !begun(s.group))
    unstarted_.insert({s.arrival.time_since_epoch().count(), id});
  if (!place.wish.prompt) return; // `enqueue` follows
  enqueue wish = place.wish;
  wish.id = id;
  take_prompt(s, std::move(wish), t.now);
  if (!s.generated.empty()) s.high_water = s.known() - 1; // was computed once, and is no new work
  s.foreseen = std::max(s.foreseen, std::min(limit_, s.known() + 1));
  foresee(s);
  recount(s);
}

/// Why the sequence is over with what it has; nothing while it goes on.
std::optional<finish_reason> scheduler_core::whole_answer(const sequence& s) const {
  if (!s.wish.prompt) return std::nullopt;
  if (s.wish.max_tokens == 0) {
    if (s.scored >= s.scores_wanted()) return finish_reason::length;
    return std::nullopt;
  }
  if (s.generated.empty()) return std::nullopt;
  if (ends_with(s, s.generated.back())) return finish_reason::stop;
  if (s.generated.size() >= s.wish.max_tokens || s.known() >= limit_) return finish_reason::length;
  return std::nullopt;
}

} // namespace troupe::actors
