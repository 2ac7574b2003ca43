// SPDX-License-Identifier: Apache-2.0
#include "sim/door_watch.hpp"

#include "actors/load_meters.hpp"
#include "actors/scheduler_core.hpp"
#include "engine/engine_state.hpp"

#include <algorithm>
#include <charconv>
#include <set>

namespace troupe::sim {
namespace {

constexpr auto slack = std::chrono::milliseconds(2); // the turns that a message takes from actor to actor

std::uint64_t most_blocks(const door_wish& w, std::uint32_t block_tokens) {
  const std::uint64_t tokens =
      std::min<std::uint64_t>(w.wish.limit, w.wish.prompt.size() + std::uint64_t{w.wish.max_tokens});
  return (tokens + block_tokens - 1) / block_tokens;
}

/// Ids of the sequences whose actors are alive.
std::set<std::uint64_t> requests_with_actors(const detail::engine_state& engine) {
  constexpr std::string_view prefix = "request/";
  std::set<std::uint64_t> ids;
  for (const runtime::actor_status& s : engine.system.status()) {
    if (!s.name.starts_with(prefix)) continue;
    std::uint64_t id = 0;
    std::from_chars(s.name.data() + prefix.size(), s.name.data() + s.name.size(), id);
    ids.insert(id);
  }
  return ids;
}

} // namespace

bool door_watch::acts(const followed& f, const std::set<std::uint64_t>& ids) {
  const auto first = ids.lower_bound(f.stream_id);
  return first != ids.end() && *first < f.stream_id + f.sequences;
}

void door_watch::submitted(const door_wish& wish, std::uint64_t stream_id, bool loading, time_point now) {
  followed& f = requests_[wish.wish.seed];
  f.stream_id = stream_id;
  f.sequences = wish.n;
  f.blocks = wish.n * most_blocks(wish, facts_.block_tokens);
  f.loading = loading;
  f.submitted = now;
  f.deadline = std::chrono::milliseconds(wish.deadline_ms);
  alive_.push_back(wish.wish.seed);
  // Load only grows by submissions, so these are the moments at which it can be at its highest.
  std::uint64_t sequences = 0, blocks = 0;
  for (const auto seed : alive_) sequences += requests_[seed].sequences, blocks += requests_[seed].blocks;
  for (const auto seed : alive_) {
    followed& other = requests_[seed];
    other.peak_sequences = std::max(other.peak_sequences, sequences);
    other.peak_blocks = std::max(other.peak_blocks, blocks);
  }
}

std::optional<errc> door_watch::failure_of(std::uint64_t seed) const {
  const auto found = requests_.find(seed);
  return found == requests_.end() ? std::nullopt : found->second.failure;
}

void door_watch::left(std::uint64_t seed, time_point now) {
  if (const auto found = requests_.find(seed); found != requests_.end() && !found->second.left)
    found->second.left = now;
}

std::string door_watch::failed(const door_wish& wish, const error& why, const door_circumstances& c) {
  const auto found = requests_.find(wish.wish.seed);
  if (found == requests_.end()) return "failed, and was never submitted";
  followed& f = found->second;
  if (f.failure) return "failed twice";
  f.failure = why.code;
  left(wish.wish.seed, c.now);
  if (why.message.empty()) return "failed without a message";
  std::string fault = cause_fault(f, wish, why, c);
  if (!fault.empty())
    fault = "failed with " + std::string(code_name(why.code)) + " (" + why.message + "), but " + fault;
  return fault;
}

std::string door_watch::cause_fault(
    const followed& f, const door_wish& wish, const error& why, const door_circumstances& c) const {
  const auto needs = [](bool because, std::string_view otherwise) {
    return because ? std::string() : std::string(otherwise);
  };
  // Its own sequences are among those of the peak; one of them was refused, the others may have been before
  // it.
  const double others = static_cast<double>(f.peak_blocks - f.blocks / f.sequences);
  const auto over = [&](double mark) {
    const double level = actors::reopening_level(mark, actors::scheduler_options{}.hysteresis);
    return others >= level * facts_.blocks;
  };
  const bool under_load = why.code == errc::kv_cache_full || why.code == errc::shed_low_priority ||
                          why.code == errc::queue_full || why.code == errc::queue_timeout;
  if (under_load && (why.retry_after_ms == 0 || why.retry_after_ms > 60'000)) return "gave no good advice";
  switch (why.code) {
  case errc::kv_cache_full:
    return needs(over(facts_.kv_high), "all requests together could not fill the KV pool");
  case errc::shed_low_priority:
    return needs(
        (over(facts_.kv_low) || f.peak_sequences > std::max<std::uint64_t>(1, facts_.max_queue)) &&
            wish.priority >= actors::scheduler_options{}.low_priority,
        "its priority was not low, or the KV pool and the queue had room");
  case errc::queue_full:
    return needs(
        f.peak_sequences > std::max<std::uint64_t>(1, facts_.max_queue),
        "the queue could not have been full");
  case errc::queue_timeout:
    return needs(c.now >= f.submitted + facts_.queue_timeout, "it had not waited that long");
  case errc::draining:
    return needs(c.draining_since.has_value(), "nobody shuts down");
  case errc::shutdown:
    return needs(
        c.draining_since && c.now >= *c.draining_since + facts_.drain_limit, "the drain had time left");
  case errc::model_loading:
    return needs(f.loading, "the model was loaded");
  case errc::deadline_exceeded:
    return needs(f.deadline > duration::zero() && c.now >= f.submitted + f.deadline, "it had time left");
  case errc::cancelled:
    return needs(c.cancel_sent, "nobody cancelled it");
  case errc::slow_consumer:
    return needs(
        c.stalled_since && c.now >= *c.stalled_since + facts_.slow_consumer, "its client reads all the time");
  case errc::context_length_exceeded:
    return needs(wish.wish.prompt.size() + 1 > wish.wish.limit, "it fits");
  case errc::bad_request:
    return needs(wish.n > facts_.places && why.param == "n", "nothing is wrong with it");
  case errc::poison_request:
    return needs(
        c.failed_steps + c.crashes >= 2, "it was not in two failed steps, or in hand at two crashes");
  case errc::executor_failed:
    return needs(c.down, "the engine had crashed seldom enough");
  case errc::internal:
    return needs(c.text_failed, "nothing broke");
  default:
    return "nothing that happens here gives that code";
  }
}

void door_watch::forget_gone(const detail::engine_state& engine, time_point now) {
  if (std::none_of(alive_.begin(), alive_.end(), [&](auto seed) { return requests_[seed].left.has_value(); }))
    return;
  const auto ids = requests_with_actors(engine);
  std::erase_if(alive_, [&](auto seed) {
    const followed& f = requests_[seed];
    if (!f.left || acts(f, ids)) return false;
    // An actor that crashed is gone before the scheduler has its blocks back.
    return f.failure != errc::internal || now > *f.left + facts_.longest_step + facts_.lateness;
  });
}

std::string door_watch::check(const detail::engine_state& engine, time_point now) {
  using runtime::dead_reason, runtime::message_class;
  if (engine.system.dead().count(message_class::control, dead_reason::full) > 0) {
    for (const auto& letter : engine.system.dead().recent())
      if (letter.kind == message_class::control && letter.reason == dead_reason::full)
        return "a control message was refused: " + std::string(letter.message) + " to " +
               std::string(letter.actor);
    return "a control message was refused";
  }
  const engine_stats s = engine.stats();
  if (s.kv_free + s.kv_leased + s.kv_limbo + s.kv_cached != s.kv_total) return "the KV pool's sum is wrong";
  if (s.paused != std::exchange(paused_, s.paused)) paused_changed_ = now;
  const duration late = facts_.lateness + slack + facts_.recovery;
  // Whoever is paused now was paused then, and heard of no read since the last one of all.
  if (paused_ > 0 && now > std::max(paused_changed_, last_read_) + facts_.slow_consumer + late)
    return "a request is paused for longer than a slow reader may be";
  forget_gone(engine, now);
  for (const auto seed : alive_) {
    followed& f = requests_.at(seed);
    const std::string name = "stream " + std::to_string(f.stream_id);
    // The step that runs when its end is asked for may need its blocks to the end.
    const duration step = facts_.longest_step + facts_.lateness + facts_.recovery;
    if (f.left && now > *f.left + step + slack)
      return name + " is still there after its end, or its client's";
    if (f.deadline > duration::zero() && !f.left && now > f.submitted + f.deadline + late + step) {
      if (acts(f, requests_with_actors(engine))) return name + " is still there after its deadline";
      f.deadline = duration::zero(); // it has ended, and its client has yet to read that
    }
  }
  return {};
}

} // namespace troupe::sim
