// SPDX-License-Identifier: Apache-2.0
// Swarm testing (Groce et al., ISSTA 2012): every seed leaves most features out, so that each gets its turn.
#include "sim/scenario.hpp"

#include "runtime/rng.hpp"

#include <algorithm>

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

struct features {
  bool priorities, deadlines, cancels, slow_readers, stop_ids, stop_strings, long_prompts, wrong_estimates,
      poison, not_finite, tokenising_fails, limits, logprobs, echoes, groups, prefixes, tenants;
  explicit features(rng& r) :
      priorities(r.chance(0.5)), deadlines(r.chance(0.25)), cancels(r.chance(0.4)),
      slow_readers(r.chance(0.4)), stop_ids(r.chance(0.3)), stop_strings(r.chance(0.4)),
      long_prompts(r.chance(0.4)), wrong_estimates(r.chance(0.3)), poison(r.chance(0.15)),
      not_finite(r.chance(0.2)), tokenising_fails(r.chance(0.15)), limits(r.chance(0.3)),
      logprobs(r.chance(0.3)), echoes(r.chance(0.3)), groups(r.chance(0.2)), prefixes(r.chance(0.4)),
      tenants(r.chance(0.3)) {}
};

void make_settings(scenario& s, rng& r) {
  auto& o = s.options;
  s.block_tokens = pick(r, {1U, 2U, 3U, 4U, 8U});
  s.context = in(r, 12, 80);
  const std::uint32_t per_sequence = (s.context + s.block_tokens - 1) / s.block_tokens;
  s.blocks = r.chance(0.15) ? in(r, std::max(2U, per_sequence / 2), per_sequence)
                            : in(r, per_sequence, std::max<std::int64_t>(per_sequence * in(r, 1, 8), 4));
  o.max_batch = pick(r, {1U, 2U, 3U, 4U, 8U, 16U});
  o.max_step_tokens = pick(r, {1U, 2U, 4U, 8U, 16U, 64U});
  o.max_scored_rows = pick(r, {1U, 3U, 64U});
  if (r.chance(0.3)) o.max_wait = between(r, microseconds(100), milliseconds(20));
  o.max_queue = pick(r, {0U, 1U, 3U, 8U, 64U, 64U});
  o.queue_timeout =
      r.chance(0.3) ? between(r, milliseconds(2), milliseconds(60)) : duration(std::chrono::seconds(60));
  if (r.chance(0.3)) o.preempt_every = in(r, 1, 5);
  o.prefix_cache = r.chance(0.8);
  o.least_prefill_rows = pick(r, {1U, 2U, 4U, 32U});
  if (r.chance(0.3))
    for (auto& goal : o.tpot_goals)
      goal = r.chance(0.7) ? between(r, microseconds(50), milliseconds(4)) : duration(0);
  o.ttft_goal = between(r, microseconds(100), milliseconds(40));
  o.low_priority = pick(r, {4U, 7U, 7U});
  if (r.chance(0.15)) {
    o.tenants.max_live = pick(r, {0U, 1U, 3U});
    o.tenants.requests_per_second = pick(r, {0.0, 20.0, 200.0});
    o.tenants.request_burst = pick(r, {1.0, 3.0});
    o.tenants.tokens_per_second = pick(r, {0.0, 100.0, 5000.0});
    o.tenants.token_burst = pick(r, {10.0, 1000.0});
  }
  o.ageing_quantum = between(r, microseconds(200), milliseconds(50));
  if (r.chance(0.3)) {
    o.kv_low_watermark = 0.4 + 0.5 * r.unit();
    o.kv_high_watermark = o.kv_low_watermark + (1.0 - o.kv_low_watermark) * r.unit();
  }
  if (r.chance(0.4)) { // seats for more than the pool holds: shortages must be met by preemption
    o.kv_low_watermark = 1.0 + 3 * r.unit();
    o.kv_high_watermark = o.kv_low_watermark + r.unit();
  }
  s.model.end_permille = pick(r, {0U, 10U, 50U, 200U});
  if (r.chance(0.2)) s.model.border = in(r, 1, s.limit());
  s.model.vocabulary = pick(r, {4U, 16U, 48U});
  // A third of the steps end before the mail of the last one is read.
  s.step_time = r.chance(0.3) ? between(r, duration(0), microseconds(20))
                              : between(r, microseconds(50), milliseconds(3));
  s.hop = pick<duration>(r, {duration(0), microseconds(2), microseconds(50)});
  if (r.chance(0.3)) s.lazy = in(r, 0, 5);
  if (r.chance(0.2)) s.model_loads = between(r, duration(0), milliseconds(5));
}

