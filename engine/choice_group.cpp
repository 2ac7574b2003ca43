// SPDX-License-Identifier: Apache-2.0
#include "engine/choice_group.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

namespace troupe::detail {
namespace {

template<class T>
void append(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

} // namespace

std::uint64_t choice_seed(std::uint64_t seed, std::uint32_t choice) noexcept {
  if (choice == 0) return seed;
  // The finaliser of SplitMix64 (Steele, Lea, Flood 2014): neighbouring seeds and choices share nothing.
  std::uint64_t x = seed + choice * 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

choice_group::choice_group(const shape& s) :
    shape_(s), members_(std::size_t{s.prompts} * s.candidates), prompts_(s.prompts),
    reasons_(std::size_t{s.prompts} * s.n, finish_reason::stop), unknown_(members()), running_(members()),
    counted_(s.prompts) {}

void choice_group::prompt_known(std::uint32_t member, const std::vector<std::int32_t>& ids, output& out) {
  if (over_ || std::exchange(members_[member].known, true)) return;
  --unknown_;
  if (member % shape_.candidates == 0) prompts_[member / shape_.candidates] = ids;
  accept_if_ready(out);
  if (accepted_ && std::exchange(finish_due_, false)) finish(out);
}

void choice_group::take(std::uint32_t member, stream_event event, output& out) {
  if (over_) return;
  if (auto* accepted = std::get_if<accepted_event>(&event)) {
    started_ = true;
    model_ = std::move(accepted->model);
    accept_if_ready(out);
  } else if (auto* token = std::get_if<token_event>(&event)) {
    take_token(member, std::move(*token), out);
  } else if (auto* done = std::get_if<done_event>(&event)) {
    fingerprint_ = std::move(done->system_fingerprint);
    end_member(member, done->reason, done->usage, out);
  } else if (auto& failed = std::get<failed_event>(event); failed.why.code == errc::cancelled) {
    if (!std::exchange(members_[member].known, true)) --unknown_; // its prompt will not be told any more
    accept_if_ready(out);
    end_member(member, finish_reason::cancelled, {}, out);
  } else {
    fail(std::move(failed.why), out);
  }
}

void choice_group::fail(error why, output& out) {
  if (std::exchange(over_, true)) return;
  out.events.emplace_back(failed_event{std::move(why)});
  out.cancel_members = true;
}

void choice_group::take_token(std::uint32_t member, token_event event, output& out) {
  if (!chooses()) return pass(member, std::move(event), out);
  out.kept = true;
  member_state& candidate = members_[member];
  if (event.echo) {
    candidate.echo.push_back(std::move(event));
    return;
  }
  for (const scored_token& t : event.logprobs) candidate.score += static_cast<double>(t.logprob);
  candidate.drawn.text += event.text;
  append(candidate.drawn.token_ids, event.token_ids);
  if (!shape_.logprobs) return;
  append(candidate.drawn.logprobs, event.logprobs);
  append(candidate.drawn.top_logprobs, event.top_logprobs);
}

void choice_group::end_member(std::uint32_t member, finish_reason reason, const usage& spent, output& out) {
  member_state& m = members_[member];
  if (std::exchange(m.ended, true)) return;
  m.reason = reason;
  --running_;
  const std::uint32_t prompt = member / shape_.candidates;
  usage_.completion_tokens += spent.completion_tokens;
  if (spent.prompt_tokens > 0 && !counted_[prompt]) {
    counted_[prompt] = true;
    usage_.prompt_tokens += spent.prompt_tokens;
    usage_.cached_tokens += spent.cached_tokens;
  }
  if (chooses())
    choose(prompt, out);
  else
    reasons_[member] = reason;
  if (running_ == 0) finish(out);
}

/// Once all candidates of the prompt have ended. A cancelled one leaves nothing to choose from.
void choice_group::choose(std::uint32_t prompt, output& out) {
  const std::uint32_t first = prompt * shape_.candidates, index = prompt * shape_.n;
  const auto begin = members_.begin() + first, end = begin + shape_.candidates;
  if (!std::all_of(begin, end, [](const member_state& m) { return m.ended; })) return;
  if (std::any_of(begin, end, [](const member_state& m) { return m.reason == finish_reason::cancelled; })) {
    std::fill_n(reasons_.begin() + index, shape_.n, finish_reason::cancelled);
    return;
  }
  const auto mean = [&](std::uint32_t m) {
    return members_[m].score /
           static_cast<double>(std::max<std::size_t>(1, members_[m].drawn.token_ids.size()));
  };
  std::vector<std::uint32_t> order(shape_.candidates);
  std::iota(order.begin(), order.end(), first);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return mean(a) > mean(b); });
  for (std::uint32_t i = 0; i < shape_.n; ++i) {
    member_state& best = members_[order[i]];
    reasons_[index + i] = best.reason;
    for (token_event& part : best.echo) pass(index + i, std::move(part), out);
    pass(index + i, std::move(best.drawn), out);
  }
  for (auto m = begin; m != end; ++m) m->drawn = {};
}

void choice_group::accept_if_ready(output& out) {
  if (accepted_ || !started_ || unknown_ > 0) return;
  accepted_ = true;
  accepted_event event;
  event.prompt_token_ids = std::move(prompts_.front());
  event.further_prompts.assign(
      std::make_move_iterator(prompts_.begin() + 1), std::make_move_iterator(prompts_.end()));
  event.model = model_;
  out.events.emplace_back(std::move(event));
  for (token_event& token : std::exchange(early_, {})) pass(token.index, std::move(token), out);
}

void choice_group::pass(std::uint32_t index, token_event event, output& out) {
  event.index = index;
  if (!accepted_) {
    early_.push_back(std::move(event));
    return;
  }
  event.seq = seq_++;
  out.events.emplace_back(std::move(event));
}

void choice_group::finish(output& out) {
  // Short answers may end before the last prompt's ids are told, which come from another thread.
  const bool answered = std::any_of(members_.begin(), members_.end(), [](const member_state& m) {
    return m.reason != finish_reason::cancelled;
  });
  if (!accepted_ && started_ && unknown_ > 0 && answered) {
    finish_due_ = true;
    return;
  }
  if (!accepted_) // nobody was told that it runs, so only a cancel can have ended all of them
    return fail({errc::cancelled, "cancelled before it was accepted", {}, 0}, out);
  over_ = true;
  done_event done;
  done.seq = seq_++;
  done.reason = reasons_.front();
  done.usage = usage_;
  done.model = std::move(model_);
  done.system_fingerprint = std::move(fingerprint_);
  if (reasons_.size() > 1) done.reasons = std::move(reasons_);
  out.events.emplace_back(std::move(done));
}

} // namespace troupe::detail
