// SPDX-License-Identifier: Apache-2.0
// Prefixes: who shares which blocks, who waits for whom, and what becomes known.
#include "actors/scheduler_core.hpp"

#include <algorithm>
#include <new>
#include <utility>
#include <xxhash.h>

namespace troupe::actors {
namespace {

/// Tokens behind the last full block of a prompt that are computed sooner than waited for.
constexpr std::size_t short_tail = 2;

} // namespace

/// Numbers the full blocks of the prompt, and the whole of it. The numbers only guess who shares what; the
/// cache manager compares the tokens themselves.
void scheduler_core::place(sequence& s) {
  if (beyond_border(s) != s.beyond) {
    s.beyond = !s.beyond;
    s.salt = ~s.salt; // computed with other frequencies
  }
  s.chain.clear();
  if (!options_.prefix_cache) return;
  const auto& prompt = *s.wish.prompt;
  const std::size_t step = model_.block_tokens;
  std::uint64_t number = s.salt;
  std::size_t end = step;
  for (; end < prompt.size(); end += step) {
    number = XXH3_64bits_withSeed(prompt.data() + end - step, step * sizeof(std::int32_t), number);
    s.chain.push_back(number);
  }
  const std::size_t tail = prompt.size() - (end - step);
  // Never the number of a full block, which others share without a copy.
  if (tail > short_tail && !groups_.forgets())
    s.chain.push_back(XXH3_64bits_withSeed(prompt.data() + end - step, tail * sizeof(std::int32_t), ~number));
}

/// What has outgrown the model's first set of frequencies is computed anew with the second, as a sequence of
/// that length would have been from the start. Never in a running step.
void scheduler_core::cross_border(sequence& s, turn& t) {
  if (s.phase == phase::admitted || s.beyond == beyond_border(s)) return;
  if (s.phase == phase::running) preempt(s, t);
  place(s);
}

void scheduler_core::enter_chain(sequence& s) {
  if (std::exchange(s.chained, true)) return;
  for (const std::uint64_t number : s.chain) {
    auto& b = begun_prefixes_.try_emplace(number, begun_prefix{s.id, 0}).first->second;
    ++b.holders;
  }
}

void scheduler_core::leave_chain(sequence& s) {
  if (!std::exchange(s.chained, false)) return;
  for (const std::uint64_t number : s.chain) {
    const auto at = begun_prefixes_.find(number);
    if (--at->second.holders == 0)
      begun_prefixes_.erase(at);
    else if (at->second.computes == s.id)
      at->second.computes = {}; // whoever else holds it found it computed
  }
}

scheduler_core::shared_prefix scheduler_core::shared_with_running(const sequence& s) const {
  shared_prefix shared;
  for (const std::uint64_t number : s.chain) {
    const auto at = begun_prefixes_.find(number);
    if (at == begun_prefixes_.end()) break;
    ++shared.numbers;
    const auto first = sequences_.find(at->second.computes);
    if (first == sequences_.end()) continue;
    const sequence& other = first->second;
    const std::uint32_t end = std::min(shared.numbers * model_.block_tokens, s.prompt_tokens);
    shared.being_computed = other.computed < end && !other.paused && elder(other, s);
  }
  shared.blocks = std::min(shared.numbers, full_blocks(s));
  return shared;
}

/// What the plan needs: of one that begins, rows behind what is known already.
block_demand scheduler_core::demand_of(const sequence& s, const planned& p) const {
  block_demand demand{s.id, p.first + p.count, nullptr, s.salt, p.first, p.restores};
  if (p.restores && groups_.forgets()) return demand; // all of it comes back, into a table with its holes
  if (s.phase != phase::ready || !may_find(s)) return demand;
  demand.prefix = s.wish.prompt;
  if (!s.generated.empty()) {
    std::vector<std::int32_t> all(s.wish.prompt->begin(), s.wish.prompt->end());
    all.insert(all.end(), s.generated.begin(), s.generated.end());
    demand.prefix = std::make_shared<const std::vector<std::int32_t>>(std::move(all));
  }
  return demand;
}

/// The first positions, which are cached or come with a copy, need no rows: the plan's rows of this sequence
/// move behind them.
void scheduler_core::begin_behind(sequence& s, const block_grant& granted) {
  const std::uint32_t cached = granted.cached;
  enter_chain(s);
  if (may_find(s)) stats_.prefix_asked_tokens += s.known();
  stats_.prefix_found_tokens += cached;
  s.computed = cached;
  s.copy = granted.copy;
  s.published = cached - cached % model_.block_tokens;
  s.passed = std::max(cached, goes_on_at(s));
  if (cached == 0) return;
  const auto p = std::find_if(plan_.begin(), plan_.end(), [&](const planned& x) { return x.id == s.id; });
  if (p == plan_.end()) return;
  p->first = cached;
  p->count = std::min(p->count, s.known() - cached);
  p->want_token = cached + p->count == s.known() && s.wish.max_tokens > 0;
}

/// Blocks that the step filled, and the ends of prompts, are known from now on; not those of rows with NaN or
/// Inf.
void scheduler_core::publish(const step_done& m, turn& t) {
  publish_blocks news;
  const std::size_t answered = std::min(plan_.size(), m.results.size());
  for (std::size_t i = 0; i < answered; ++i) {
    auto* s = find(plan_[i].id);
    if (s == nullptr || s->phase != phase::running || m.results[i].id != s->id || m.results[i].not_finite)
      continue;
    note_filled(*s, plan_[i].first + plan_[i].count, news);
  }
  if (!news.all.empty()) t.out.emplace_back(std::move(news));
}

/// The full ones of the blocks that hold the sequence's first `end` positions; when its prompt is computed,
/// once, also what is in the last one. What there is no memory to tell is not found, now and later.
void scheduler_core::note_filled(sequence& s, std::uint32_t end, publish_blocks& news) {
  const std::uint32_t full = end - end % model_.block_tokens;
  const bool tail = end >= s.prompt_tokens && !s.tail_published;
  const std::uint32_t upto = tail ? end : full;
  if (!options_.prefix_cache || upto <= s.published) return;
  try {
    filled_blocks filled{s.id, s.published / model_.block_tokens, s.salt, {}};
    filled.tokens.reserve(upto - s.published);
    for (std::uint32_t p = s.published; p < upto; ++p)
      filled.tokens.push_back(p < s.prompt_tokens ? (*s.wish.prompt)[p] : s.generated[p - s.prompt_tokens]);
    news.all.push_back(std::move(filled));
    s.published = full;
    s.tail_published = s.tail_published || tail;
  } catch (const std::bad_alloc&) {
  }
}

} // namespace troupe::actors
