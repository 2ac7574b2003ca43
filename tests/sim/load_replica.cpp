// SPDX-License-Identifier: Apache-2.0
// Carries the cores' effects to each other.
#include "sim/load_replica.hpp"

#include "sim/load_watch.hpp"
#include "sim/stand_in.hpp"

#include <type_traits>
#include <utility>

namespace troupe::sim {
namespace {

constexpr std::int32_t end_of_sequence = 0;

} // namespace

load_replica::load_replica(
    std::uint32_t index, const load_settings& s, const step_costs& costs, std::uint64_t seed, outside& world,
    load_watch* watch) :
    index_(index),
    costs_(costs), world_(world), watch_(watch), noise_(seed, (std::uint64_t{1} << 40) + index),
    max_batch_(s.options.max_batch), scheduler_(s.options), cache_({1, 0, 0}, s.kv_blocks, s.block_tokens) {
  post(
      client, sim::scheduler,
      actors::model_ready{s.kv_blocks, s.block_tokens, s.context, {end_of_sequence}, 0});
  settle();
}

void load_replica::begin(actors::request_options options, time_point now) {
  now_ = now;
  const std::uint64_t number = options.id.number;
  options.id = id_of(number);
  auto& r =
      requests_
          .try_emplace(
              number, live_request{actors::request_core(
                          std::move(options), std::make_unique<plain_text>(std::vector<std::string>{}))})
          .first->second;
  actors::request_effects effects;
  r.core.begin(now, effects);
  carry_out(number, effects);
  settle();
}

void load_replica::cancel(std::uint64_t request, time_point now) {
  now_ = now;
  to_request(request, actors::client_cancel{id_of(request), error{errc::cancelled, "left", {}, 0}});
  settle();
}

void load_replica::read(std::uint64_t request, std::uint64_t taken, time_point now) {
  now_ = now;
  to_request(request, actors::events_read{id_of(request), taken});
  settle();
}

void load_replica::ring(std::uint64_t request, std::uint64_t version, time_point now) {
  now_ = now;
  if (request == 0) {
    if (version == scheduler_alarm_) to_scheduler(actors::alarm_rang{});
  } else if (const auto at = requests_.find(request);
             at != requests_.end() && at->second.version == version) {
    to_request(request, actors::alarm_rang{});
  }
  settle();
}

void load_replica::settle() {
  while (!mail_.empty()) {
    delivery next = std::move(mail_.front());
    mail_.pop_front();
    ++delivered_;
    deliver(std::move(next));
  }
  if (watch_ != nullptr) watch_->settled(scheduler_, in_step_.has_value(), now_);
}

void load_replica::deliver(delivery d) {
  std::visit(
      [&](auto& m) {
        using message = std::remove_reference_t<decltype(m)>;
        if (d.to == sim::scheduler) {
          if constexpr (actors::scheduler_protocol::accepts<message>) to_scheduler(std::move(m));
        } else if (d.to == cache_manager) {
          if constexpr (actors::cache_protocol::accepts<message>) to_cache(std::move(m));
        } else if (d.to == executor) {
          if constexpr (actors::executor_protocol::accepts<message>) to_executor(std::move(m));
        } else if (d.to == guard) {
          if constexpr (actors::guard_protocol::accepts<message>) {
            guard_.on(std::move(m), now_, guard_effects_);
            for (auto& e : guard_effects_)
              post(guard, executor, std::get<actors::row_verdicts>(std::move(e)));
            guard_effects_.clear();
          }
        } else if constexpr (requires { m.id.number; } && actors::request_protocol::accepts<message>) {
          to_request(m.id.number, std::move(m));
        }
      },
      d.message);
}

template<class Message>
void load_replica::to_scheduler(Message&& m) {
  using namespace actors;
  scheduler_.on(std::forward<Message>(m), now_, scheduler_effects_);
  for (auto& effect : scheduler_effects_)
    std::visit(
        [this](auto& e) {
          using effect_type = std::remove_reference_t<decltype(e)>;
          if (watch_ != nullptr) {
            if constexpr (std::is_same_v<effect_type, run_step>) watch_->launched(scheduler_, e, now_);
            if constexpr (std::is_same_v<effect_type, refused>) watch_->refused(scheduler_, e, now_);
            if constexpr (std::is_same_v<effect_type, started>) watch_->started(e.id.number, now_);
            if constexpr (std::is_same_v<effect_type, token_ready>) watch_->drew(e.id.number);
            if constexpr (std::is_same_v<effect_type, sequence_finished>) watch_->finished(e, now_);
          }
          if constexpr (request_protocol::accepts<effect_type>)
            post(sim::scheduler, first_request, std::move(e));
          else if constexpr (cache_protocol::accepts<effect_type>)
            post(sim::scheduler, cache_manager, std::move(e));
          else if constexpr (executor_protocol::accepts<effect_type>)
            post(sim::scheduler, executor, std::move(e));
          else if constexpr (std::is_same_v<effect_type, set_alarm>) {
            ++scheduler_alarm_;
            if (e.at != time_point::max()) world_.ring_at(index_, 0, scheduler_alarm_, e.at);
          }
        },
        effect);
  scheduler_effects_.clear();
}

template<class Message>
void load_replica::to_cache(Message&& m) {
  cache_.on(std::forward<Message>(m), now_, cache_effects_);
  for (auto& effect : cache_effects_)
    std::visit(
        [this](auto& e) {
          if constexpr (actors::scheduler_protocol::accepts<std::remove_reference_t<decltype(e)>>)
            post(cache_manager, sim::scheduler, std::move(e));
        },
        effect);
  cache_effects_.clear();
}

template<class Message>
void load_replica::to_executor(Message&& m) {
  executor_.on(std::forward<Message>(m), now_, executor_effects_);
  for (auto& effect : executor_effects_)
    std::visit(
        [this](auto& e) {
          using effect_type = std::remove_reference_t<decltype(e)>;
          if constexpr (std::is_same_v<effect_type, actors::submit_step>)
            start_step(std::move(e.input));
          else if constexpr (std::is_same_v<effect_type, actors::check_rows>)
            post(executor, guard, std::move(e));
          else
            post(executor, sim::scheduler, std::move(e));
        },
        effect);
  executor_effects_.clear();
}

template<class Message>
void load_replica::to_request(std::uint64_t number, Message&& m) {
  const auto at = requests_.find(number);
  if (at == requests_.end()) return;
  actors::request_effects effects;
  at->second.core.on(std::forward<Message>(m), now_, effects);
  carry_out(number, effects);
}

void load_replica::carry_out(std::uint64_t number, actors::request_effects& effects) {
  using namespace actors;
  for (auto& effect : effects)
    std::visit(
        [&](auto& e) {
          using effect_type = std::remove_reference_t<decltype(e)>;
          if constexpr (scheduler_protocol::accepts<effect_type>) {
            if constexpr (std::is_same_v<effect_type, admission_request>)
              if (watch_ != nullptr) watch_->asked(e, now_);
            post(first_request, sim::scheduler, std::move(e));
          } else if constexpr (std::is_same_v<effect_type, tokenize_prompt>) {
            post(client, first_request, prompt_ready{e.id, world_.prompt_of(number)});
          } else if constexpr (std::is_same_v<effect_type, emit_event>) {
            if (const auto taken = world_.heard(number, std::move(e.event)); taken > 0)
              post(client, first_request, events_read{id_of(number), taken});
          } else if constexpr (std::is_same_v<effect_type, set_alarm>) {
            const std::uint64_t version = ++requests_.at(number).version;
            if (e.at != time_point::max()) world_.ring_at(index_, number, version, e.at);
          } else if constexpr (std::is_same_v<effect_type, retire>) {
            requests_.erase(number);
          }
        },
        effect);
}

void load_replica::start_step(kernels::step_input&& input) {
  in_step_ = std::move(input);
  const auto shape = shape_of(*in_step_);
  takes_ = costs_.draw(shape, noise_);
  if (world_.measuring()) {
    ++meters_.steps;
    const double seconds = std::chrono::duration<double>(takes_).count();
    const auto level = cache_.level();
    meters_.fill += static_cast<double>(in_step_->sequences.size()) / max_batch_;
    meters_.kv_seconds += seconds * (level.leased + level.limbo) / std::max(1U, level.total);
    meters_.busy_seconds += seconds;
  }
  world_.step_ends_at(index_, now_ + takes_);
}

/// A sequence draws any token until it has as many as its seed says; the last one ends it.
void load_replica::end_step(time_point now) {
  now_ = now;
  kernels::step_result result;
  result.step_seq = in_step_->step_seq;
  result.duration_ns = static_cast<std::uint64_t>(takes_.count());
  for (std::uint32_t i = 0; i < in_step_->rows.size(); ++i) {
    const auto& row = in_step_->rows[i];
    if (row.want == kernels::row_output::none) continue;
    const auto& s = in_step_->sequences[row.sequence];
    const std::uint32_t drawn = row.position + 2 - s.prompt_tokens, whole = s.sampling.seed & most_output;
    auto& r = result.rows.emplace_back();
    r.row = i;
    r.token = drawn >= whole ? end_of_sequence : static_cast<std::int32_t>(1 + drawn % 26);
  }
  in_step_.reset();
  post(backend, executor, actors::step_computed{std::move(result)});
  settle();
}

} // namespace troupe::sim
