// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts: rows choose, are gathered by expert, multiplied together and added back.
//
// The number of tiles is fixed when the step is planned, the rows of an expert are known only once the router
// has run: there are tiles for as many experts as could be chosen, and those without rows return at once.
#include "kernels/cpu_step.hpp"

#include "runtime/base/checked.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace troupe::kernels {

namespace {

/// The `chosen` largest of `scores`, of equal ones the lower index, to `best` in ascending order of index.
void choose_largest(const float* scores, std::uint32_t experts, std::uint32_t chosen, std::uint32_t* best) {
  std::uint32_t count = 0; // best[0, count) descends in score
  for (std::uint32_t e = 0; e < experts; ++e) {
    if (count == chosen && !(scores[e] > scores[best[chosen - 1]])) continue;
    std::uint32_t at = count < chosen ? count++ : chosen - 1;
    for (; at > 0 && scores[e] > scores[best[at - 1]]; --at) best[at] = best[at - 1];
    best[at] = e;
  }
  std::sort(best, best + chosen);
}

/// Where the channels of expert `e` stand: a matrix and the first of them.
struct expert_channels {
  const packed_weight& weight;
  std::uint32_t begin;

  expert_channels(
      const moe_op::matrices& list, std::uint32_t experts, std::uint32_t e, std::uint32_t channels) :
      weight(*list[e / (experts / list.size())]),
      begin(e % static_cast<std::uint32_t>(experts / list.size()) * channels) {}
};

} // namespace

void cpu_step::expert_routing::grow(std::uint32_t experts, std::size_t entries) {
  if (first.size() < experts + std::size_t{1}) first.resize(experts + std::size_t{1});
  if (active.size() < experts) active.resize(experts);
  if (expert.size() >= entries) return;
  expert.resize(entries);
  weight.resize(entries);
  place.resize(entries);
}

void cpu_step::run_router(const planned& phase, std::uint32_t tile, std::uint32_t worker) {
  const auto& o = op_of<moe_op>(phase);
  const std::uint32_t begin = tile * phase.tile_channels;
  const std::uint32_t end = std::min(o.experts, begin + phase.tile_channels);
  const std::uint32_t hidden = width_of(o.in), rows = row_count(o.in);
  for (std::uint32_t first = 0; first < rows; first += row_block)
    multiply(
        *o.router, rows_of(o.in) + std::size_t{first} * hidden, hidden, std::min(row_block, rows - first),
        begin, end, rows_of(o.scores) + std::size_t{first} * o.experts + begin, o.experts, worker);
}

void cpu_step::run_choice(const planned& phase, std::uint32_t tile, std::uint32_t) {
  const auto& o = op_of<moe_op>(phase);
  const row_range range(tile, small_rows, row_count(o.in));
  for (std::uint32_t row = range.first; row < range.last; ++row) {
    float* scores = rows_of(o.scores) + std::size_t{row} * o.experts;
    std::uint32_t* chosen = routing_.expert.data() + std::size_t{row} * o.chosen;
    float* weight = routing_.weight.data() + std::size_t{row} * o.chosen;
    const logit_peak peak = kernels_.find_peak(scores, o.experts);
    if (!peak.finite) {
      for (std::uint32_t i = 0; i < o.chosen; ++i) chosen[i] = i;
      std::fill_n(weight, o.chosen, std::nanf(""));
      continue;
    }
    choose_largest(scores, o.experts, o.chosen, chosen);
    const double all = kernels_.exp_sum(scores, o.experts, peak.value, 1.0F, scores);
    float sum = 0;
    for (std::uint32_t i = 0; i < o.chosen; ++i) sum += scores[chosen[i]];
    const float divisor = o.normalise ? sum : static_cast<float>(all);
    for (std::uint32_t i = 0; i < o.chosen; ++i) weight[i] = scores[chosen[i]] / divisor;
  }
}

void cpu_step::run_grouping(const planned& phase, std::uint32_t, std::uint32_t) {
  const auto& o = op_of<moe_op>(phase);
  const std::size_t entries = std::size_t{row_count(o.in)} * o.chosen;
  auto& first = routing_.first;
  std::fill_n(first.begin(), o.experts + std::size_t{1}, 0U);
  for (std::size_t i = 0; i < entries; ++i) ++first[routing_.expert[i] + 1];
  routing_.active_count = 0;
  for (std::uint32_t e = 0; e < o.experts; ++e) {
    if (first[e + 1] != 0) routing_.active[routing_.active_count++] = e;
    first[e + 1] += first[e];
  }
  // Counting sort: first[e] runs from the first to past the last row of e, then all are moved back by one.
  for (std::size_t i = 0; i < entries; ++i) routing_.place[i] = first[routing_.expert[i]]++;
  for (std::uint32_t e = o.experts; e > 0; --e) first[e] = first[e - 1];
  first[0] = 0;
}

