// SPDX-License-Identifier: Apache-2.0
// What a client is told: each event in its place, the tokens of the request run alone, a cause for every
// failure.
#include "sim/simulation.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::sim {

void simulation::check_event(participant& p, const stream_event& event) {
  const auto id = p.core->id().number;
  require(!p.over, "an event after the terminal event", id);
  if (const auto* a = std::get_if<accepted_event>(&event)) {
    require(!p.accepted && p.events == 0, "accepted twice, or not first", id);
    require(a->prompt_token_ids == p.script->prompt, "accepted with another prompt", id);
    require(p.started || p.script->max_tokens == 0, "accepted before its first row", id);
    p.accepted = true;
  } else if (const auto* t = std::get_if<token_event>(&event)) {
    check_token(p, *t);
  } else {
    p.over = true;
    p.ended = now_;
    if (const auto* d = std::get_if<done_event>(&event))
      check_done(p, *d);
    else
      check_failure(p, std::get<failed_event>(event).why);
  }
}

void simulation::check_token(participant& p, const token_event& e) {
  const auto id = p.core->id().number;
  require(p.accepted, "a token before the request was accepted", id);
  require(e.seq == p.next_seq++, "events out of sequence", id);
  if (!e.token_ids.empty()) ++p.given;
  if (e.echo) return check_echo(p, e);
  require(
      !p.script->echo || p.echoed == p.script->prompt.size(), "a token before the prompt was echoed whole",
      id);
  for (const auto t : e.token_ids) {
    require(
        p.tokens.size() < p.expected.tokens.size() && p.expected.tokens[p.tokens.size()] == t,
        "token " + std::to_string(p.tokens.size()) + " differs from the request run alone", id);
    require(
        !p.script->not_finite_token || p.tokens.size() < *p.script->not_finite_token,
        "a token of a row that was not finite left", id);
    p.tokens.push_back(t);
  }
  p.text += e.text;
  require(p.expected.text.starts_with(p.text), "the text differs from the request run alone", id);
  require(
      e.logprobs.size() == (p.script->logprobs ? e.token_ids.size() : 0), "log probabilities are missing",
      id);
  require(
      e.top_logprobs.size() == (p.script->top_logprobs > 0 ? e.token_ids.size() : 0),
      "alternatives are missing", id);
  for (const auto& top : e.top_logprobs)
    require(
        top.size() == p.script->top_logprobs && top[0].logprob == e.logprobs[0].logprob, "wrong alternatives",
        id);
}

/// The prompt in order and once, each token with the score that the model gives it.
void simulation::check_echo(participant& p, const token_event& e) {
  const auto id = p.core->id().number;
  require(p.script->echo && p.tokens.empty(), "an echo that nobody asked for, or late", id);
  require(!e.token_ids.empty(), "an echo of nothing", id);
  require(e.logprobs.size() == (p.script->logprobs ? e.token_ids.size() : 0), "scores are missing", id);
  std::string text;
  for (std::size_t i = 0; i < e.token_ids.size(); ++i) {
    const auto token = e.token_ids[i];
    require(
        p.echoed < p.script->prompt.size() && p.script->prompt[p.echoed] == token,
        "the echo differs from the prompt", id);
    if (p.script->logprobs)
      require(
          p.echoed == 0 ? std::isnan(e.logprobs[i].logprob)
                        : e.logprobs[i].logprob == score_of(p.echo_state, token),
          "a score differs from the model's", id);
    ++p.echoed;
    p.echo_state =
        state_after(scenario_.model, std::span(p.script->prompt).first(p.echoed), p.script->prompt.size());
    text += plain_text({}).bytes_of(token);
  }
  require(e.text == text, "the echo's text differs from its tokens", id);
}

/// When the first of its group came: they time out together.
time_point simulation::group_submitted(const participant& p) const {
  time_point first = p.submitted;
  if (p.script->group == 0) return first;
  for (const auto& other : participants_)
    if (other.core && other.script->group == p.script->group) first = std::min(first, other.submitted);
  return first;
}

/// Whether another choice of its group runs.
bool simulation::group_runs(const participant& p) const {
  return p.script->group != 0 &&
         std::any_of(participants_.begin(), participants_.end(), [&](const auto& other) {
           const bool known =
               other.accepted || !returning_.contains(other.core ? other.core->id().number : 0);
           return &other != &p && other.script->group == p.script->group && other.started && known &&
                  !other.finished && !other.over;
         });
}

