// SPDX-License-Identifier: Apache-2.0
// Oracles of what sequences share: that what is read was computed for these very tokens, that copies come
// from where they may and in time, and that what is known is not computed again.
#include "sim/simulation.hpp"

#include <algorithm>

namespace troupe::sim {

std::vector<std::int32_t> simulation::tokens_alone(const participant& p) const {
  auto all = p.script->prompt;
  all.insert(all.end(), p.expected.tokens.begin(), p.expected.tokens.end());
  return all;
}

/// What its positions hold when it is run alone.
const std::vector<std::uint64_t>& simulation::slots_alone(participant& p, bool beyond) const {
  auto& slots = p.slots[beyond ? 1 : 0];
  if (slots.empty())
    for (const std::int32_t token : tokens_alone(p))
      slots.push_back(slot_value(
          slots.empty() ? 0 : slots.back(), token, static_cast<std::uint32_t>(slots.size()), beyond));
  return slots;
}

/// After a step: every position that its rows could read holds what was computed for the tokens of that
/// sequence up to there, here or where it was copied from.
void simulation::check_contents(const kernels::step_input& input) {
  for (std::size_t i = 0; i < input.rows.size(); ++i) {
    const auto& row = input.rows[i];
    if (i + 1 < input.rows.size() && input.rows[i + 1].sequence == row.sequence) continue;
    const auto& s = input.sequences[row.sequence];
    auto& p = participants_.at(s.sampling.seed - 1000);
    const auto& slots = slots_alone(p, scenario_.model.beyond(s.reach));
    const auto end = std::min<std::size_t>(slots.size(), row.position + 1);
    const std::size_t groups = scenario_.model.windows.size();
    const auto holds = [&](std::size_t at, std::size_t group) {
      const auto block = s.blocks[at / scenario_.block_tokens * groups + group];
      return block == actors::no_block || backend_.block(block)[at % scenario_.block_tokens] ==
                                              in_group(scenario_.model, group, slots[at]);
    };
    for (std::size_t at = 0; at < end; ++at)
      for (std::size_t group = 0; group < groups; ++group)
        if (!holds(at, group))
          complain(
              "position " + std::to_string(at) + " was read, which was not computed for these tokens",
              p.core->id().number);
  }
}

/// A grant's copy fills the place behind its shared blocks, from a block of the same tenant that stays.
void simulation::check_found(const actors::block_grant& g) {
  if (!g.copy || is_closing(g.id)) return;
  const auto& copy = *g.copy;
  const std::uint32_t shared = (g.cached - copy.positions) / scenario_.block_tokens;
  require(
      copy.positions > 0 && copy.positions < scenario_.block_tokens &&
          shared * scenario_.block_tokens + copy.positions == g.cached,
      "a copy of other positions than those behind the shared blocks", g.id.number);
  require(g.blocks.at(shared) == copy.to, "a copy goes into another block than the next", g.id.number);
  require(!cache_.pool().is_free(copy.from), "a block is to be copied that may be given away", g.id.number);
  require(
      participants_[writers_[copy.from]].script->tenant == of(g.id).script->tenant,
      "a sequence found another tenant's block to copy", g.id.number);
}

/// Each copy is for a sequence of the step that alone holds the block, and goes on right behind it.
void simulation::check_copies(const kernels::step_input& input) {
  for (const auto& copy : input.copies) {
    std::size_t owners = 0;
    for (std::size_t i = 0; i < input.rows.size(); ++i) {
      const auto& row = input.rows[i];
      if (i > 0 && input.rows[i - 1].sequence == row.sequence) continue;
      const auto& blocks = input.sequences[row.sequence].blocks;
      const auto at = std::find(blocks.begin(), blocks.end(), copy.to);
      if (at == blocks.end()) continue;
      ++owners;
      require(
          row.position ==
              static_cast<std::size_t>(at - blocks.begin()) * scenario_.block_tokens + copy.positions,
          "the rows do not begin behind what is copied");
    }
    require(owners == 1, "a block that is copied to is in the tables of none, or several");
  }
}

/// What the running step copies from is not given away.
void simulation::check_sources() {
  for (const auto& copy : in_backend_->copies)
    require(!cache_.pool().is_free(copy.from), "a block that the running step copies from is free");
}

/// The cache manager hears what a sequence's first positions hold.
void simulation::note_known(const actors::publish_blocks& m) {
  for (const auto& f : m.all) {
    auto& known = of(f.id).known;
    known =
        std::max(known, f.first_block * scenario_.block_tokens + static_cast<std::uint32_t>(f.tokens.size()));
  }
}

/// Where nothing known is given away: a sequence begins behind all that its tokens have in common with any
/// that are known, to the position; one is left to compute.
void simulation::check_grants(
    const actors::blocks_reserved& m, const std::vector<actors::block_demand>& demands) {
  for (const auto& demand : demands) {
    const auto g =
        std::find_if(m.grants.begin(), m.grants.end(), [&](const auto& x) { return x.id == demand.id; });
    if (!demand.prefix || g == m.grants.end()) continue;
    std::size_t most = 0;
    for (const auto& p : participants_) {
      if (!p.core || p.script->tenant != of(demand.id).script->tenant) continue;
      auto tokens = tokens_alone(p);
      tokens.resize(std::min<std::size_t>(tokens.size(), p.known));
      const auto apart = std::ranges::mismatch(tokens, *demand.prefix).in1;
      most = std::max<std::size_t>(most, static_cast<std::size_t>(apart - tokens.begin()));
    }
    most = std::min(most, demand.prefix->size() - 1);
    if (g->cached != most)
      complain(
          "begins behind " + std::to_string(g->cached) + " tokens, where " + std::to_string(most) +
              " are known",
          demand.id.number);
  }
}

/// Where nothing is disturbed: of the choices of one prompt one computes it, and each of the others a row of
/// it, or two where its last block has no more.
void simulation::check_choices() {
  for (std::uint64_t group = 1; group <= participants_.size(); ++group) {
    std::size_t whole = 0;
    for (const auto& p : participants_) {
      if (p.script->group != group) continue;
      const auto tail = (p.script->prompt.size() - 1) % scenario_.block_tokens + 1;
      if (p.prompt_rows > (tail <= 2 ? tail : 1) && ++whole > 1)
        complain(
            "computes " + std::to_string(p.prompt_rows) + " rows of a prompt that another choice computed",
            p.core->id().number);
    }
  }
}

} // namespace troupe::sim
