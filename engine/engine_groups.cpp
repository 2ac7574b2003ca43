// SPDX-License-Identifier: Apache-2.0
// Requests of several sequences: a request actor for each, joined into the client's one stream.
#include "engine/engine_state.hpp"
#include "engine/request_check.hpp"
#include "runtime/base/log.hpp"

#include <algorithm>
#include <utility>

namespace troupe::detail {
namespace {

/// The request that one sequence of several runs.
request member_request(const request& asked, std::uint32_t choice, std::uint32_t sequences) {
  request one;
  one.sampling = asked.sampling;
  if (one.sampling.seed) one.sampling.seed = choice_seed(*one.sampling.seed, choice);
  one.max_tokens = asked.max_tokens;
  one.echo = asked.echo;
  one.min_tokens = asked.min_tokens;
  one.stop = asked.stop;
  one.stop_token_ids = asked.stop_token_ids;
  one.ignore_eos = asked.ignore_eos;
  one.skip_special_tokens = asked.skip_special_tokens;
  one.logprobs = asked.logprobs || sequences_per_prompt(asked) > asked.n; // candidates are chosen by them
  one.top_logprobs = asked.top_logprobs;
  one.priority = asked.priority;
  one.deadline_ms = asked.deadline_ms;
  one.tenant = asked.tenant;
  one.name = asked.name;
  one.credit = asked.credit == 0 ? 0 : std::max<std::uint32_t>(1, asked.credit / sequences);
  return one;
}

} // namespace

void engine_state::open_group(std::uint64_t id, std::shared_ptr<stream_state> client, request asked) {
  const auto prompts = static_cast<std::uint32_t>(asked.further_prompts.size() + 1);
  const choice_group::shape shape{prompts, asked.n, sequences_per_prompt(asked), asked.logprobs};
  live_group& group = groups_.emplace(id, live_group{client, choice_group(shape), 0, {}}).first->second;
  if (asked.credit == 0) asked.credit = options.stream_credit;
  const std::uint32_t members = group.joined.members();
  for (std::uint32_t p = 0; p < prompts; ++p) {
    prompt& text = p == 0 ? asked.prompt : asked.further_prompts[p - 1];
    opening one = opening_of(text, asked);
    one.group = id;
    for (std::uint32_t c = 0; c < shape.candidates; ++c) {
      const std::uint32_t member = p * shape.candidates + c;
      one.id = id + member;
      ++group.alive;
      auto opened = open(one, client, member_request(asked, c, members));
      if (opened) continue;
      live_.erase(one.id);
      cast_->requests.erase(one.id);
      --group.alive;
      choice_group::output out;
      group.joined.fail(opened.error(), out);
      carry_out(id, member, std::move(out));
      if (group.alive == 0) groups_.erase(id);
      return;
    }
  }
}

void engine_state::prompt_known(std::uint64_t group, std::uint64_t id, const actors::token_list& tokens) {
  if (const auto live = live_.find(id); live != live_.end()) remember_prompt(live->second, *tokens);
  const auto found = groups_.find(group);
  if (found == groups_.end()) return;
  const auto member = static_cast<std::uint32_t>(id - group);
  choice_group::output out;
  found->second.joined.prompt_known(member, *tokens, out);
  carry_out(group, member, std::move(out));
}

void engine_state::carry_out(std::uint64_t group, std::uint32_t member, choice_group::output what) {
  live_group& g = groups_.at(group);
  if (what.kept) tell_of_events(group + member, 1);
  bool accepted = false;
  for (stream_event& event : what.events) {
    accepted = accepted || std::holds_alternative<accepted_event>(event);
    tell(*g.client, std::move(event));
  }
  if (accepted) // only now can the client read what they give
    for (std::uint32_t m = 0; m < g.joined.members(); ++m) tell_of_events(group + m, 0);
  if (!what.cancel_members) return;
  for (std::uint32_t m = 0; m < g.joined.members(); ++m) cancel_sequence(group + m);
}

/// All its members are gone. A client is never left without an end, whatever went wrong in the joining.
void engine_state::close_group(std::uint64_t group) {
  live_group& g = groups_.at(group);
  if (!g.joined.over()) {
    log().error("request {}: all its choices ended and the request did not", group);
    choice_group::output out;
    g.joined.fail({errc::internal, "the request failed inside the engine", {}, 0}, out);
    for (stream_event& event : out.events) tell(*g.client, std::move(event));
  }
  groups_.erase(group);
}

/// A client that reads the events of one choice is no slow reader to the others, whose events come later. Not
/// at every event, since there may be many choices.
void engine_state::tell_of_reading(std::uint64_t group) {
  live_group& g = groups_.at(group);
  const auto now = environment.clock->now();
  const auto pause = std::min<runtime::duration>(
      std::chrono::seconds(1), std::chrono::milliseconds(options.slow_consumer_ms) / 4);
  if (now - g.told < pause) return;
  g.told = now;
  for (std::uint32_t m = 0; m < g.joined.members(); ++m) tell_of_events(group + m, 0);
}

} // namespace troupe::detail
