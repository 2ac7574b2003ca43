// SPDX-License-Identifier: Apache-2.0
// A scheduler with a real cache manager at hand and the test in the executor's place.
#pragma once

#include "actors/cache_core.hpp"
#include "actors/scheduler_core.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::actors::test {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline request_id rid(std::uint64_t number) {
  return {1, 1, number};
}

/// Of its own tokens, which no other number's prompt begins with.
inline token_list prompt_of(std::size_t tokens, std::uint64_t number = 0) {
  return std::make_shared<const std::vector<std::int32_t>>(tokens, static_cast<std::int32_t>(7 + number));
}

inline scheduler_options with(std::uint32_t max_batch, std::uint32_t max_queue) {
  scheduler_options o;
  o.max_batch = max_batch;
  o.max_queue = max_queue;
  return o;
}

/// Cache mail is answered at once; everything else the scheduler says is kept for the test.
class stage {
 public:
  static constexpr std::int32_t eos = 0;

  explicit stage(
      const scheduler_options& options, std::uint32_t blocks = 64, std::uint32_t block_tokens = 4,
      std::uint32_t context = 64, std::uint32_t reach_border = 0, const park_room& park = {}) :
      stage(options, model_ready{blocks, block_tokens, context, {eos}, reach_border, park.memory, park}) {}
  stage(const scheduler_options& options, const model_ready& facts) :
      core(options), options_(options),
      cache({1, 0, 0}, facts.kv_blocks, kv_groups(facts.block_tokens, facts.windows)) {
    tell(model_ready(facts));
  }

  template<class Message>
  void tell(Message m) {
    if constexpr (std::is_same_v<Message, alarm_rang>) alarm = time_point::max();
    scheduler_effects out;
    core.on(std::move(m), now, out);
    for (auto& e : out) std::visit([this](auto& x) { this->take(std::move(x)); }, e);
    if (answers) deliver_cache_mail();
  }
  void deliver_cache_mail() {
    while (!cache_mail.empty()) {
      auto next = std::move(cache_mail.front());
      cache_mail.erase(cache_mail.begin());
      cache_effects answers_made;
      std::visit([&](auto& x) { cache.on(std::move(x), now, answers_made); }, next);
      for (auto& a : answers_made) {
        if (auto* r = std::get_if<blocks_reserved>(&a)) tell(std::move(*r));
        if (auto* r = std::get_if<blocks_released>(&a)) tell(*r);
      }
    }
  }

  /// Knocks; true when admitted. `why` has the refusal.
  bool knock(
      std::uint64_t number, std::uint32_t priority = 5, std::uint32_t prompt = 4,
      std::uint32_t max_tokens = 4) {
    const auto before = admitted_ids.size();
    tell(admission_request{rid(number), priority, prompt, max_tokens, time_point::max(), {}, 0});
    return admitted_ids.size() > before;
  }
  void hand_in(std::uint64_t number, std::uint32_t prompt = 4, std::uint32_t max_tokens = 4) {
    enqueue m;
    m.id = rid(number);
    m.prompt = prompt_of(prompt, number);
    m.max_tokens = max_tokens;
    tell(std::move(m));
  }
  /// Both at once.
  void submit(
      std::uint64_t number, std::uint32_t prompt = 4, std::uint32_t max_tokens = 4,
      std::uint32_t priority = 5) {
    knock(number, priority, prompt, max_tokens);
    hand_in(number, prompt, max_tokens);
  }

