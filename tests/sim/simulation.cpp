// SPDX-License-Identifier: Apache-2.0
// The loop: mail in random order, time that jumps when nothing is left to do, clients and faults.
#include "sim/simulation.hpp"

#include "sim/alloc_fault.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace troupe::sim {
namespace {

constexpr std::uint32_t model_number = 3; // any: it must only be carried along

std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
  return (a ^ b) * 0x9E3779B97F4A7C15U ^ (a >> 29);
}

} // namespace

simulation::simulation(std::uint64_t seed, const scenario& s, recorder* record) :
    scenario_(s), policy_(s.options), options_(std::make_shared<const actors::scheduler_options>(s.options)),
    record_(record), chance_(seed, 2), mail_(seed), scheduler_(s.options),
    cache_({model_number, 0, 0}, s.blocks, kernels::kv_groups(s.block_tokens, s.model.windows)),
    executor_(kernels::kv_groups(s.block_tokens, s.model.windows)),
    parker_({s.park_memory, s.park_disk, costs_of(s)}), backend_(s.model, s.blocks, s.block_tokens),
    park_store_(s.park_memory, s.park_disk, s.block_tokens), writers_(s.blocks),
    participants_(s.clients.size()),
    full_(
        s.options.kv_high_watermark,
        actors::reopening_level(s.options.kv_high_watermark, s.options.hysteresis)),
    shed_(
        s.options.kv_low_watermark,
        actors::reopening_level(s.options.kv_low_watermark, s.options.hysteresis)) {
  // As the shells do: an effect never needs memory while a core is in the middle of something.
  scheduler_effects_.reserve(1024);
  cache_effects_.reserve(1024);
  executor_effects_.reserve(16);
  park_effects_.reserve(16);
  room_heard_ = room_told_ = {s.park_memory, s.park_disk, costs_of(s)};
  for (std::uint32_t i = 0; i < s.clients.size(); ++i) {
    const auto& c = s.clients[i];
    auto& p = participants_[i];
    p.script = &c;
    p.expects_refusal = c.prompt.empty() || c.prompt.size() + (c.max_tokens > 0 ? 1 : 0) > s.limit();
    if (!p.expects_refusal)
      p.expected = run_alone(
          s.model,
          {c.prompt, c.seed, c.max_tokens, c.min_tokens, s.limit(), c.stop_ids, c.stops, c.ignore_eos});
    if (c.poison) row_faults_.poison_seeds.push_back(c.seed);
    if (c.not_finite_token)
      row_faults_.not_finite.push_back(
          {c.seed, static_cast<std::uint32_t>(c.prompt.size()) + *c.not_finite_token - 1});
    at(time_point(c.arrives), [this, i] { submit(i); });
  }
  const auto control = [this](duration when, auto message) {
    at(time_point(when), [this, message] {
      mail_.push<actors::scheduler_protocol>(
          client, scheduler, std::remove_const_t<decltype(message)>(message));
    });
  };
  control(
      s.model_loads, actors::model_ready{
                         s.blocks,
                         s.block_tokens,
                         s.context,
                         {s.model.end_of_sequence},
                         s.model.border,
                         s.park_memory,
                         {s.park_memory, s.park_disk, costs_of(s)},
                         s.model.windows});
  for (const memory_order& order : s.memory_orders) {
    control(order.at, actors::limit_batch{order.batch});
    at(time_point(order.at), [this, order] { memory_order_ = order; });
    at(time_point(order.at), [this, forget = order.forget] {
      mail_.push<actors::cache_protocol>(client, cache_manager, actors::spare_memory{forget});
    });
  }
  for (const policy_change& c : s.policy_changes)
    at(time_point(c.at), [this, to = std::make_shared<const actors::scheduler_options>(c.to)] {
      options_ = to;
      if (!down_) mail_.push<actors::scheduler_protocol>(client, scheduler, actors::retune{to});
    });
  if (s.drain_at) at(time_point(*s.drain_at), [this] { order(false); });
  if (s.cut_at) at(time_point(*s.cut_at), [this] { order(true); });
}

outcome simulation::run() {
  constexpr std::uint64_t most_events = 400'000;
  std::uint64_t events = 0;
  try {
    while (advance())
      if (++events > most_events) complain("the run does not come to an end");
    check_end();
  } catch (violation& v) {
    result_.wrong = std::move(v);
  }
  result_.messages = events;
  add_sums();
  return result_;
}