void simulation::check_done(participant& p, const done_event& e) {
  const auto id = p.core->id().number;
  ++result_.completed;
  require(p.accepted, "done before it was accepted", id);
  require(e.seq == p.next_seq, "the last event is out of sequence", id);
  require(e.usage.completion_tokens == p.tokens.size(), "usage differs from the tokens given", id);
  require(e.usage.prompt_tokens == p.script->prompt.size(), "usage differs from the prompt", id);
  if (e.reason == finish_reason::cancelled) {
    require(p.cancel_sent, "cancelled by nobody", id);
    ++result_.cancelled;
    return;
  }
  require(
      p.tokens == p.expected.tokens,
      "ended after " + std::to_string(p.tokens.size()) + " tokens instead of " +
          std::to_string(p.expected.tokens.size()),
      id);
  require(p.text == p.expected.text, "the whole text differs from the request run alone", id);
  require(!p.script->echo || p.echoed == p.script->prompt.size(), "the prompt was not echoed whole", id);
  require((e.reason == finish_reason::stop) == p.expected.stop, "the wrong finish reason", id);
  ++(p.expected.stop ? result_.stopped : result_.full_length);
  require(!p.script->poison || p.tokens.empty(), "a poisonous request gave tokens", id);
}

void simulation::check_failure(participant& p, const error& why) {
  const auto id = p.core->id().number;
  const auto& f = scenario_.faults;
  const bool door = !p.accepted && p.tokens.empty();
  const auto needs = [&](bool because) {
    require(
        because, "failed without cause: " + std::string(code_name(why.code)) + " (" + why.message + ")", id);
  };
  ++result_.failed[static_cast<std::size_t>(why.code)];
  require(!why.message.empty(), "a failure without a message", id);
  switch (why.code) {
  case errc::context_length_exceeded:
    needs(door && p.expects_refusal && !p.script->prompt.empty());
    break;
  case errc::bad_request:
    needs(door && p.script->prompt.empty());
    break;
  case errc::bad_template:
    needs(door && p.script->tokenising_fails);
    break;
  case errc::rate_limited:
  case errc::tenant_busy: // see check_refusal
  case errc::kv_cache_full:
  case errc::shed_low_priority:
  case errc::queue_full:
    needs(door);
    require(
        why.retry_after_ms > 0 && why.retry_after_ms <= 60'000 && why.queue_length,
        "a refusal under load without advice", id);
    break;
  case errc::model_loading:
    needs(door && p.submitted < time_point(scenario_.model_loads) + slack);
    break;
  case errc::draining:
    needs(door && draining_);
    break;
  case errc::shutdown:
    needs(cut_);
    break;
  case errc::cancelled:
    needs(door && p.cancel_sent);
    break;
  case errc::queue_timeout:
    needs(door && !p.started); // see check_finish
    break;
  case errc::deadline_exceeded:
    needs(p.script->deadline > duration::zero() && now_ >= p.submitted + p.script->deadline);
    break;
  case errc::slow_consumer:
    needs(p.paused_since != time_point::max() && p.given_up);
    // Half the credit back resumes it, unless that is still under way.
    needs(p.given - p.read_told > p.script->credit / 2 || now_ < p.told_at + std::chrono::milliseconds(5));
    break;
  case errc::poison_request:
    needs(p.failed_steps + p.crashes >= 2);
    if (f.step_fails == 0 && !allocation_failed_) needs(p.script->poison || p.condemned);
    break;
  case errc::not_finite: // tokens under way may be lost to a failure
    needs(
        p.script->not_finite_token && p.finished &&
        p.finished->completion_tokens == *p.script->not_finite_token);
    break;
  case errc::no_memory:
    needs(allocation_failed_);
    break;
  default:
    needs(false);
  }
}

/// Only one that read nothing for the whole time is given up.
void simulation::check_patience(participant& p) {
  const auto id = p.core->id().number;
  require(p.paused_since != time_point::max(), "a reader with credit was given up", id);
  require(
      now_ >= std::max(p.paused_since, p.read_at) + p.script->slow_consumer,
      "a reader that reads was given up", id);
  p.given_up = true;
}

} // namespace troupe::sim
