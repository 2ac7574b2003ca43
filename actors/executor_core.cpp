// SPDX-License-Identifier: Apache-2.0
// Rows out, results in.
#include "actors/executor_core.hpp"

#include <new>
#include <utility>

namespace troupe::actors {

void executor_core::on(run_step&& m, time_point, executor_effects& out) {
  if (running_ !=
      0) { // the scheduler waits for the end of a step; were it to break that, the newer step fails
    out.emplace_back(step_failed{m.step_seq, "step " + std::to_string(running_) + " is still running"});
    return;
  }
  running_ = m.step_seq;
  members_.clear();
  kernels::step_input input;
  input.step_seq = m.step_seq;
  try {
    in_hand_.clear();
    for (const auto& e : m.entries) in_hand_.push_back(e.id);
    std::size_t rows = 0;
    for (const auto& e : m.entries) rows += e.count;
    input.rows.reserve(rows);
    input.sequences.reserve(m.entries.size());
    members_.reserve(m.entries.size());
    for (auto& e : m.entries) prepare(e, input);
  } catch (const std::bad_alloc&) {
    fail("out of memory", out);
    return;
  }
  if (members_.size() != m.entries.size()) {
    fail("the plan names positions of a sequence that the executor does not hold", out);
    return;
  }
  out.emplace_back(submit_step{std::move(input)});
}

/// Adds one entry's rows. An entry that makes no sense adds nothing, which fails the step.
void executor_core::prepare(plan_entry& entry, kernels::step_input& input) {
  if (entry.open) {
    sequence fresh;
    fresh.tokens.reserve(entry.open->prompt->size() + entry.open->generated.size() + 1);
    fresh.tokens = *entry.open->prompt;
    fresh.tokens.insert(fresh.tokens.end(), entry.open->generated.begin(), entry.open->generated.end());
    fresh.prompt_tokens = static_cast<std::uint32_t>(entry.open->prompt->size());
    fresh.sampling = entry.open->sampling;
    fresh.logprobs = entry.open->logprobs;
    fresh.top_logprobs = entry.open->top_logprobs;
    fresh.filter = std::move(entry.open->filter);
    fresh.reach = entry.open->reach;
    sequences_[entry.id] = std::move(fresh);
  }
  const auto at = sequences_.find(entry.id);
  if (at == sequences_.end() || entry.count == 0) return;
  sequence& s = at->second;
  if (std::size_t{entry.first} + entry.count > s.tokens.size()) return;
  s.blocks.insert(s.blocks.end(), entry.new_blocks.begin(), entry.new_blocks.end());
  if (entry.copy) input.copies.push_back(*entry.copy);
  const auto indices = static_cast<std::uint32_t>(s.blocks.size()) / groups_.size();
  groups_.for_passed(
      indices, s.passed, entry.first, [&](std::uint32_t passed) { s.blocks[passed] = no_block; });
  s.passed = entry.first;

  const auto index = static_cast<std::uint32_t>(input.sequences.size());
  auto& part = input.sequences.emplace_back();
  part.blocks = s.blocks;
  part.sampling = s.sampling;
  part.prompt_tokens = s.prompt_tokens;
  part.reach = s.reach;
  part.top_logprobs = s.top_logprobs;
  part.logprobs = s.logprobs;
  if (entry.want_token && s.sampling.penalised()) part.history = s.tokens;
  if (entry.want_token && s.filter)
    part.mask = s.filter->after(std::span<const std::int32_t>(s.tokens).subspan(s.prompt_tokens));
  std::uint32_t first_scored = 0, scored = 0;
  for (std::uint32_t i = 0; i < entry.count; ++i) {
    const std::uint32_t position = entry.first + i;
    auto& row = input.rows.emplace_back();
    row = {index, s.tokens[position], position, kernels::row_output::none};
    if (position < entry.score_from || position + 1 >= s.prompt_tokens) continue;
    row.want = kernels::row_output::score;
    row.target = s.tokens[position + 1];
    if (scored++ == 0) first_scored = static_cast<std::uint32_t>(input.rows.size() - 1);
  }
  if (entry.want_token) input.rows.back().want = kernels::row_output::token;
  members_.push_back(
      {entry.id, entry.first + entry.count - 1, static_cast<std::uint32_t>(input.rows.size() - 1),
       entry.want_token, first_scored, scored});
}

void executor_core::on(close_sequence&& m, time_point, executor_effects&) {
  sequences_.erase(m.id);
}

void executor_core::on(step_computed&& m, time_point, executor_effects& out) {
  if (m.result.step_seq != running_ || running_ == 0 || awaits_verdict_) return;
  if (m.result.failed) {
    fail(std::move(m.result.failure), out);
    return;
  }
  std::string fault;
  try {
    if (!collect(m.result, fault)) {
      fail(std::move(fault), out);
      return;
    }
    check_rows suspects{running_, {}};
    for (std::size_t i = 0; i < members_.size(); ++i)
      if (results_.results[i].not_finite)
        suspects.rows.push_back({members_[i].id, members_[i].last_position});
    if (!suspects.rows.empty()) {
      awaits_verdict_ = true;
      out.emplace_back(std::move(suspects));
      return;
    }
    deliver(out);
  } catch (const std::bad_alloc&) {
    fail("out of memory", out);
  }
}

/// Pairs the backend's rows with the plan's sequences. False: the answer breaks the contract.
bool executor_core::collect(kernels::step_result& result, std::string& fault) {
  results_ = {running_, {}, duration(static_cast<std::int64_t>(result.duration_ns))};
  results_.results.reserve(members_.size());
  std::size_t next = 0;
  for (const auto& m : members_) {
    auto& r = results_.results.emplace_back();
    r.id = m.id;
    if (collect_member(m, result, next, r)) continue;
    fault = "the backend did not answer every row up to " + std::to_string(m.last_row);
    return false;
  }
  return true;
}

/// The rows of one sequence that want an answer: its scored ones, then the one that draws.
bool executor_core::collect_member(
    const member& m, kernels::step_result& result, std::size_t& next, sequence_result& r) {
  const std::size_t wanted = m.scored_rows + (m.want_token ? 1U : 0U);
  if (result.rows.size() - next < wanted) return false;
  r.scores.reserve(m.scored_rows);
  for (std::size_t i = 0; i < wanted; ++i) {
    auto& row = result.rows[next++];
    r.not_finite = r.not_finite || (row.flags & kernels::row_not_finite) != 0;
    const bool scored = i < m.scored_rows;
    if (row.row != (scored ? m.first_scored_row + i : m.last_row)) return false;
    if (scored) {
      r.scores.push_back({row.logprob, std::move(row.top)});
      continue;
    }
    r.token = row.token;
    r.logprob = row.logprob;
    r.top = std::move(row.top);
  }
  return true;
}

void executor_core::on(row_verdicts&& m, time_point, executor_effects& out) {
  if (m.step_seq != running_ || !awaits_verdict_) return;
  deliver(out); // every verdict there is says fail; the flags are set already
}

void executor_core::deliver(executor_effects& out) {
  try {
    for (const auto& r : results_.results) {
      if (r.token < 0 || r.not_finite) continue;
      const auto at = sequences_.find(r.id);
      if (at != sequences_.end()) at->second.tokens.push_back(r.token);
    }
  } catch (const std::bad_alloc&) { // the scheduler opens every sequence of a failed step anew
    fail("out of memory", out);
    return;
  }
  out.emplace_back(std::move(results_));
  results_ = {};
  running_ = 0;
  awaits_verdict_ = false;
}

void executor_core::fail(std::string reason, executor_effects& out) {
  out.emplace_back(step_failed{running_, std::move(reason)});
  running_ = 0;
  awaits_verdict_ = false;
}

std::vector<request_id> executor_core::requests_in_step() const {
  return running_ == 0 ? std::vector<request_id>{} : in_hand_;
}

} // namespace troupe::actors