bool simulation::advance() {
  const bool due = !timed_.empty() && timed_.begin()->first.first <= now_;
  if (!mail_.empty() && (!due || chance_.below(2) == 0)) {
    if (scenario_.hop > duration::zero()) now_ += duration(chance_.between(0, scenario_.hop.count()));
    deliver(mail_.take(scenario_.lazy));
    check_ledger();
    return true;
  }
  if (timed_.empty()) return false;
  if (!due) check_not_stalled();
  auto node = timed_.extract(timed_.begin());
  now_ = std::max(now_, node.key().first);
  check_bounds();
  node.mapped()();
  return true;
}

void simulation::at(time_point when, unique_function<void()> what) {
  timed_.emplace(std::pair(std::max(when, now_), timed_count_++), std::move(what));
}

party simulation::party_of(const participant& p) const noexcept {
  return first_request + static_cast<party>(&p - participants_.data());
}

simulation::participant& simulation::of(actors::request_id id) {
  if (id.model != model_number || id.generation != generation_ || id.number == 0 ||
      id.number > participants_.size())
    complain("a message names a request that does not exist", id.number);
  return participants_[id.number - 1];
}

void simulation::trace(const delivery& d) {
  std::visit(
      [&](const auto& m) {
        const std::uint64_t about = runtime::message_request(m);
        result_.hash = mix(result_.hash, std::uint64_t{d.from} << 32 | d.to);
        result_.hash = mix(result_.hash, d.message.index() << 32 | about);
        result_.hash = mix(result_.hash, static_cast<std::uint64_t>(now_.time_since_epoch().count()));
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(m)>, actors::token_ready>)
          result_.hash = mix(result_.hash, static_cast<std::uint64_t>(m.token) << 32 | m.position);
      },
      d.message);
  if (record_ != nullptr) record_->delivered(d, now_);
}

void simulation::deliver(delivery d) {
  trace(d);
  if (of_engine(d.to) && down_) return; // nobody is there
  if (of_engine(d.to) && brings_down(d)) return crash(std::move(d));
  handle(std::move(d));
}

void simulation::handle(delivery d) {
  std::visit(
      [&](auto& m) {
        using message = std::remove_reference_t<decltype(m)>;
        if (d.to == scheduler) {
          if constexpr (actors::scheduler_protocol::accepts<message>) to_scheduler(d.from, std::move(m));
        } else if (d.to == cache_manager) {
          if constexpr (actors::cache_protocol::accepts<message>) to_cache(std::move(m));
        } else if (d.to == executor) {
          if constexpr (actors::executor_protocol::accepts<message>) to_executor(std::move(m));
        } else if (d.to == parker) {
          if constexpr (actors::park_protocol::accepts<message>) to_parker(std::move(m));
        } else if (d.to == guard) {
          if constexpr (actors::guard_protocol::accepts<message>) {
            guard_.on(std::move(m), now_, guard_effects_);
            for (auto& e : guard_effects_)
              mail_.push<actors::executor_protocol>(
                  guard, executor, std::get<actors::row_verdicts>(std::move(e)));
            guard_effects_.clear();
          }
        } else {
          if constexpr (actors::request_protocol::accepts<message>)
            to_request(participants_.at(d.to - first_request), std::move(m));
        }
      },
      d.message);
}

// ---- scheduler -------------------------------------------------------------------------------------------