void make_faults(scenario& s, rng& r) {
  auto& f = s.faults;
  if (r.chance(0.2)) f.step_fails = 0.3 * r.unit();
  if (r.chance(0.2)) f.doubled_answer = 0.5 * r.unit();
  if (r.chance(0.2)) f.late_answer = 0.5 * r.unit();
  if (r.chance(0.2)) f.allocation_fails = 0.05 * r.unit();
  if (r.chance(0.3)) f.alarm_lateness = between(r, microseconds(10), milliseconds(5));
}

/// Room for a part of a sequence or for several; more often than not everything that fits is parked.
void make_parking(scenario& s, rng& r) {
  const std::uint32_t per_sequence = (s.limit() + s.block_tokens - 1) / s.block_tokens;
  s.park_memory = in(r, 1, r.chance(0.7) ? per_sequence : 4 * per_sequence);
  if (r.chance(0.8)) s.park_disk = in(r, 1, 4 * per_sequence);
  s.options.park = r.chance(0.7) ? actors::park_choice::always : actors::park_choice::by_cost;
  s.copy_time = r.chance(0.3) ? duration(0) : between(r, microseconds(1), microseconds(200));
  if (r.chance(0.5) && s.options.preempt_every == 0) s.options.preempt_every = in(r, 1, 5);
  if (r.chance(0.4)) s.faults.disk_fails = r.unit();
  if (r.chance(0.4)) s.faults.disk_spoils = r.unit();
}

/// The engine's actors crash: by lot, and over clients that bring them down.
void make_crashes(scenario& s, rng& r) {
  s.faults.most_crashes = in(r, 1, 6);
  s.faults.crashes = r.chance(0.5) ? 0.02 * r.unit() : 0.2 * r.unit();
  s.faults.restart_delay = r.chance(0.3) ? duration(0) : between(r, duration(0), milliseconds(5));
  if (r.chance(0.5))
    for (auto& c : s.clients) c.crasher = r.chance(0.1);
}

