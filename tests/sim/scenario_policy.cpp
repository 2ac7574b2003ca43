// SPDX-License-Identifier: Apache-2.0
// Scenarios of one policy each, where a random one would hardly ever come to it; and settings changed on the
// way.
#include "sim/scenario.hpp"

#include "runtime/rng.hpp"

#include <algorithm>
#include <utility>

namespace troupe::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using rng = runtime::random_stream;

duration between(rng& r, duration a, duration b) {
  return duration(r.between(a.count(), b.count()));
}
template<class T>
T pick(rng& r, std::initializer_list<T> of) {
  return of.begin()[r.below(of.size())];
}
std::uint32_t in(rng& r, std::int64_t a, std::int64_t b) {
  return static_cast<std::uint32_t>(r.between(a, b));
}

client_script client_of(rng& r, std::uint64_t number, std::uint32_t prompt, std::uint32_t max_tokens) {
  client_script c;
  for (std::uint32_t n = prompt; n > 0; --n) c.prompt.push_back(static_cast<std::int32_t>(in(r, 1, 47)));
  c.estimate = prompt;
  c.max_tokens = max_tokens;
  c.seed = 1000 + number;
  return c;
}

/// Some of what can change, and not all at once, so that the rest goes on holding.
void change_some(actors::scheduler_options& o, rng& r) {
  if (r.chance(0.3))
    o.max_wait = r.chance(0.5) ? duration(0) : between(r, microseconds(100), milliseconds(20));
  if (r.chance(0.4)) o.max_queue = pick(r, {0U, 1U, 3U, 8U, 64U});
  if (r.chance(0.3)) o.max_queue_bytes = pick(r, {20U, 200U, 64U << 20});
  if (r.chance(0.3)) o.queue_timeout = between(r, milliseconds(2), milliseconds(60));
  if (r.chance(0.4)) {
    o.kv_low_watermark = 0.3 + 0.7 * r.unit();
    o.kv_high_watermark = o.kv_low_watermark + (r.chance(0.3) ? 2 : 1 - o.kv_low_watermark) * r.unit();
  }
  if (r.chance(0.2)) o.compute_low_watermark = 0.3 + 0.7 * r.unit();
  if (r.chance(0.3))
    for (auto& goal : o.tpot_goals)
      goal = r.chance(0.5) ? between(r, microseconds(50), milliseconds(4)) : duration(0);
  if (r.chance(0.3)) o.ttft_goal = between(r, microseconds(100), milliseconds(40));
  if (r.chance(0.4)) {
    o.tenants.max_live = pick(r, {0U, 1U, 3U});
    o.tenants.requests_per_second = pick(r, {0.0, 20.0, 200.0});
    o.tenants.request_burst = pick(r, {1.0, 3.0});
    o.tenants.tokens_per_second = pick(r, {0.0, 0.0, 100.0, 5000.0});
    o.tenants.token_burst = pick(r, {10.0, 1000.0});
  }
}

} // namespace

std::vector<policy_change> draw_policy_changes(const scenario& s, rng& r, duration until) {
  std::vector<policy_change> all;
  actors::scheduler_options now = s.options;
  for (std::uint32_t n = in(r, 1, 5); n > 0; --n) all.push_back({between(r, duration(0), until), {}});
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  for (policy_change& c : all) {
    change_some(now, r);
    if (r.chance(0.2)) now = s.options; // as it was
    c.to = now;
  }
  return all;
}

/// A few long requests of low class, and short ones of higher class that take a seat whenever one has drawn
/// enough to yield: who yields, how often, and where it waits then.
scenario make_lost_seats(rng& r) {
  scenario s;
  s.block_tokens = 4;
  s.context = 512;
  s.blocks = 1024;
  s.step_time = microseconds(200);
  s.model.vocabulary = 48;
  auto& o = s.options;
  o.max_batch = in(r, 2, 4);
  o.max_step_tokens = 64;
  o.max_queue = 1000;
  o.queue_timeout = std::chrono::seconds(3600);
  o.kv_low_watermark = o.kv_high_watermark = 1;
  o.prefix_cache = r.chance(0.5);
  o.ageing_quantum =
      pick<duration>(r, {milliseconds(8), milliseconds(20), milliseconds(200), milliseconds(5000)});
  o.ttft_goal = between(r, microseconds(300), milliseconds(3));
  const bool at_once = r.chance(0.6), tenants = r.chance(0.5);
  const std::uint32_t low = at_once ? 9 : 6;
  std::uint32_t number = 0;
  for (std::uint32_t n = in(r, o.max_batch, 2 * o.max_batch + 1); n > 0; --n) {
    client_script c = client_of(r, number++, in(r, 2, 20), in(r, 150, 400));
    c.arrives = between(r, milliseconds(1), milliseconds(2));
    c.priority = r.chance(0.8) ? low : low - 1;
    c.ignore_eos = true;
    if (tenants) c.tenant = pick(r, {"a", "b"});
    s.clients.push_back(std::move(c));
  }
  duration when = milliseconds(6);
  for (std::uint32_t n = in(r, 6, 16); n > 0; --n) {
    client_script c = client_of(r, number++, in(r, 2, 12), in(r, 1, 8));
    c.arrives = when;
    c.priority = in(r, 0, low - 2);
    if (tenants) c.tenant = pick(r, {"a", "b", "c"});
    when += between(r, milliseconds(1), milliseconds(9));
    s.clients.push_back(std::move(c));
  }
  if (r.chance(0.5)) {
    s.policy_changes.push_back({between(r, milliseconds(4), when), o});
    s.policy_changes.back().to.ttft_goal = pick<duration>(r, {microseconds(300), milliseconds(20)});
  }
  return s;
}

/// Steps that fail, prompts of many steps, a pool for hardly more than one sequence, and readers who stop and
/// go on: a suspect is tried alone with blocks that its elder wants back.
scenario make_suspects(rng& r) {
  scenario s;
  s.block_tokens = 4;
  s.context = 64;
  s.blocks = in(r, 16, 26);
  s.step_time = microseconds(200);
  s.model.vocabulary = 48;
  s.faults.step_fails = 0.05 + 0.15 * r.unit();
  auto& o = s.options;
  o.max_batch = 8;
  o.max_step_tokens = pick(r, {2U, 4U, 8U});
  o.prefix_cache = false;
  o.kv_low_watermark = o.kv_high_watermark = 3;
  const auto count = in(r, 3, 6);
  for (std::uint32_t i = 0; i < count; ++i) {
    client_script c = client_of(r, i, in(r, 10, 40), in(r, 12, 24));
    c.arrives = between(r, milliseconds(1), milliseconds(6));
    c.ignore_eos = true;
    c.credit = in(r, 1, 4);
    c.reads_after = between(r, milliseconds(1), milliseconds(12));
    s.clients.push_back(std::move(c));
  }
  return s;
}

} // namespace troupe::sim