template<class Message>
void simulation::to_scheduler(party, Message&& m) {
  using message = std::remove_cvref_t<Message>;
  constexpr auto name = runtime::type_name<message>();
  if constexpr (requires { m.id.generation; })
    if (m.id.generation != generation_) {
      scheduler_.on(std::forward<Message>(m), now_, scheduler_effects_);
      require(scheduler_effects_.empty(), "a message of an earlier generation has an effect", m.id.number);
      return;
    }
  if constexpr (std::is_same_v<message, actors::readmission>) note_return(m);
  if constexpr (std::is_same_v<message, actors::admission_request>) check_admission(m);
  if constexpr (std::is_same_v<message, actors::retune>) note_retune(m);
  if constexpr (std::is_same_v<message, actors::limit_batch>) note_batch_limit(m);
  if constexpr (std::is_same_v<message, actors::model_ready>) open_ = true;
  if constexpr (std::is_same_v<message, actors::drain>) draining_ = drain_told_ = true;
  if constexpr (std::is_same_v<message, actors::cut>) draining_ = drain_told_ = cut_ = true;
  if constexpr (std::is_same_v<message, actors::enqueue>) of(m.id).handed_in = true;
  if constexpr (std::is_same_v<message, actors::stream_paused>) of(m.id).scheduler_paused = true;
  if constexpr (std::is_same_v<message, actors::stream_resumed>) of(m.id).scheduler_paused = false;
  if constexpr (std::is_same_v<message, actors::step_failed>)
    for (const auto id : running_requests_) {
      ++of(id).failed_steps;
      require(++of(id).failed_in_a_row <= 2, "tried again after two failed steps", id.number);
    }
  short_of_blocks_.clear();
  step_ended_ = refused_one_ = false;
  if constexpr (std::is_same_v<message, actors::blocks_reserved>) {
    shortage_ |= !m.shortages.empty();
    for (const auto& x : m.shortages) short_of_blocks_.push_back(x.id);
    for (const auto& g : m.grants) check_found(g);
    for (const auto& g : m.grants)
      for (std::size_t i = 0; i < g.blocks.size(); ++i)
        if (g.blocks[i] == actors::no_block)
          continue;
        else if (i < g.cached / scenario_.block_tokens * scenario_.model.windows.size())
          require(
              participants_[writers_[g.blocks[i]]].script->tenant == of(g.id).script->tenant,
              "a sequence found another tenant's block", g.id.number);
        else
          backend_.spoil(g.blocks[i], chance_());
  }
  if constexpr (std::is_same_v<message, actors::park_room>) note_room_heard(m);
  if constexpr (std::is_same_v<message, actors::sequence_parked>) note_room_heard(m.room);
  if constexpr (std::is_same_v<message, actors::sequence_restored>) note_room_heard(m.room);
  if constexpr (std::is_same_v<message, actors::sequence_restored>)
    require(
        m.restored || disk_failed_ || is_closing(m.id), "what was parked is lost without cause", m.id.number);
  if constexpr (std::is_same_v<message, actors::step_done> || std::is_same_v<message, actors::step_failed>)
    end_step(m.step_seq);
  if constexpr (std::is_same_v<message, actors::cancel> || std::is_same_v<message, actors::finish>)
    note_end(m.id);
  if constexpr (std::is_same_v<message, actors::cut>)
    for (const auto& v : std::vector(seen_)) note_end(v.id);
  step_ran_ = !running_requests_.empty();
  scheduler_.on(std::forward<Message>(m), now_, scheduler_effects_);
  carry_out_scheduler();
  check_scheduler(name);
}

/// The scheduler hears that the running step is over.
void simulation::end_step(std::uint64_t step_seq) {
  if (step_seq != plan_seq_) return; // the answer to an older one again
  running_requests_.clear();
  step_ended_ = true;
  limbo_allowed_ = 0;
  for (ending& e : ending_) e.in_step = false;
}

/// The scheduler hears that a request is to end.
void simulation::note_end(actors::request_id id) {
  const auto known = std::find_if(seen_.begin(), seen_.end(), [&](const auto& v) { return v.id == id; });
  if (known == seen_.end() || known->closing) return;
  const bool in_step =
      std::find(running_requests_.begin(), running_requests_.end(), id) != running_requests_.end();
  if (in_step) limbo_allowed_ += cache_.pool().held(id);
  ending_.push_back({id, in_step});
}