void cpu_step::run_gather(const planned& phase, std::uint32_t tile, std::uint32_t) {
  const auto& o = op_of<moe_op>(phase);
  const std::uint32_t hidden = width_of(o.in);
  const row_range range(tile, small_rows, row_count(o.in));
  for (std::uint32_t row = range.first; row < range.last; ++row)
    for (std::uint32_t i = 0; i < o.chosen; ++i) {
      const std::uint32_t place = routing_.place[std::size_t{row} * o.chosen + i];
      std::memcpy(
          rows_of(o.gathered) + std::size_t{place} * hidden, rows_of(o.in) + std::size_t{row} * hidden,
          hidden * sizeof(float));
    }
}

void cpu_step::run_expert_gate_up(const planned& phase, std::uint32_t tile, std::uint32_t worker) {
  const auto& o = op_of<moe_op>(phase);
  const std::uint32_t per_expert = div_up(o.intermediate, phase.tile_channels);
  if (tile / per_expert >= routing_.active_count) return;
  const std::uint32_t e = routing_.active[tile / per_expert];
  const std::uint32_t begin = tile % per_expert * phase.tile_channels;
  const std::uint32_t channels = std::min(o.intermediate - begin, phase.tile_channels);
  const std::uint32_t hidden = width_of(o.in), last = routing_.first[e + 1];
  const expert_channels gate_of(o.gate, o.experts, e, o.intermediate);
  const expert_channels up_of(o.up, o.experts, e, o.intermediate);
  auto* gates = reinterpret_cast<float*>(workers_[worker].products.data());
  float* up = gates + std::size_t{std::min(row_block, row_count(o.in))} * channels;
  for (std::uint32_t first = routing_.first[e]; first < last; first += row_block) {
    const std::uint32_t count = std::min(row_block, last - first);
    const float* in = rows_of(o.gathered) + std::size_t{first} * hidden;
    const auto product = [&](const expert_channels& of, float* out) {
      multiply(
          of.weight, in, hidden, count, of.begin + begin, of.begin + begin + channels, out, channels, worker);
    };
    product(gate_of, gates);
    product(up_of, up);
    for (std::uint32_t row = 0; row < count; ++row) {
      const std::size_t at = std::size_t{row} * channels;
      apply_gate(
          o.activation, gates + at, up + at, channels,
          rows_of(o.gated) + std::size_t{first + row} * o.intermediate + begin);
    }
  }
}

void cpu_step::run_expert_down(const planned& phase, std::uint32_t tile, std::uint32_t worker) {
  const auto& o = op_of<moe_op>(phase);
  const std::uint32_t hidden = width_of(o.in), per_expert = div_up(hidden, phase.tile_channels);
  if (tile / per_expert >= routing_.active_count) return;
  const std::uint32_t e = routing_.active[tile / per_expert];
  const std::uint32_t begin = tile % per_expert * phase.tile_channels;
  const std::uint32_t channels = std::min(hidden - begin, phase.tile_channels);
  const expert_channels of(o.down, o.experts, e, hidden);
  // What was gathered has been read: the products take its place.
  for (std::uint32_t first = routing_.first[e], last = routing_.first[e + 1]; first < last;
       first += row_block)
    multiply(
        of.weight, rows_of(o.gated) + std::size_t{first} * o.intermediate, o.intermediate,
        std::min(row_block, last - first), of.begin + begin, of.begin + begin + channels,
        rows_of(o.gathered) + std::size_t{first} * hidden + begin, hidden, worker);
}

void cpu_step::run_expert_sum(const planned& phase, std::uint32_t tile, std::uint32_t) {
  const auto& o = op_of<moe_op>(phase);
  const std::uint32_t hidden = width_of(o.in);
  const row_range range(tile, small_rows, row_count(o.in));
  for (std::uint32_t row = range.first; row < range.last; ++row)
    for (std::uint32_t i = 0; i < o.chosen; ++i) {
      const std::size_t entry = std::size_t{row} * o.chosen + i;
      kernels_.add_scaled(
          rows_of(o.gathered) + std::size_t{routing_.place[entry]} * hidden, routing_.weight[entry], hidden,
          rows_of(o.residual) + std::size_t{row} * hidden);
    }
}

} // namespace troupe::kernels