client_script
make_client(const scenario& s, const features& f, rng& r, duration spread, std::uint64_t number) {
  client_script c;
  c.arrives = s.model_loads + milliseconds(1) + between(r, duration(0), spread);
  if (r.chance(0.02)) c.arrives = duration(0); // before the model is there
  const std::uint32_t limit = s.limit();
  const auto length =
      f.long_prompts && r.chance(0.3) ? in(r, 1, limit + 4) : in(r, 1, std::max<std::int64_t>(1, limit / 3));
  for (std::uint32_t i = 0; i < length; ++i)
    c.prompt.push_back(static_cast<std::int32_t>(in(r, 1, s.model.vocabulary - 1)));
  if (r.chance(0.01)) c.prompt.clear();
  c.estimate = f.wrong_estimates ? in(r, 0, 2 * limit) : length;
  if (f.priorities) c.priority = in(r, 0, 9);
  c.max_tokens = r.chance(0.2) ? actors::no_limit : in(r, 1, limit);
  if (f.limits && r.chance(0.1)) c.max_tokens = 0;
  if (f.limits && r.chance(0.4)) c.min_tokens = in(r, 1, 12);
  c.ignore_eos = f.limits && r.chance(0.3);
  if (f.stop_ids && r.chance(0.5)) c.stop_ids = {static_cast<std::int32_t>(in(r, 1, s.model.vocabulary - 1))};
  if (f.stop_strings && r.chance(0.6)) {
    const plain_text names({});
    std::string stop;
    for (std::uint32_t n = in(r, 1, 3); n > 0; --n)
      stop += names.bytes_of(static_cast<std::int32_t>(in(r, 1, std::min(s.model.vocabulary - 1, 6U))));
    c.stops = {stop};
  }
  c.logprobs = f.logprobs && r.chance(0.5);
  if (c.logprobs) c.top_logprobs = in(r, 0, 3);
  c.seed = 1000 + number;
  if (f.slow_readers) {
    c.credit = in(r, 1, 6);
    c.reads_after = r.chance(0.5) ? between(r, duration(0), milliseconds(30)) : duration(0);
    if (r.chance(0.3)) c.stops_reading_at = in(r, 0, 10);
    c.slow_consumer = between(r, milliseconds(5), milliseconds(200));
  }
  if (f.deadlines && r.chance(0.5)) c.deadline = between(r, microseconds(50), milliseconds(80));
  c.tokenising = r.chance(0.5) ? duration(0) : between(r, duration(0), milliseconds(4));
  c.tokenising_fails = f.tokenising_fails && r.chance(0.2);
  if (f.cancels && r.chance(0.3)) c.leaves_at = in(r, 0, 12);
  if (f.cancels && r.chance(0.3)) // a third while the door is still thinking
    c.leaves_after = between(r, duration(0), r.chance(0.3) ? microseconds(40) : spread + milliseconds(20));
  c.poison = f.poison && r.chance(0.2);
  if (f.not_finite && r.chance(0.3)) c.not_finite_token = in(r, 0, 8);
  c.echo = f.echoes && r.chance(0.6);
  if (f.groups && r.chance(0.7)) c.group = in(r, 1, 3);
  if (f.prefixes) c.tenant = r.chance(0.8) ? "" : "other";
  if (f.tenants) c.tenant = pick(r, {"a", "a", "b", "c"});
  return c;
}

/// Most prompts begin as an earlier one does, some are the same whole.
void share_beginnings(scenario& s, rng& r) {
  for (std::size_t i = 1; i < s.clients.size(); ++i) {
    auto& prompt = s.clients[i].prompt;
    const auto& other = s.clients[r.below(i)].prompt;
    if (prompt.empty() || other.empty() || r.chance(0.2)) continue;
    const std::size_t common =
        r.chance(0.3) ? other.size() : in(r, 1, static_cast<std::int64_t>(other.size()));
    if (prompt.size() < common) prompt.resize(common);
    std::copy_n(other.begin(), common, prompt.begin());
  }
}

} // namespace

/// Two tenants who want much more than there is, one with long requests and one with short ones.
scenario make_two_floods(rng& r) {
  scenario s;
  s.two_floods = true;
  s.block_tokens = 4;
  s.context = 64;
  s.blocks = 16 * in(r, 2, 4);
  s.step_time = microseconds(200);
  s.model.vocabulary = 48;
  s.model.end_permille = pick(r, {0U, 30U, 200U});
  auto& o = s.options;
  o.max_batch = pick(r, {1U, 2U, 4U});
  o.max_step_tokens = 64;
  o.max_queue = 1000;
  o.ageing_quantum = between(r, microseconds(200), milliseconds(50));
  o.queue_timeout = std::chrono::seconds(3600);
  o.kv_low_watermark = o.kv_high_watermark = 1;
  o.prefix_cache = false;
  const std::uint32_t most[] = {in(r, 4, 40), in(r, 4, 40)};
  const bool full_length[] = {r.chance(0.3), r.chance(0.5)};
  for (std::uint32_t i = 0; i < 120; ++i) {
    const auto tenant = static_cast<std::size_t>(i % 5 == 0); // one comes with four times as many
    client_script c;
    c.arrives = tenant == 0 ? milliseconds(1) : duration(milliseconds(2)); // whose ages are greater
    c.tenant = tenant == 0 ? "many" : "few";
    c.ignore_eos = full_length[tenant]; // else answers end before what was foreseen
    for (std::uint32_t n = in(r, 1, most[tenant] / 2 + 1); n > 0; --n)
      c.prompt.push_back(static_cast<std::int32_t>(in(r, 1, 47)));
    c.estimate = static_cast<std::uint32_t>(c.prompt.size());
    c.max_tokens = in(r, 1, most[tenant]);
    c.seed = 1000 + i;
    s.clients.push_back(std::move(c));
  }
  return s;
}