void simulation::carry_out_scheduler() {
  using namespace actors;
  for (auto& effect : scheduler_effects_)
    std::visit(
        [this](auto& e) {
          using effect_type = std::remove_reference_t<decltype(e)>;
          if constexpr (std::is_same_v<effect_type, admitted>) note_admitted(e.id);
          if constexpr (std::is_same_v<effect_type, refused>) check_refusal(e);
          if constexpr (std::is_same_v<effect_type, sequence_finished>) check_finish(e);
          if constexpr (std::is_same_v<effect_type, started>) of(e.id).started = true;
          if constexpr (std::is_same_v<effect_type, prompt_scored>) check_scores(e);
          if constexpr (std::is_same_v<effect_type, token_ready>) {
            of(e.id).failed_in_a_row = 0;
            ++of(e.id).fresh;
          }
          if constexpr (std::is_same_v<effect_type, token_ready>) of(e.id).on_trial = false;
          if constexpr (std::is_same_v<effect_type, run_step> || std::is_same_v<effect_type, reserve_blocks>)
            if (e.step_seq != plan_seq_) {
              plan_seq_ = e.step_seq;
              goals_at_plan_ = policy_.tpot_goals;
              for (auto& p : participants_) p.paused_at_plan = p.scheduler_paused;
            }
          if constexpr (std::is_same_v<effect_type, run_step>) check_plan(e);
          if constexpr (request_protocol::accepts<effect_type>) {
            const party to = party_of(of(e.id));
            mail_.push<request_protocol>(scheduler, to, std::move(e));
          } else if constexpr (cache_protocol::accepts<effect_type>) {
            mail_.push<cache_protocol>(scheduler, cache_manager, std::move(e));
          } else if constexpr (executor_protocol::accepts<effect_type>) {
            mail_.push<executor_protocol>(scheduler, executor, std::move(e));
          } else if constexpr (park_protocol::accepts<effect_type>) {
            if constexpr (std::is_same_v<effect_type, park_blocks>) check_park(e);
            mail_.push<park_protocol>(scheduler, parker, std::move(e));
          } else if constexpr (std::is_same_v<effect_type, actors::set_alarm>) {
            scheduler_alarm_at_ = e.at;
            set_alarm(scheduler, scheduler_alarm_, e.at);
          } else if constexpr (std::is_same_v<effect_type, drained>) {
            require(draining_ && !drained_, "drained was told twice, or without a drain");
            require(scheduler_.idle(), "drained was told while requests were left");
            drained_ = true;
          }
        },
        effect);
  scheduler_effects_.clear();
}

void simulation::set_alarm(party whose, std::uint64_t& version, time_point when) {
  const std::uint64_t mine = ++version;
  if (when == time_point::max()) return;
  if (scenario_.faults.alarm_lateness > duration::zero())
    when += duration(chance_.between(0, scenario_.faults.alarm_lateness.count()));
  at(when, [this, whose, mine, &version] {
    if (mine != version) return;
    if (whose == scheduler) {
      scheduler_alarm_at_ = time_point::max();
      mail_.push<actors::scheduler_protocol>(scheduler, whose, actors::alarm_rang{});
    } else {
      mail_.push<actors::request_protocol>(whose, whose, actors::alarm_rang{});
    }
  });
}

// ---- cache manager and executor --------------------------------------------------------------------------

template<class Message>
void simulation::to_cache(Message&& m) {
  using message = std::remove_cvref_t<Message>;
  constexpr bool reserves = std::is_same_v<message, actors::reserve_blocks>;
  constexpr bool publishes = std::is_same_v<message, actors::publish_blocks>;
  if constexpr (publishes) note_known(m);
  std::vector<actors::block_demand> demands;
  if constexpr (reserves)
    if (scenario_.all_stays) demands = m.demands;
  if ((reserves || publishes) && chance_.chance(scenario_.faults.allocation_fails)) {
    const alloc_fault fault(static_cast<std::uint32_t>(chance_.between(1, 6)));
    cache_.on(std::forward<Message>(m), now_, cache_effects_);
    allocation_failed_ |= fault.fired();
  } else {
    cache_.on(std::forward<Message>(m), now_, cache_effects_);
  }
  if constexpr (reserves)
    if (scenario_.all_stays) check_grants(std::get<actors::blocks_reserved>(cache_effects_.front()), demands);
  for (auto& effect : cache_effects_)
    std::visit(
        [this](auto& e) {
          if constexpr (actors::scheduler_protocol::accepts<std::remove_reference_t<decltype(e)>>)
            mail_.push<actors::scheduler_protocol>(cache_manager, scheduler, std::move(e));
        },
        effect);
  cache_effects_.clear();
}

template<class Message>
void simulation::to_executor(Message&& m) {
  using message = std::remove_cvref_t<Message>;
  constexpr bool may_fail =
      std::is_same_v<message, actors::run_step> || std::is_same_v<message, actors::step_computed>;
  if (may_fail && chance_.chance(scenario_.faults.allocation_fails)) {
    const alloc_fault fault(static_cast<std::uint32_t>(chance_.between(1, 12)));
    executor_.on(std::forward<Message>(m), now_, executor_effects_);
    allocation_failed_ |= fault.fired();
  } else {
    executor_.on(std::forward<Message>(m), now_, executor_effects_);
  }
  carry_out_executor();
}

