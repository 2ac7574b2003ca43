// SPDX-License-Identifier: Apache-2.0
// Who is let in, who is refused and why, and who has ended.
#include "sim/simulation.hpp"

#include <algorithm>

namespace troupe::sim {

/// A tenant's bucket, kept here too: how many requests it may begin, from `level` on.
double simulation::filled(const tenant_seen& t, double level) const {
  const double passed = std::chrono::duration<double>(now_ - t.at).count();
  return std::min(policy_.tenants.request_burst, level + passed * policy_.tenants.requests_per_second);
}

void simulation::note_admitted(actors::request_id id) {
  auto& t = tenants_[of(id).script->tenant];
  const auto& limits = policy_.tenants;
  const bool limited = limits.requests_per_second > 0;
  t.requests = filled(t, t.requests);
  t.at_least = filled(t, t.at_least);
  t.at = now_;
  require(
      (!limited || t.requests >= 1 - 1e-6) && (limits.max_live == 0 || t.live < limits.max_live),
      "admitted beyond its tenant's limits", id.number);
  if (limited) {
    t.requests -= 1;
    t.at_least -= 1;
  }
  ++t.live;
}

void simulation::check_admission(const actors::admission_request& m) {
  ++submitted_;
  door_priority_ = m.priority;
  auto [tenant, fresh] = tenants_.try_emplace(of(m.id).script->tenant);
  if (fresh) tenant->second.requests = tenant->second.at_least = policy_.tenants.request_burst;
  const double use = scheduler_.kv_use(); // before the message; its parts are checked after every turn
  door_use_ = use;
  door_was_full_ = open_ && !drain_told_ && use >= policy_.kv_high_watermark;
  door_was_shedding_ =
      open_ && !drain_told_ && use >= policy_.kv_low_watermark && m.priority >= policy_.low_priority;
  const auto& o = policy_;
  door_queued_ = scheduler_.queued();
  door_bytes_ = scheduler_.queued_bytes();
  door_yielded_ = scheduler_.stats().seats_yielded;
  door_queue_full_ = door_queued_ >= o.max_queue;
  door_bytes_full_ =
      door_bytes_ + m.prompt_tokens * sizeof(std::int32_t) + m.tenant.size() > o.max_queue_bytes;
  door_could_displace_ =
      m.priority < o.low_priority && std::any_of(seen_.begin(), seen_.end(), [&](const auto& v) {
        const auto& p = of(v.id);
        return !v.seated && !v.closing && !v.started && p.script->group == 0 &&
               p.script->priority >= o.low_priority;
      });
}

void simulation::check_refusal(const actors::refused& m) {
  const auto& o = policy_;
  ++result_.refused;
  refused_one_ = true;
  note_shut(m);
  auto& tenant = tenants_[of(m.id).script->tenant];
  tenant.live -= of(m.id).handed_in; // it was admitted, and its prompt is refused
  require(
      !of(m.id).came_back || of(m.id).expects_refusal, "refused although it was let in before a crash",
      m.id.number);
  // The door says nothing of levels that let go before.
  require(
      m.why.code != errc::kv_cache_full || full_.on(), "refused as full after the level let go", m.id.number);
  require(
      m.why.code != errc::shed_low_priority || shed_.on() || scheduler_.compute_use() > 0,
      "shed after the level let go", m.id.number);
  require(
      m.why.code != errc::tenant_busy || (o.tenants.max_live > 0 && tenant.live >= o.tenants.max_live),
      "tenant_busy with few requests in hand", m.id.number);
  const bool begins_too_often =
      o.tenants.requests_per_second > 0 && filled(tenant, tenant.at_least) < 1 + 1e-6;
  require(
      m.why.code != errc::rate_limited || o.tenants.tokens_per_second > 0 || begins_too_often,
      "rate_limited within its rate", m.id.number);
  const double use = std::max(door_use_, scheduler_.kv_use()); // a plan may have followed in the same turn
  switch (m.why.code) {
  case errc::kv_cache_full:
    require(
        use >= actors::reopening_level(o.kv_high_watermark, o.hysteresis) - 1e-9,
        "refused below the watermark", m.id.number);
    break;
  case errc::shed_low_priority:
    require(
        use >= actors::reopening_level(o.kv_low_watermark, o.hysteresis) - 1e-9 ||
            scheduler_.compute_use() >= actors::reopening_level(o.compute_low_watermark, o.hysteresis) - 1e-9,
        "shed below the watermarks", m.id.number);
    require(of(m.id).script->priority >= o.low_priority, "a high priority was shed", m.id.number);
    break;
  case errc::queue_full: {
    require(door_queue_full_ || door_bytes_full_, "queue_full while the queue had room", m.id.number);
    require(
        !door_could_displace_ || door_bytes_full_, "queue_full although one of low priority waited",
        m.id.number);
    const bool nobody = seen_.empty();
    require(!nobody, "queue_full although a place was free", m.id.number);
    break;
  }
  case errc::draining:
    require(draining_, "draining before the drain", m.id.number);
    break;
  case errc::model_loading:
    require(!open_, "model_loading after it was loaded", m.id.number);
    break;
  default:
    break;
  }
}

/// Told only once, and only when the ledger holds nothing for the request any more.
void simulation::check_finish(const actors::sequence_finished& m) {
  --tenants_[of(m.id).script->tenant].live;
  auto& p = of(m.id);
  require(!p.finished, "sequence_finished twice", m.id.number);
  check_displaced(m);
  p.finished = m;
  require(
      !m.failed || m.failed->code != errc::queue_timeout ||
          (!p.started && now_ >= group_submitted(p) + policy_.queue_timeout),
      "timed out in the queue before its time", m.id.number);
  require(
      !m.failed || m.failed->code != errc::queue_timeout || !group_runs(p),
      "a choice timed out in the queue although its request runs", m.id.number);
  require(
      !m.failed || m.failed->code != errc::shed_low_priority ||
          (!p.started && !group_runs(p) &&
           (p.script->group != 0 || p.script->priority >= policy_.low_priority)), // with its group
      "displaced though it runs, or is not of low priority", m.id.number);
  require(cache_.pool().held(m.id) == 0, "sequence_finished before its blocks were free", m.id.number);
  require(
      std::find(running_requests_.begin(), running_requests_.end(), m.id) == running_requests_.end() ||
          cache_.pool().level().limbo == 0,
      "sequence_finished while its blocks are in limbo", m.id.number);
}

} // namespace troupe::sim
