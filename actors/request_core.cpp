// SPDX-License-Identifier: Apache-2.0
// The life of one request as a state machine.
#include "actors/request_core.hpp"

#include <algorithm>
#include <utility>

namespace troupe::actors {
namespace {

constexpr float banning_bias = -100.0F;

/// A bias that low is meant to keep the token out, so it does, whatever the logits are.
void split_bias(const std::vector<logit_bias>& asked, request_options& o) {
  std::vector<kernels::token_bias> added;
  for (const auto& b : asked) {
    if (b.bias <= banning_bias)
      o.banned.push_back(b.token);
    else
      added.push_back({b.token, b.bias});
  }
  if (!added.empty())
    o.sampling.bias = std::make_shared<const std::vector<kernels::token_bias>>(std::move(added));
}

scored_token scored(std::int32_t token, float logprob, const token_name& name) {
  return {token, logprob, std::string(name.bytes), name.shown};
}

} // namespace

std::uint32_t estimated_tokens(const prompt& what) noexcept {
  const auto capped = [](std::size_t count) {
    return static_cast<std::uint32_t>(std::min<std::size_t>(count, no_limit));
  };
  if (const auto* ids = std::get_if<std::vector<std::int32_t>>(&what)) return capped(ids->size());
  if (const auto* text = std::get_if<std::string>(&what)) return capped(text->size() / 4 + 1);
  std::size_t sum = 0;
  for (const auto& m : std::get<chat_prompt>(what).messages) sum += m.content.size() / 4 + 8;
  return capped(sum);
}

request_options
make_request_options(request_id id, const request& what, std::uint64_t seed, std::uint32_t default_credit) {
  request_options o;
  o.id = id;
  o.priority = what.priority;
  o.max_tokens = what.max_tokens.value_or(no_limit);
  o.min_tokens = what.min_tokens;
  o.stop_ids = what.stop_token_ids;
  o.ignore_eos = what.ignore_eos;
  o.logprobs = what.logprobs;
  o.top_logprobs = what.top_logprobs;
  o.echo = what.echo;
  o.score_prompt = what.echo && what.logprobs;
  const auto& s = what.sampling;
  o.sampling.temperature = s.temperature;
  o.sampling.top_k = s.top_k;
  o.sampling.typical_p = s.typical_p;
  o.sampling.top_p = s.top_p;
  o.sampling.min_p = s.min_p;
  o.sampling.repetition_penalty = s.repetition_penalty;
  o.sampling.presence_penalty = s.presence_penalty;
  o.sampling.frequency_penalty = s.frequency_penalty;
  o.sampling.seed = s.seed.value_or(seed);
  split_bias(s.logit_bias, o);
  o.credit = std::max<std::uint32_t>(1, what.credit != 0 ? what.credit : default_credit);
  o.deadline = std::chrono::milliseconds(std::min<std::uint64_t>(what.deadline_ms, longest_deadline.count()));
  o.tenant = what.tenant;
  o.prompt_tokens = estimated_tokens(what.prompt);
  return o;
}

request_core::request_core(request_options options, std::unique_ptr<token_text> text) :
    options_(std::move(options)), text_(std::move(text)) {
  options_.credit = std::max<std::uint32_t>(1, options_.credit);
  options_.deadline = std::min<duration>(options_.deadline, longest_deadline);
  readable_ = options_.group == 0;
}

void request_core::begin(time_point now, request_effects& out) {
  if (options_.deadline > duration::zero()) deadline_ = now + options_.deadline;
  knocked_at_ = now;
  knock(out);
  update_alarm(out);
}

void request_core::knock(request_effects& out) {
  out.emplace_back(admission_request{
      options_.id, options_.priority, options_.prompt_tokens, options_.max_tokens, deadline_, options_.tenant,
      options_.group});
}

void request_core::on(admitted&& m, time_point, request_effects& out) {
  if (phase_ != phase::outside || !of_this_generation(m.id)) return;
  phase_ = phase::tokenising;
  if (early_end_) {
    end_early(*early_end_, out);
    return;
  }
  out.emplace_back(tokenize_prompt{options_.id});
}

void request_core::on(refused&& m, time_point, request_effects& out) {
  if (phase_ == phase::over || !of_this_generation(m.id)) return;
  // An end that the client asked for while the door was still thinking is what it wants to hear.
  fail(early_end_ ? std::move(*early_end_) : std::move(m.why), out);
}

/// Not before: until its first row it may still be refused for waiting too long, and that must be an answer
/// of its own, not the end of one that has begun.
void request_core::on(started&& m, time_point now, request_effects& out) {
  if (phase_ != phase::handed_in || !of_this_generation(m.id)) return;
  ensure_accepted(out);
  account_unread(now, out);
}

void request_core::on(prompt_ready&& m, time_point, request_effects& out) {
  if (phase_ != phase::tokenising) return;
  phase_ = phase::handed_in;
  prompt_ = std::move(m.tokens);
  out.emplace_back(wish());
}

enqueue request_core::wish() const {
  return {options_.id,           prompt_,           options_.sampling,    options_.max_tokens,
          options_.min_tokens,   options_.stop_ids, options_.ignore_eos,  options_.logprobs,
          options_.top_logprobs, options_.banned,   options_.score_prompt};
}

void request_core::on(prompt_failed&& m, time_point, request_effects& out) {
  if (phase_ == phase::tokenising) end_early(std::move(m.why), out);
}

void request_core::on(client_cancel&& m, time_point, request_effects& out) {
  end_early(std::move(m.why), out);
}

void request_core::on(token_ready&& m, time_point now, request_effects& out) {
  if ((phase_ != phase::handed_in && phase_ != phase::ending) || !of_this_generation(m.id)) return;
  drawn_.push_back(m.token);
  last_token_ = now;
  // After a stop string, or once the end was asked for, the client is told nothing more.
  if (!stopped_ && phase_ == phase::handed_in) {
    ensure_accepted(out); // tokens travel in another class than `started` and may overtake it
    emit_token(std::move(m), out);
    account_unread(now, out);
  }
  if (finished_ && has_all_of(*finished_)) conclude(out);
}

void request_core::on(prompt_scored&& m, time_point now, request_effects& out) {
  if ((phase_ != phase::handed_in && phase_ != phase::ending) || !of_this_generation(m.id)) return;
  scores_seen_ += static_cast<std::uint32_t>(m.scores.size());
  if (phase_ == phase::handed_in) {
    ensure_accepted(out);
    echo(std::move(m.scores), out);
    account_unread(now, out);
  }
  if (finished_ && has_all_of(*finished_)) conclude(out);
}

/// Whether everything that the scheduler said before its end is here.
bool request_core::has_all_of(const sequence_finished& end) const noexcept {
  return drawn_.size() >= end.completion_tokens && scores_seen_ >= end.scored_tokens;
}

/// The next part of the prompt: one token for each score, or all of it when none are asked for.
void request_core::echo(std::vector<prompt_score> scores, request_effects& out) {
  if (!options_.echo || !prompt_ || echoed_ >= prompt_->size()) return;
  const std::size_t first = echoed_, unscored = first == 0 ? 1 : 0; // the first token has no score
  echoed_ =
      options_.score_prompt ? std::min(prompt_->size(), first + unscored + scores.size()) : prompt_->size();
  const auto part = std::span<const std::int32_t>(*prompt_).subspan(first, echoed_ - first);
  token_event event;
  event.seq = seq_++;
  event.echo = true;
  event.token_ids.assign(part.begin(), part.end());
  if (!options_.score_prompt) event.text = text_->echo(part);
  for (std::size_t i = 0; options_.score_prompt && i < part.size(); ++i) {
    const prompt_score* score = i < unscored ? nullptr : &scores[i - unscored];
    event.logprobs.push_back(
        scored(part[i], score ? score->logprob : no_logprob, text_->echo_name_of(part[i])));
    if (options_.top_logprobs > 0) {
      auto& top = event.top_logprobs.emplace_back();
      if (score)
        for (const auto& t : score->top)
          top.push_back(scored(t.token, t.logprob, text_->echo_name_of(t.token)));
    }
    event.text += text_->echo_next(part[i], first + i + 1 == prompt_->size());
  }
  ++events_given_;
  out.emplace_back(emit_event{std::move(event)});
}

void request_core::emit_token(token_ready&& m, request_effects& out) {
  token_event event;
  event.seq = seq_++;
  event.token_ids = {m.token};
  if (options_.logprobs) { // before the text moves on: the first token of a text may have another name
    event.logprobs.push_back(scored(m.token, m.logprob, text_->name_of(m.token)));
    if (m.ends) event.logprobs.back().shown = false;
    if (options_.top_logprobs > 0) {
      auto& top = event.top_logprobs.emplace_back();
      for (const auto& t : m.top) top.push_back(scored(t.token, t.logprob, text_->name_of(t.token)));
    }
  }
  if (!m.ends) {
    auto piece = text_->push(m.token, tokens_given_ >= options_.min_tokens);
    event.text = std::move(piece.text);
    stopped_ = piece.stopped;
  }
  ++tokens_given_;
  ++events_given_;
  out.emplace_back(emit_event{std::move(event)});
  if (stopped_ && !finished_) {
    phase_ = phase::ending;
    out.emplace_back(finish{options_.id});
  }
}

void request_core::account_unread(time_point now, request_effects& out) {
  if (phase_ != phase::handed_in) return;
  if (!paused_ && unread() >= options_.credit) {
    paused_ = true;
    slow_at_ = readable_ ? now + options_.slow_consumer : time_point::max();
    out.emplace_back(stream_paused{options_.id});
  }
  // Half the credit back, so that a steady reader does not make the sequence stop and go at every token.
  else if (paused_ && unread() <= options_.credit / 2) {
    paused_ = false;
    slow_at_ = time_point::max();
    out.emplace_back(stream_resumed{options_.id});
  }
  update_alarm(out);
}

void request_core::on(events_read&& m, time_point now, request_effects& out) {
  if (phase_ == phase::over) return;
  readable_ = true;
  events_taken_ = std::clamp(m.taken, events_taken_, events_given_);
  if (paused_) slow_at_ = now + options_.slow_consumer; // it reads, however slowly
  account_unread(now, out);
}

void request_core::on(alarm_rang&&, time_point now, request_effects& out) {
  if (phase_ == phase::over) return;
  alarm_ = time_point::max();
  if (now >= deadline_) {
    deadline_ = time_point::max();
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(options_.deadline).count();
    end_early(
        {errc::deadline_exceeded,
         "the request did not end within its deadline of " + std::to_string(ms) + " ms", "deadline_ms", 0},
        out);
  } else if (now >= slow_at_) {
    slow_at_ = time_point::max();
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(options_.slow_consumer).count();
    end_early(
        {errc::slow_consumer,
         "the client read nothing for " + std::to_string(ms) + " ms and has " + std::to_string(unread()) +
             " token events unread",
         {},
         0},
        out);
  }
  update_alarm(out);
}

void request_core::on(sequence_finished&& m, time_point, request_effects& out) {
  if (phase_ == phase::over || finished_ || !of_this_generation(m.id)) return;
  finished_ = std::move(m);
  // Tokens travel in another message class: a good end waits for those still on their way.
  if (finished_->failed || phase_ == phase::ending || has_all_of(*finished_)) conclude(out);
}

/// Asks the scheduler for the end, at most once; before it has answered the door it knows nothing to end.
void request_core::end_early(error why, request_effects& out) {
  if (phase_ == phase::over || phase_ == phase::ending || finished_) return;
  if (!early_end_) early_end_ = std::move(why);
  if (phase_ == phase::outside) return;
  phase_ = phase::ending;
  out.emplace_back(cancel{options_.id, *early_end_});
}

/// The scheduler that knew this request is gone, with all its blocks and with what it had still to say.
void request_core::on(scheduler_renewed&& m, time_point, request_effects& out) {
  if (phase_ == phase::over || of_this_generation(m.id)) return;
  options_.id = m.id;
  switch (phase_) {
  case phase::outside: // whatever the door had decided
    if (early_end_)
      fail(std::move(*early_end_), out);
    else
      knock(out);
    break;
  case phase::tokenising:
  case phase::handed_in:
    come_back(m, out);
    break;
  case phase::ending: // as it asked for: nothing of it is left
    finished_ = sequence_finished{options_.id};
    conclude(out);
    break;
  case phase::over:
    break;
  }
}

/// An end that was told, but not with all its tokens, is told again behind them.
void request_core::come_back(const scheduler_renewed& m, request_effects& out) {
  finished_.reset();
  auto place = std::make_shared<held_place>();
  place->priority = options_.priority;
  place->prompt_tokens = prompt_ ? static_cast<std::uint32_t>(prompt_->size()) : options_.prompt_tokens;
  place->tenant = options_.tenant;
  place->group = options_.group;
  place->arrival = knocked_at_;
  place->wish = wish();
  place->drawn = drawn_;
  place->scored = scores_seen_;
  place->last_token = last_token_;
  place->begun = accepted_ || m.begun;
  place->started = accepted_;
  place->paused = paused_;
  place->suspect = m.suspect;
  out.emplace_back(readmission{options_.id, std::move(place)});
}

void request_core::conclude(request_effects& out) {
  // Once the end was asked for, tokens were dropped: whatever end came first, it is not the whole answer.
  if (early_end_ && early_end_->code != errc::cancelled) {
    fail(std::move(*early_end_), out);
    return;
  }
  if (finished_->failed && !stopped_) {
    fail(std::move(*finished_->failed), out);
    return;
  }
  // A cut answer stays a prefix of the whole one: what was held back might have become a stop string.
  const bool cut = early_end_.has_value() || finished_->reason == finish_reason::cancelled;
  token_text::piece rest;
  if (!stopped_ && !cut) {
    rest = text_->flush();
    stopped_ = rest.stopped;
  }
  const auto reason = stopped_     ? finish_reason::stop
                      : early_end_ ? finish_reason::cancelled
                                   : finished_->reason;
  if (!accepted_ && reason == finish_reason::cancelled) { // nobody was told that it runs
    fail({errc::cancelled, "cancelled before it was accepted", {}, 0}, out);
    return;
  }
  ensure_accepted(out);
  if (!rest.text.empty()) {
    token_event event;
    event.seq = seq_++;
    event.text = std::move(rest.text);
    out.emplace_back(emit_event{std::move(event)});
  }
  done_event done;
  done.seq = seq_++;
  done.reason = reason;
  done.usage = {prompt_ ? static_cast<std::uint32_t>(prompt_->size()) : 0, tokens_given_, 0};
  done.model = options_.model;
  done.system_fingerprint = options_.system_fingerprint;
  close(std::move(done), out);
}

void request_core::ensure_accepted(request_effects& out) {
  if (accepted_) return;
  accepted_ = true;
  out.emplace_back(
      emit_event{accepted_event{prompt_ ? *prompt_ : std::vector<std::int32_t>{}, options_.model, {}}});
  // With scores they come as the prompt is computed, but a prompt of one token has none to wait for.
  if (!options_.score_prompt || (prompt_ && prompt_->size() == 1)) echo({}, out);
}

void request_core::fail(error why, request_effects& out) {
  close(failed_event{std::move(why)}, out);
}

void request_core::close(stream_event last, request_effects& out) {
  phase_ = phase::over;
  out.emplace_back(emit_event{std::move(last)});
  deadline_ = slow_at_ = time_point::max();
  update_alarm(out);
  out.emplace_back(retire{});
}

void request_core::update_alarm(request_effects& out) {
  const auto next = phase_ == phase::ending ? time_point::max() : std::min(deadline_, slow_at_);
  // One that rings early finds nothing due and asks again: cheaper than a new alarm for every event read.
  if (next == alarm_ || (alarm_ < next && next != time_point::max())) return;
  alarm_ = next;
  out.emplace_back(set_alarm{next});
}

} // namespace troupe::actors