void simulation::carry_out_executor() {
  for (auto& effect : executor_effects_)
    std::visit(
        [this](auto& e) {
          using effect_type = std::remove_reference_t<decltype(e)>;
          if constexpr (std::is_same_v<effect_type, actors::submit_step>)
            start_backend(std::move(e.input));
          else if constexpr (std::is_same_v<effect_type, actors::check_rows>) {
            require(e.step_seq > checked_step_, "a step's rows went to the guard twice");
            checked_step_ = e.step_seq;
            mail_.push<actors::guard_protocol>(executor, guard, std::move(e));
          } else
            mail_.push<actors::scheduler_protocol>(executor, scheduler, std::move(e));
        },
        effect);
  executor_effects_.clear();
}

// ---- parker ----------------------------------------------------------------------------------------------

template<class Message>
void simulation::to_parker(Message&& m) {
  constexpr bool may_fail = std::is_same_v<std::remove_cvref_t<Message>, actors::park_blocks>;
  if constexpr (may_fail) saves_asked_.insert(m.id.number);
  if constexpr (std::is_same_v<std::remove_cvref_t<Message>, actors::restore_blocks>)
    restores_asked_.insert(m.id.number);
  if (may_fail && chance_.chance(scenario_.faults.allocation_fails)) {
    const alloc_fault fault(static_cast<std::uint32_t>(chance_.between(1, 4)));
    parker_.on(std::forward<Message>(m), now_, park_effects_);
  } else {
    parker_.on(std::forward<Message>(m), now_, park_effects_);
  }
  for (auto& effect : park_effects_)
    std::visit(
        [this](auto& e) {
          using effect_type = std::remove_reference_t<decltype(e)>;
          if constexpr (std::is_same_v<effect_type, actors::park_job>) start_copying(e);
          if constexpr (std::is_same_v<effect_type, actors::park_room>) note_room_told(e);
          if constexpr (std::is_same_v<effect_type, actors::sequence_parked>) {
            saves_asked_.erase(e.id.number);
            note_room_told(e.room);
          }
          if constexpr (std::is_same_v<effect_type, actors::sequence_restored>) {
            restores_asked_.erase(e.id.number);
            note_room_told(e.room);
          }
          if constexpr (actors::scheduler_protocol::accepts<effect_type>)
            mail_.push<actors::scheduler_protocol>(parker, scheduler, std::move(e));
        },
        effect);
  park_effects_.clear();
  check_parking();
  check_room();
}

/// Copies at the last moment: blocks that change hands before it are caught until then.
void simulation::start_copying(const actors::park_job& job) {
  using actors::park_work;
  require(!copying_, "two pieces are copied at once");
  require(job.count > 0, "an empty piece is copied");
  check_copy_order(job);
  copying_ = job;
  const bool disk =
      job.work == park_work::write || job.work == park_work::read || job.work == park_work::fetch;
  const duration takes = job.count * scenario_.copy_time * (disk ? 20 : 1);
  at(now_ + takes, [this, takes, disk] {
    const actors::park_job what = *std::exchange(copying_, {});
    actors::park_job_done answer{what.number, actors::park_outcome::done, takes};
    const bool reads = disk && what.work != park_work::write;
    if (disk && chance_.chance(scenario_.faults.disk_fails))
      answer.outcome = actors::park_outcome::failed;
    else if (reads && chance_.chance(scenario_.faults.disk_spoils))
      answer.outcome = actors::park_outcome::corrupt;
    if (answer.outcome != actors::park_outcome::failed)
      park_store_.run(what, backend_, answer.outcome == actors::park_outcome::corrupt);
    if (!down_ && (what.work == park_work::load || what.work == park_work::fetch)) note_writers(what);
    disk_failed_ |= answer.outcome != actors::park_outcome::done;
    if (down_) return; // its parker is gone
    mail_.push<actors::park_protocol>(backend, parker, std::move(answer));
  });
}