/// Prompts of very different lengths at once, with room for all of them: how they share the rows of steps.
scenario make_lengths(rng& r) {
  scenario s;
  s.block_tokens = 16;
  s.context = 1024;
  s.blocks = 1024;
  s.step_time = microseconds(200);
  s.model.vocabulary = 48;
  auto& o = s.options;
  o.max_batch = 8;
  o.max_step_tokens = pick(r, {16U, 64U, 100U});
  o.prefix_cache = r.chance(0.5);
  const auto count = in(r, 2, 8);
  for (std::uint32_t i = 0; i < count; ++i) {
    client_script c;
    c.arrives = between(r, duration(0), milliseconds(2));
    c.priority = in(r, 0, 6);
    for (std::uint32_t n = r.chance(0.5) ? in(r, 20, 120) : in(r, 200, 800); n > 0; --n)
      c.prompt.push_back(static_cast<std::int32_t>(in(r, 1, 47)));
    c.estimate = static_cast<std::uint32_t>(c.prompt.size());
    c.max_tokens = in(r, 1, 4);
    c.seed = 1000 + i;
    s.clients.push_back(std::move(c));
  }
  return s;
}

actors::park_costs costs_of(const scenario& s) {
  return {s.copy_time, s.copy_time, 20 * s.copy_time, 20 * s.copy_time};
}

scenario make_scenario(std::uint64_t seed) {
  rng r(seed, 1);
  if (seed % 50 == 25) return make_lengths(r);
  if (seed % 25 == 10) return make_choices(r);
  if (seed % 50 == 0) return make_two_floods(r);
  if (seed % 50 == 10 || seed % 50 == 35) return make_lost_seats(r);
  if (seed % 50 == 15) return make_suspects(r);
  scenario s;
  make_settings(s, r);
  make_groups(s, seed);
  make_faults(s, r);
  const features f(r);
  const auto count = in(r, 1, r.chance(0.1) ? 40 : 14);
  const duration spread = r.chance(0.3) ? duration(0) : between(r, duration(0), milliseconds(60));
  for (std::uint32_t i = 0; i < count; ++i) s.clients.push_back(make_client(s, f, r, spread, i));
  if (f.prefixes) share_beginnings(s, r);
  if (r.chance(0.15)) s.drain_at = between(r, duration(0), spread + milliseconds(20));
  if (s.drain_at && r.chance(0.4)) s.cut_at = *s.drain_at + between(r, duration(0), milliseconds(20));
  if (r.chance(0.2))
    for (std::uint32_t n = in(r, 1, 6); n > 0; --n)
      s.memory_orders.push_back(
          {between(r, duration(0), spread + milliseconds(40)), in(r, 1, s.options.max_batch), r.chance(0.5)});
  if (r.chance(0.6)) make_parking(s, r);
  if (r.chance(0.15)) s.options.max_queue_bytes = pick(r, {20U, 100U, 400U});
  s.options.batch_patience = between(r, microseconds(1), milliseconds(20));
  if (r.chance(0.25)) s.policy_changes = draw_policy_changes(s, r, spread + milliseconds(40));
  if (r.chance(0.25)) make_crashes(s, r);
  return s;
}

} // namespace troupe::sim
