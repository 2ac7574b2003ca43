// SPDX-License-Identifier: Apache-2.0
// Layer groups and windows: models that have them, and what must hold of their block tables, reckoned from
// positions, one by one.
#include "runtime/rng.hpp"
#include "sim/simulation.hpp"

#include <algorithm>

namespace troupe::sim {
namespace {

/// The position before a row's is there in every group, however short its window.
std::uint32_t kept(std::uint32_t window) noexcept {
  return window == 0 ? 0 : std::max(2U, window);
}

} // namespace

std::uint32_t scenario::most_blocks(std::uint32_t window, std::uint32_t positions) const noexcept {
  const std::uint32_t whole = (positions + block_tokens - 1) / block_tokens;
  if (window == 0 || positions == 0) return whole;
  const std::uint32_t together = std::min(options.max_step_tokens, positions) + kept(window) - 1;
  std::uint32_t touched = 0; // at worst, wherever blocks begin
  for (std::uint32_t first = 0; first < block_tokens; ++first)
    touched = std::max(touched, (first + together - 1) / block_tokens + 1);
  return std::min(whole, touched);
}

std::uint32_t scenario::grouped_limit() const noexcept {
  for (std::uint32_t positions = context; positions > 0; --positions) {
    std::uint32_t sum = 0;
    for (const std::uint32_t window : model.windows) sum += most_blocks(window, positions);
    if (sum <= blocks) return positions;
  }
  return 0;
}

void make_groups(scenario& s, std::uint64_t seed) {
  runtime::random_stream r(seed, 5);
  if (!r.chance(0.25)) return;
  const auto window = static_cast<std::uint32_t>(r.chance(0.1) ? r.between(1, 2) : r.between(2, 24));
  switch (r.below(4)) {
  case 0:
    s.model.windows = {window};
    break;
  case 1:
    s.model.windows = {window, 0};
    break;
  case 2:
    s.model.windows = {0, window, 0};
    break;
  default:
    s.model.windows = {window, window, window, window, window, 0};
  }
  // As tight as with one group, or tighter, and enough for a few tokens.
  const auto groups = static_cast<std::uint32_t>(s.model.windows.size());
  s.blocks *= groups;
  if (r.chance(0.5)) s.blocks -= static_cast<std::uint32_t>(r.between(0, s.blocks / 2));
  s.blocks = std::max(s.blocks, 4 * groups);
  if (s.model.border != 0) s.model.border = std::min(s.model.border, s.limit());
}

/// A table has no more than its sequence can need at a time, and the scheduler knows how much it has.
void simulation::check_groups() {
  const std::size_t groups = scenario_.model.windows.size();
  const bool settled = !mail_.waits(scheduler, cache_manager) && !mail_.waits(cache_manager, scheduler);
  for (const auto& v : seen_) {
    const auto table = cache_.pool().table(v.id);
    require(table.size() % groups == 0, "a block table that ends within an index", v.id.number);
    const auto positions = static_cast<std::uint32_t>(of(v.id).script->prompt.size()) + v.generated;
    for (std::size_t g = 0; g < groups; ++g) {
      std::uint32_t held = 0;
      for (std::size_t at = g; at < table.size(); at += groups) held += table[at] != actors::no_block;
      require(
          held <= scenario_.most_blocks(scenario_.model.windows[g], positions),
          "a sequence keeps blocks that it needs no more", v.id.number);
    }
    if (settled && !v.closing && !copied_now(v.id))
      require(
          v.held == cache_.pool().held(v.id), "the scheduler counts other blocks than the ledger",
          v.id.number);
  }
}

/// Every position that a row reads stands in a block that its sequence holds.
void simulation::check_holes(const kernels::step_input& input) {
  const auto& windows = scenario_.model.windows;
  for (const auto& row : input.rows) {
    const auto& s = input.sequences.at(row.sequence);
    for (std::size_t g = 0; g < windows.size(); ++g)
      for (std::uint32_t p = 0; p <= row.position; ++p) {
        if (windows[g] != 0 && p + kept(windows[g]) <= row.position) continue;
        const actors::block_id b = s.blocks.at(p / scenario_.block_tokens * windows.size() + g);
        require(b != actors::no_block, "a row reads a position whose block is gone", s.sampling.seed - 999);
        require(!cache_.pool().is_free(b), "a row reads a block that nobody holds", s.sampling.seed - 999);
      }
  }
}

} // namespace troupe::sim