/// Blocks that come back were written by whom they belong to.
void simulation::note_writers(const actors::park_job& job) {
  for (std::uint32_t i = 0; i < participants_.size(); ++i) {
    if (!participants_[i].core) continue;
    const auto table = cache_.pool().table(participants_[i].core->id());
    for (const auto& m : job.all())
      if (std::find(table.begin(), table.end(), m.block) != table.end()) writers_[m.block] = i;
  }
}

void simulation::start_backend(kernels::step_input&& input) {
  require(!in_backend_, "a step was submitted while another one runs");
  check_step_input(input);
  in_backend_ = std::move(input);
  for (const auto& row : in_backend_->rows) {
    const auto& s = in_backend_->sequences[row.sequence];
    for_written(s, row, [&](actors::block_id b) {
      writers_[b] = static_cast<std::uint32_t>(s.sampling.seed - 1000);
    });
  }
  const auto rows = static_cast<std::int64_t>(in_backend_->rows.size());
  const duration takes = scenario_.step_time + rows * scenario_.step_time / 16;
  at(now_ + takes, [this, takes] { backend_answers(takes); });
}

void simulation::backend_answers(duration took) {
  // The rows are written at the last moment: blocks given away too early are caught by check_ledger until
  // then.
  auto answer = backend_.compute(*in_backend_, row_faults_);
  if (!answer.failed) check_contents(*in_backend_);
  answer.duration_ns = static_cast<std::uint64_t>(took.count());
  if (chance_.chance(scenario_.faults.step_fails)) {
    answer.failed = true;
    answer.failure = "drawn by lot";
    answer.rows.clear();
  }
  in_backend_.reset();
  if (down_) return; // its executor is gone
  const auto send = [this](const kernels::step_result& r) {
    mail_.push<actors::executor_protocol>(backend, executor, actors::step_computed{r});
  };
  if (old_answer_ && chance_.chance(scenario_.faults.late_answer)) send(*old_answer_);
  send(answer);
  if (chance_.chance(scenario_.faults.doubled_answer)) send(answer);
  old_answer_ = std::move(answer);
}

// ---- requests and their clients --------------------------------------------------------------------------

void simulation::submit(std::uint32_t index) {
  auto& p = participants_[index];
  const auto& c = *p.script;
  actors::request_options o;
  o.id = {model_number, generation_, index + 1};
  o.priority = c.priority;
  o.prompt_tokens = c.estimate;
  o.max_tokens = c.max_tokens;
  o.min_tokens = c.min_tokens;
  o.stop_ids = c.stop_ids;
  o.ignore_eos = c.ignore_eos;
  o.logprobs = c.logprobs;
  o.top_logprobs = c.top_logprobs;
  o.echo = c.echo;
  o.score_prompt = c.echo && c.logprobs;
  o.group = c.group;
  o.tenant = c.tenant;
  o.sampling.seed = c.seed;
  o.credit = c.credit;
  o.deadline = c.deadline;
  o.slow_consumer = c.slow_consumer;
  o.model = "imaginary";
  p.submitted = now_;
  p.core.emplace(std::move(o), std::make_unique<plain_text>(c.stops));
  if (c.leaves_after) at(now_ + *c.leaves_after, [this, &p] { leave(p); });
  actors::request_effects effects;
  p.core->begin(now_, effects);
  carry_out(p, effects);
  if (given_up_) end_by_engine(p, {errc::draining, "the engine is shutting down", {}, 0});
}

template<class Message>
void simulation::to_request(participant& p, Message&& m) {
  using message = std::remove_cvref_t<Message>;
  if (p.gone) return;
  actors::request_effects effects;
  if constexpr (std::is_same_v<message, actors::events_read>) p.read_at = now_;
  if constexpr (std::is_same_v<message, actors::scheduler_renewed>) note_renewal(p, m);
  p.core->on(std::forward<Message>(m), now_, effects);
  carry_out(p, effects);
  if constexpr (std::is_same_v<message, actors::scheduler_renewed>) came_back(p);
}

