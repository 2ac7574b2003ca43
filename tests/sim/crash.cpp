// SPDX-License-Identifier: Apache-2.0
// Crashes of the engine's actors: what is lost, who is to blame, and how the requests come back. The cores
// are the real ones; what engine/engine_end.cpp does around them is done here.
#include "sim/simulation.hpp"

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>

namespace troupe::sim {
namespace {

constexpr auto look_again = std::chrono::microseconds(200); // for the end of what the backend still does

template<class Core, class... Args>
void make_anew(Core& core, Args&&... args) {
  std::destroy_at(&core);
  std::construct_at(&core, std::forward<Args>(args)...);
}

} // namespace

bool simulation::brings_down(const delivery& d) {
  if (scenario_.faults.most_crashes == 0 || !open_) return false;
  if (const auto* step = std::get_if<actors::run_step>(&d.message); step != nullptr)
    if (std::any_of(step->entries.begin(), step->entries.end(), [this](const auto& e) {
          return of(e.id).script->crasher;
        }))
      return true;
  if (crashes_ >= scenario_.faults.most_crashes || !chance_.chance(scenario_.faults.crashes)) return false;
  ++crashes_;
  return true;
}

/// As the shells name them.
std::vector<std::uint64_t> simulation::named_at_crash(const delivery& d) const {
  std::vector<std::uint64_t> named;
  const auto note = [&](const std::vector<actors::request_id>& ids) {
    for (const auto& id : ids) named.push_back(id.number);
  };
  if (d.to == scheduler) note(scheduler_.planned_requests());
  if (d.to == executor) note(executor_.requests_in_step());
  if (const auto* ask = std::get_if<actors::reserve_blocks>(&d.message); ask != nullptr)
    for (const auto& demand : ask->demands) named.push_back(demand.id.number);
  if (const auto* news = std::get_if<actors::publish_blocks>(&d.message); news != nullptr)
    for (const auto& filled : news->all) named.push_back(filled.id.number);
  return named;
}

/// In the message, or after it: then what its handler said has been sent.
void simulation::crash(delivery d) {
  const std::uint64_t own = std::visit([](const auto& m) { return runtime::message_request(m); }, d.message);
  std::vector<std::uint64_t> named = named_at_crash(d);
  const party to = d.to;
  const bool over_a_crasher = std::holds_alternative<actors::run_step>(d.message);
  if (!over_a_crasher && chance_.chance(0.5)) {
    handle(std::move(d));
    if (to == scheduler) {
      named.clear();
      for (const auto& id : scheduler_.planned_requests()) named.push_back(id.number);
    }
  }
  if (record_ != nullptr) record_->noted(to, "crashes", own, now_);
  ++result_.crashes;
  std::vector<std::uint64_t> in_step;
  for (const auto& id : running_requests_) in_step.push_back(id.number);
  auto in_hand = actors::in_hand_at_crash(own, in_step, named);
  std::erase_if(in_hand, [this](std::uint64_t number) {
    const participant& p = participants_.at(number - 1);
    return !p.core || p.retired;
  });
  lose_actors();
  judge(in_hand);
  if (cut_ordered_) return give_up();
  at(now_ + scenario_.faults.restart_delay, [this] { rebuild_if_quiet(); });
}

/// The rule, reckoned anew: only one that is in hand alone, and was at a crash since its last token, is to
/// blame.
void simulation::judge(const std::vector<std::uint64_t>& in_hand) {
  std::vector<actors::blame_core::request_in_hand> known;
  for (const auto number : in_hand) {
    known.push_back({number, number});
    ++participants_.at(number - 1).crashes;
  }
  const bool guilty = in_hand.size() == 1 && participants_.at(in_hand.front() - 1).suspicious;
  const auto poison = blame_.crashed(known);
  require(
      poison.has_value() == guilty, guilty ? "poison is not found" : "a request is blamed without cause",
      in_hand.empty() ? 0 : in_hand.front());
  for (const auto number : in_hand) participants_.at(number - 1).suspicious = true;
  if (!poison) return;
  require(*poison == in_hand.front(), "another request is blamed", *poison);
  auto& p = participants_.at(*poison - 1);
  p.condemned = true;
  ++result_.condemned;
  end_by_engine(p, {errc::poison_request, "the engine failed twice over this request", {}, 0});
}

/// The five cores and all mail to them. What the backend and the parker's worker do goes on.
void simulation::lose_actors() {
  const auto s = scheduler_.stats();
  std::uint64_t ended = s.finished_stop + s.finished_length + s.cancelled;
  for (const auto n : s.failed) ended += n;
  require(
      ended + scheduler_.requests().size() == s.submitted,
      "the counters of a scheduler that crashed are wrong");
  require(s.steps == steps_launched_, "steps were miscounted");
  add_sums();
  down_ = true;
  mail_.lose([](party to) { return of_engine(to); });
  make_anew(scheduler_, *options_);
  const kernels::kv_groups groups(scenario_.block_tokens, scenario_.model.windows);
  make_anew(cache_, actors::pool_key{3, 0, 0}, scenario_.blocks, groups);
  make_anew(executor_, groups);
  make_anew(guard_);
  make_anew(parker_, actors::park_limits{scenario_.park_memory, scenario_.park_disk, costs_of(scenario_)});
  scheduler_effects_.clear();
  cache_effects_.clear();
  executor_effects_.clear();
  guard_effects_.clear();
  park_effects_.clear();
  old_answer_.reset();
  ++scheduler_alarm_;
  forget_generation();
}

/// The policy that the engine makes a scheduler with.
void simulation::follow_policy() {
  policy_ = *options_;
  full_ = {policy_.kv_high_watermark, actors::reopening_level(policy_.kv_high_watermark, policy_.hysteresis)};
  shed_ = {policy_.kv_low_watermark, actors::reopening_level(policy_.kv_low_watermark, policy_.hysteresis)};
}

/// What was seen of these actors.
void simulation::forget_generation() {
  scheduler_alarm_at_ = time_point::max();
  running_requests_.clear();
  running_rows_.clear();
  ending_.clear();
  limbo_allowed_ = 0;
  checked_step_ = plan_seq_ = steps_launched_ = 0;
  short_of_blocks_.clear();
  prompts_starved_ = 0;
  could_be_seated_ = {};
  step_ran_ = launched_ = shortage_ = false;
  tenants_.clear();
  follow_policy();
  step_ended_ = false;
  batch_limit_ = actors::no_limit;
  above_since_ = time_point::max();
  queue_left_ = yields_then_ = door_yielded_ = 0;
  could_take_ = {};
  room_heard_ = room_told_ = {scenario_.park_memory, scenario_.park_disk, costs_of(scenario_)};
  saves_asked_.clear();
  restores_asked_.clear();
  shut_to_all_ = shut_to_low_ = drained_ = drain_told_ = drain_sent_ = cut_sent_ = false;
  seen_.clear();
  returning_.clear();
  under_way_back_ = 0;
  for (auto& p : participants_) {
    p.handed_in = p.scheduler_paused = p.paused_at_plan = p.begins = p.on_trial = p.came_back = false;
    p.failed_in_a_row = 0;
    p.last_in_step = p.passed_over = 0;
    p.fresh = p.known = 0;
  }
}

void simulation::add_sums() {
  const auto s = scheduler_.stats();
  result_.steps += s.steps;
  result_.preemptions += s.preemptions;
  result_.failed_steps += s.failed_steps;
  result_.prefix_found += s.prefix_found_tokens;
  result_.prefix_copied += s.prefix_copied_blocks;
  result_.seats_yielded += s.seats_yielded;
  result_.displaced += s.displaced;
  result_.backfilled += s.backfilled;
  result_.cut_steps += s.cut_steps;
  result_.parks += s.parks;
  result_.resumes += s.resumes;
  result_.parks_lost += s.resumes_failed;
  result_.readmitted += s.readmitted;
  result_.park_disk_blocks += parker_.level().written;
}

void simulation::rebuild_if_quiet() {
  if (given_up_) return;
  if (in_backend_ || copying_)
    at(now_ + look_again, [this] { rebuild_if_quiet(); });
  else
    rebuild();
}

void simulation::rebuild() {
  ++generation_;
  down_ = false;
  up_since_ = now_;
  make_anew(scheduler_, *options_);
  follow_policy();
  actors::model_ready facts;
  facts.kv_blocks = scenario_.blocks;
  facts.block_tokens = scenario_.block_tokens;
  facts.context = scenario_.context;
  facts.end_of_sequence = {scenario_.model.end_of_sequence};
  facts.reach_border = scenario_.model.border;
  facts.park_blocks = scenario_.park_memory;
  facts.parking_room = {scenario_.park_memory, scenario_.park_disk, costs_of(scenario_)};
  facts.windows = scenario_.model.windows;
  handle({client, scheduler, std::move(facts)}); // before any other mail, as in its mailbox
  if (memory_order_) {
    mail_.push<actors::scheduler_protocol>(client, scheduler, actors::limit_batch{memory_order_->batch});
    mail_.push<actors::cache_protocol>(client, cache_manager, actors::spare_memory{memory_order_->forget});
  }
  for (auto& p : participants_)
    if (p.core && !p.retired) returning_.insert(p.core->id().number);
  for (const auto number : returning_) {
    auto& p = participants_.at(number - 1);
    mail_.push<actors::request_protocol>(
        client, party_of(p),
        actors::scheduler_renewed{{p.core->id().model, generation_, number}, false, blame_.suspect(number)});
  }
  tell_of_drain();
}

/// The drain is at its limit, and no scheduler is there to be told, or could be told again.
void simulation::give_up() {
  given_up_ = down_ = draining_ = drained_ = cut_ = true;
  mail_.lose([](party to) { return of_engine(to); });
  for (auto& p : participants_)
    if (p.core && !p.retired) end_by_engine(p, {errc::shutdown, "cut", {}, 0});
}

void simulation::end_by_engine(participant& p, error why) {
  p.gone = true;
  client_event(p, failed_event{std::move(why)});
  p.retired = true;
  blame_.gone(p.core->id().number);
  came_back(p);
}

/// The engine drains, or is at the drain's limit.
void simulation::order(bool cut) {
  drain_ordered_ = true;
  cut_ordered_ = cut_ordered_ || cut;
  if (cut && down_ && !given_up_) return give_up();
  tell_of_drain();
}

/// Behind what the requests that came back have to say.
void simulation::tell_of_drain() {
  if (!drain_ordered_ || down_ || !returning_.empty() || under_way_back_ > 0) return;
  bool& sent = cut_ordered_ ? cut_sent_ : drain_sent_;
  if (std::exchange(sent, true)) return;
  if (cut_ordered_)
    mail_.push<actors::scheduler_protocol>(
        client, scheduler, actors::cut{error{errc::shutdown, "cut", {}, 0}});
  else
    mail_.push<actors::scheduler_protocol>(client, scheduler, actors::drain{});
}

void simulation::came_back(participant& p) {
  if (p.core->id().generation != generation_ && !p.retired) return; // it answers an earlier call
  if (returning_.erase(p.core->id().number) != 0) tell_of_drain();
}

/// What the earlier scheduler said counts until here. Of the engine's mail to its requests nothing overtakes
/// it, so that whether another choice runs is known by now.
void simulation::note_renewal(participant& p, actors::scheduler_renewed& m) {
  m.begun =
      p.script->group != 0 && std::any_of(participants_.begin(), participants_.end(), [&](const auto& other) {
        return other.script->group == p.script->group && other.accepted;
      });
  p.started = p.accepted;
  p.finished.reset();
}

/// A request comes back as old as it is, with what its client has, and nothing else.
void simulation::note_return(const actors::readmission& m) {
  auto& p = of(m.id);
  const auto& place = *m.place;
  const auto id = m.id.number;
  if (--under_way_back_ == 0) tell_of_drain();
  require(!p.came_back, "comes back twice to one scheduler", id);
  require(place.arrival == p.submitted, "comes back with another age", id);
  require(
      place.priority == p.script->priority && place.tenant == p.script->tenant &&
          place.group == p.script->group,
      "comes back as another", id);
  require(place.started == p.accepted, "comes back without having begun, or otherwise", id);
  p.came_back = true;
  p.handed_in = place.wish.prompt != nullptr;
  p.scheduler_paused = place.paused;
  p.on_trial = p.suspicious;
  require(place.scored <= p.scores_told, "comes back with scores that nobody told", id);
  p.scores_told = place.scored;              // those beyond were lost on their way
  p.failed_in_a_row = place.suspect ? 1 : 0; // as after one failed step
  auto [tenant, fresh] = tenants_.try_emplace(p.script->tenant);
  if (fresh) // it is charged nothing
    tenant->second.requests = tenant->second.at_least = policy_.tenants.request_burst;
  ++tenant->second.live;
}

} // namespace troupe::sim
