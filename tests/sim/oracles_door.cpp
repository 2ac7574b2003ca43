// SPDX-License-Identifier: Apache-2.0
// Who is let in, who is refused and why, and who has ended.
#include "sim/simulation.hpp"

#include <algorithm>

namespace troupe::sim {

/// Whether the tenant has what its limits ask for, by a bucket kept here.
bool simulation::tenant_may(const tenant_seen& t) const {
  const auto& limits = scenario_.options.tenants;
  const double passed = std::chrono::duration<double>(now_ - t.at).count();
  const double level = std::min(limits.request_burst, t.requests + passed * limits.requests_per_second);
  return (limits.requests_per_second == 0 || level >= 1 - 1e-6) &&
         (limits.max_live == 0 || t.live < limits.max_live);
}

void simulation::note_admitted(actors::request_id id) {
  auto& t = tenants_[of(id).script->tenant];
  const auto& limits = scenario_.options.tenants;
  require(tenant_may(t), "admitted beyond its tenant's limits", id.number);
  const double passed = std::chrono::duration<double>(now_ - t.at).count();
  t.requests = std::min(limits.request_burst, t.requests + passed * limits.requests_per_second) - 1;
  t.at = now_;
  ++t.live;
}

void simulation::check_admission(const actors::admission_request& m) {
  ++submitted_;
  door_priority_ = m.priority;
  auto [tenant, fresh] = tenants_.try_emplace(of(m.id).script->tenant);
  if (fresh) tenant->second.requests = scenario_.options.tenants.request_burst;
  const double use = scheduler_.kv_use(); // before the message; its parts are checked after every turn
  door_use_ = use;
  door_was_full_ = open_ && !draining_ && use >= scenario_.options.kv_high_watermark;
  door_was_shedding_ = open_ && !draining_ && use >= scenario_.options.kv_low_watermark &&
                       m.priority >= scenario_.options.low_priority;
  const auto& o = scenario_.options;
  door_queue_full_ = scheduler_.queued() >= o.max_queue;
  door_could_displace_ =
      m.priority < o.low_priority && std::any_of(seen_.begin(), seen_.end(), [&](const auto& v) {
        const auto& p = of(v.id);
        return !v.seated && !v.closing && !v.started && p.script->group == 0 &&
               p.script->priority >= o.low_priority;
      });
}

void simulation::check_refusal(const actors::refused& m) {
  const auto& o = scenario_.options;
  ++result_.refused;
  note_shut(m);
  auto& tenant = tenants_[of(m.id).script->tenant];
  tenant.live -= of(m.id).handed_in; // it was admitted, and its prompt is refused
  // The door says nothing of levels that let go before.
  require(
      m.why.code != errc::kv_cache_full || full_.on(), "refused as full after the level let go", m.id.number);
  require(
      m.why.code != errc::shed_low_priority || shed_.on() || scheduler_.compute_use() > 0,
      "shed after the level let go", m.id.number);
  require(
      m.why.code != errc::tenant_busy || tenant.live >= o.tenants.max_live,
      "tenant_busy with few requests in hand", m.id.number);
  require(
      m.why.code != errc::rate_limited || o.tenants.tokens_per_second > 0 || !tenant_may(tenant),
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
    require(door_queue_full_, "queue_full while the queue had room", m.id.number);
    require(!door_could_displace_, "queue_full although one of low priority waited", m.id.number);
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
      !m.failed || m.failed->code != errc::queue_timeout || !group_runs(p),
      "a choice timed out in the queue although its request runs", m.id.number);
  require(
      !m.failed || m.failed->code != errc::shed_low_priority ||
          (!p.started && !group_runs(p) &&
           (p.script->group != 0 || p.script->priority >= scenario_.options.low_priority)), // with its group
      "displaced though it runs, or is not of low priority", m.id.number);
  require(cache_.pool().held(m.id) == 0, "sequence_finished before its blocks were free", m.id.number);
  require(
      std::find(running_requests_.begin(), running_requests_.end(), m.id) == running_requests_.end() ||
          cache_.pool().level().limbo == 0,
      "sequence_finished while its blocks are in limbo", m.id.number);
}

} // namespace troupe::sim