void simulation::carry_out(participant& p, actors::request_effects& effects) {
  using namespace actors;
  for (auto& effect : effects)
    std::visit(
        [&](auto& e) {
          using effect_type = std::remove_reference_t<decltype(e)>;
          if constexpr (std::is_same_v<effect_type, stream_paused>) p.paused_since = now_;
          if constexpr (std::is_same_v<effect_type, stream_resumed>) p.paused_since = time_point::max();
          if constexpr (std::is_same_v<effect_type, cancel>)
            if (e.why.code == errc::slow_consumer) check_patience(p);
          if constexpr (scheduler_protocol::accepts<effect_type>) {
            require(e.id == p.core->id(), "a request speaks for another", p.core->id().number);
            if (down_) return; // as the shells: nobody is there, or knows that id
            constexpr bool comes =
                std::is_same_v<effect_type, admission_request> || std::is_same_v<effect_type, readmission>;
            if (comes && e.id.generation != generation_) return;
            if constexpr (std::is_same_v<effect_type, readmission>) ++under_way_back_;
            mail_.push<scheduler_protocol>(party_of(p), scheduler, std::move(e));
          } else if constexpr (std::is_same_v<effect_type, tokenize_prompt>) {
            tokenise(p);
          } else if constexpr (std::is_same_v<effect_type, emit_event>) {
            client_event(p, std::move(e.event));
          } else if constexpr (std::is_same_v<effect_type, actors::set_alarm>) {
            set_alarm(party_of(p), p.version, e.at);
          } else if constexpr (std::is_same_v<effect_type, retire>) {
            require(p.over && !p.retired, "retired twice, or before the terminal event", p.core->id().number);
            p.retired = true;
            blame_.gone(p.core->id().number);
            came_back(p);
          }
        },
        effect);
}

void simulation::tokenise(participant& p) {
  require(!p.prompt_asked, "the prompt was asked for twice", p.core->id().number);
  p.prompt_asked = true;
  at(now_ + p.script->tokenising, [this, &p] {
    const auto id = p.core->id();
    if (p.script->tokenising_fails)
      mail_.push<actors::request_protocol>(
          client, party_of(p), actors::prompt_failed{id, error{errc::bad_template, "no template", {}, 0}});
    else
      mail_.push<actors::request_protocol>(
          client, party_of(p),
          actors::prompt_ready{id, std::make_shared<const std::vector<std::int32_t>>(p.script->prompt)});
  });
}

void simulation::leave(participant& p) {
  if (p.over && chance_.below(2) == 0) return; // half of the late ones come all the same
  p.cancel_sent = true;
  if (p.left_at == time_point::max()) p.left_at = now_;
  mail_.push<actors::request_protocol>(
      client, party_of(p), actors::client_cancel{p.core->id(), error{errc::cancelled, "left", {}, 0}});
}

void simulation::client_event(participant& p, stream_event&& event) {
  if (record_ != nullptr) {
    constexpr std::string_view names[] = {"accepted_event", "token_event", "done_event", "failed_event"};
    record_->noted(party_of(p), names[event.index()], p.core->id().number, now_);
  }
  check_event(p, event);
  const auto number = p.core->id().number;
  if (const auto* token = std::get_if<token_event>(&event); token != nullptr && !token->echo && !down_) {
    p.suspicious = false;
    blame_.drew_token({number, number});
  }
  if (std::holds_alternative<done_event>(event)) blame_.answered({number, number});
  if (p.script->leaves_at && p.events == *p.script->leaves_at) leave(p);
  ++p.events;
  if (std::holds_alternative<accepted_event>(event) && p.script->group != 0) // as the engine: it can be read
    mail_.push<actors::request_protocol>(client, party_of(p), actors::events_read{p.core->id(), p.read_told});
  if (!std::holds_alternative<token_event>(event)) return;
  if (p.silent_since == time_point::max() && p.given - p.read_told >= p.script->credit) p.silent_since = now_;
  if (std::get<token_event>(event).token_ids.empty()) return; // the text that was held back, at the very end
  if (p.script->stops_reading_at && p.read >= *p.script->stops_reading_at) return;
  ++p.read;
  if (p.script->reads_after == duration::zero())
    client_reads(p);
  else
    at(now_ + p.script->reads_after, [this, &p] { client_reads(p); });
}

void simulation::client_reads(participant& p) {
  ++p.read_told;
  p.told_at = now_;
  // One read too few to go on, and its patience counts anew.
  const bool stays = p.paused_since != time_point::max() && p.given - p.read_told > p.script->credit / 2;
  p.silent_since = stays ? now_ : time_point::max();
  mail_.push<actors::request_protocol>(client, party_of(p), actors::events_read{p.core->id(), p.read_told});
}

} // namespace troupe::sim