  bool running() const { return step.has_value(); }
  const plan_entry* entry(std::uint64_t number) const {
    if (step)
      for (const auto& e : step->entries)
        if (e.id.number == number) return &e;
    return nullptr;
  }
  std::uint32_t rows() const {
    std::uint32_t n = 0;
    if (step)
      for (const auto& e : step->entries) n += e.count;
    return n;
  }
  /// Ends the running step; every token asked for is `token`, or what `own_tokens` says.
  void finish_step(std::int32_t token = 9, std::map<std::uint64_t, std::int32_t> own_tokens = {}) {
    finish_step_after(milliseconds(1), token, own_tokens);
  }
  void finish_step_after(
      duration took, std::int32_t token = 9, const std::map<std::uint64_t, std::int32_t>& own_tokens = {}) {
    step_done done{step->step_seq, {}, took};
    for (const auto& e : step->entries) {
      auto& r = done.results.emplace_back();
      r.id = e.id;
      for (std::uint32_t p = std::max(e.first, e.score_from); p < e.first + e.count && p + 1 < scored_end;
           ++p)
        r.scores.push_back({-static_cast<float>(p), {}});
      r.not_finite = not_finite == e.id.number && (e.want_token || !r.scores.empty());
      if (!e.want_token) continue;
      const auto own = own_tokens.find(e.id.number);
      r.token = own == own_tokens.end() ? token : own->second;
    }
    step.reset();
    tell(std::move(done));
  }
  void fail_step() {
    const auto seq = step->step_seq;
    step.reset();
    tell(step_failed{seq, "the machine said no"});
  }
  /// Runs steps until `number` has ended, at most `most`.
  void run_until_end(std::uint64_t number, int most = 200) {
    while (!ended.contains(number) && running() && most-- > 0) finish_step();
  }
  std::uint32_t held(std::uint64_t number) const { return cache.pool().held(rid(number)); }
  scheduler_core::view view(std::uint64_t number) const {
    for (const auto& v : core.requests())
      if (v.id.number == number) return v;
    return {};
  }

  const scheduler_options& options() const { return options_; }

  scheduler_core core;
  scheduler_options options_;
  cache_core cache;
  time_point now{seconds(100)};
  bool answers = true; ///< false: cache mail waits
  std::uint64_t not_finite = 0;
  std::uint32_t scored_end = 0; ///< length of the prompts that want scores
  std::vector<std::variant<reserve_blocks, release_blocks, step_finished, publish_blocks>> cache_mail;
  std::optional<run_step> step;
  std::vector<std::uint64_t> admitted_ids, started_ids, closed_ids;
  std::map<std::uint64_t, error> refusals;
  std::map<std::uint64_t, sequence_finished> ended;
  std::map<std::uint64_t, std::vector<token_ready>> tokens;
  std::map<std::uint64_t, std::vector<float>> scores;
  std::vector<park_blocks> parks; ///< in whose place the test is
  std::vector<restore_blocks> restores;
  std::vector<std::uint64_t> prefetched_ids, dropped_ids;
  time_point alarm = time_point::max();
  int ends = 0, drains = 0;
  bool gaps = false; ///< scores came out of order

 private:
  void take(admitted&& m) { admitted_ids.push_back(m.id.number); }
  void take(refused&& m) { refusals[m.id.number] = std::move(m.why); }
  void take(started&& m) { started_ids.push_back(m.id.number); }
  void take(token_ready&& m) { tokens[m.id.number].push_back(std::move(m)); }
  void take(prompt_scored&& m) {
    auto& all = scores[m.id.number];
    gaps = gaps || m.first != all.size() + 1;
    for (const auto& s : m.scores) all.push_back(s.logprob);
  }
  void take(sequence_finished&& m) {
    ++ends;
    ended[m.id.number] = std::move(m);
  }
  void take(reserve_blocks&& m) { cache_mail.emplace_back(std::move(m)); }
  void take(release_blocks&& m) { cache_mail.emplace_back(m); }
  void take(step_finished&& m) { cache_mail.emplace_back(m); }
  void take(publish_blocks&& m) { cache_mail.emplace_back(std::move(m)); }
  void take(run_step&& m) { step = std::move(m); }
  void take(close_sequence&& m) { closed_ids.push_back(m.id.number); }
  void take(park_blocks&& m) { parks.push_back(std::move(m)); }
  void take(prefetch_parked&& m) { prefetched_ids.push_back(m.id.number); }
  void take(restore_blocks&& m) { restores.push_back(std::move(m)); }
  void take(drop_parked&& m) { dropped_ids.push_back(m.id.number); }
  void take(set_alarm&& m) { alarm = m.at; }
  void take(drained&&) { ++drains; }
};

} // namespace troupe::actors::test
