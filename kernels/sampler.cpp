// SPDX-License-Identifier: Apache-2.0
// Penalties, filters and the draw.
#include "kernels/sampler.hpp"

#include "runtime/rng.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace troupe::kernels {

namespace {

constexpr std::uint32_t block = 64; // logits that share one entry of sampler_scratch::peaks
constexpr float largest = 1e30F;    // of a logit after penalties, so that differences stay finite

void add_bias(const std::vector<token_bias>& bias, std::vector<float>& logits) {
  for (const token_bias& b : bias)
    if (const auto id = static_cast<std::uint32_t>(b.token); id < logits.size()) logits[id] += b.bias;
}

/// Applies the penalties of `params` to scratch.adjusted, a copy of the logits.
void penalise(
    const sampling_params& params, std::span<const std::int32_t> history, std::uint32_t prompt_tokens,
    sampler_scratch& scratch) {
  const std::uint32_t vocab = scratch.vocab();
  // First all tokens for the repetition penalty, each once; then the output's, with how often they came.
  for (const std::int32_t token : history) {
    const auto id = static_cast<std::uint32_t>(token);
    if (id >= vocab || scratch.counts[id]++ != 0) continue;
    float& logit = scratch.adjusted[id];
    logit =
        logit > 0 ? std::min(logit / params.repetition_penalty, largest) : logit * params.repetition_penalty;
  }
  for (const std::int32_t token : history)
    if (static_cast<std::uint32_t>(token) < vocab) scratch.counts[static_cast<std::uint32_t>(token)] = 0;

  const auto output = history.subspan(std::min<std::size_t>(prompt_tokens, history.size()));
  for (const std::int32_t token : output)
    if (static_cast<std::uint32_t>(token) < vocab) ++scratch.counts[static_cast<std::uint32_t>(token)];
  for (const std::int32_t token : output) {
    const auto id = static_cast<std::uint32_t>(token);
    if (id >= vocab || scratch.counts[id] == 0) continue;
    scratch.adjusted[id] -=
        params.presence_penalty + static_cast<float>(scratch.counts[id]) * params.frequency_penalty;
    scratch.counts[id] = 0;
  }
}

/// Smallest count of the first of `weights` (descending) that hold `share` of `total`.
std::uint32_t prefix_with(std::span<const float> weights, double share, double total, bool& reached) {
  double sum = 0;
  for (std::uint32_t i = 0; i < weights.size(); ++i) {
    sum += static_cast<double>(weights[i]);
    if (sum >= share * total) {
      reached = true;
      return i + 1;
    }
  }
  reached = false;
  return static_cast<std::uint32_t>(weights.size());
}

/// A row of logits with its temperature.
struct tempered {
  const kernel_table& kernels;
  std::span<const float> logits;
  float peak;
  float scale;

  /// The exponent of a token's weight.
  float exponent(std::uint32_t id) const { return (logits[id] - peak) * scale; }
  bool likelier(std::uint32_t a, std::uint32_t b) const {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  }
  /// exp((logit - peak) * scale) of the tokens in `ids`, and their sum.
  double weigh(std::span<const std::uint32_t> ids, float* weights) const {
    for (std::size_t i = 0; i < ids.size(); ++i) weights[i] = logits[ids[i]];
    return kernels.exp_sum(weights, static_cast<std::uint32_t>(ids.size()), peak, scale, weights);
  }
};

/// How many of the most likely tokens top-k and top-p keep; their ids stand in scratch.order, most likely
/// first, their weights in scratch.weights.
std::uint32_t keep_most_likely(const tempered& row, const sampling_params& params, sampler_scratch& scratch) {
  const auto vocab = static_cast<std::uint32_t>(row.logits.size());
  const bool by_count = params.top_k > 0 && params.top_k < vocab;
  const bool by_share = params.top_p < 1.0F;
  double total = by_count ? 0 : row.kernels.exp_sum(row.logits.data(), vocab, row.peak, row.scale, nullptr);
  // Without a count the run that holds the share is mostly short: look for it among a few first.
  for (std::uint32_t count = by_count ? params.top_k : std::min(vocab, 256U);;
       count = std::min(vocab, count * 8)) {
    largest_logits(row.kernels, row.logits, count, scratch.peaks, scratch.order.data());
    const double sum = row.weigh({scratch.order.data(), count}, scratch.weights.data());
    if (by_count) total = sum;
    if (!by_share) return count;
    bool reached = false;
    const std::uint32_t kept =
        prefix_with({scratch.weights.data(), count}, static_cast<double>(params.top_p), total, reached);
    if (reached || by_count || count == vocab) return kept;
  }
}

/// Cuts the `count` candidates in scratch.order down to the typical ones, the most typical first.
/// With w = exp(x) of the candidates, -ln p is ln(sum w) - x and the entropy ln(sum w) - mean x, so that the
/// distance between the two is that of x from its mean.
std::uint32_t keep_typical(const tempered& row, float share, std::uint32_t count, sampler_scratch& scratch) {
  std::uint32_t* const ids = scratch.order.data();
  const double total = row.weigh({ids, count}, scratch.weights.data());
  double mean = 0;
  for (std::uint32_t i = 0; i < count; ++i)
    if (scratch.weights[i] > 0)
      mean += static_cast<double>(scratch.weights[i]) * static_cast<double>(row.exponent(ids[i]));
  mean /= total;
  const auto nearer = [&](std::uint32_t a, std::uint32_t b) {
    const double from_a = std::abs(static_cast<double>(row.exponent(a)) - mean);
    const double from_b = std::abs(static_cast<double>(row.exponent(b)) - mean);
    return from_a < from_b || (from_a == from_b && a < b);
  };
  // The run is mostly short: sort a few first.
  for (std::uint32_t sorted = std::min(count, 256U);; sorted = std::min(count, sorted * 8)) {
    if (sorted < count) std::nth_element(ids, ids + sorted, ids + count, nearer);
    std::sort(ids, ids + sorted, nearer);
    row.weigh({ids, sorted}, scratch.weights.data());
    bool reached = false;
    const std::uint32_t kept =
        prefix_with({scratch.weights.data(), sorted}, static_cast<double>(share), total, reached);
    if (reached || sorted == count) return kept;
  }
}

/// Top-k, typical-p, then top-p: how many tokens they keep; their ids stand in scratch.order.
std::uint32_t
keep_typical_then_likely(const tempered& row, const sampling_params& params, sampler_scratch& scratch) {
  auto count = static_cast<std::uint32_t>(row.logits.size());
  if (params.top_k > 0 && params.top_k < count) {
    count = params.top_k;
    largest_logits(row.kernels, row.logits, count, scratch.peaks, scratch.order.data());
  } else {
    std::iota(scratch.order.begin(), scratch.order.end(), 0U);
  }
  count = keep_typical(row, params.typical_p, count, scratch);
  if (params.top_p >= 1.0F) return count;
  std::sort(scratch.order.begin(), scratch.order.begin() + count, [&](std::uint32_t a, std::uint32_t b) {
    return row.likelier(a, b);
  });
  const double total = row.weigh({scratch.order.data(), count}, scratch.weights.data());
  bool reached = false;
  return prefix_with({scratch.weights.data(), count}, static_cast<double>(params.top_p), total, reached);
}

/// Sets weights below `least` to zero; returns the sum of the others.
double drop_unlikely(std::span<float> weights, float least) {
  double total = 0;
  for (float& weight : weights) {
    if (weight < least) weight = 0;
    total += static_cast<double>(weight);
  }
  return total;
}

/// Walks `weights` in order of id until their sum passes u * total; null `ids` means all ids.
std::int32_t walk(std::span<const float> weights, const std::uint32_t* ids, double total, double u) {
  double sum = 0;
  std::uint32_t last = 0;
  for (std::uint32_t i = 0; i < weights.size(); ++i) {
    if (weights[i] <= 0) continue;
    sum += static_cast<double>(weights[i]);
    last = i;
    if (sum > u * total) break;
  }
  return static_cast<std::int32_t>(ids == nullptr ? last : ids[last]);
}

} // namespace

sampler_scratch::sampler_scratch(std::uint32_t vocab) :
    adjusted(vocab), weights(vocab), order(vocab), counts(vocab),
    peaks(2 * (std::size_t{vocab} / block + 1)) {}

std::uint64_t sampler_scratch::bytes(std::uint32_t vocab) noexcept {
  return std::uint64_t{vocab} * 16 + (std::uint64_t{vocab} / block + 1) * 8;
}

void largest_logits(
    const kernel_table& kernels, std::span<const float> logits, std::uint32_t count,
    std::vector<float>& peaks, std::uint32_t* order) {
  const auto vocab = static_cast<std::uint32_t>(logits.size());
  const std::uint32_t blocks = (vocab + block - 1) / block;
  std::uint32_t candidates = 0;
  if (count == 0) return;
  if (count < blocks && peaks.size() >= 2 * std::size_t{blocks}) {
    // At least `count` logits are as large as the count-th largest of the blocks' peaks.
    for (std::uint32_t b = 0; b < blocks; ++b)
      peaks[b] = kernels.find_peak(logits.data() + b * block, std::min(block, vocab - b * block)).value;
    float* sorted = peaks.data() + blocks;
    std::copy_n(peaks.data(), blocks, sorted);
    std::nth_element(sorted, sorted + (count - 1), sorted + blocks, std::greater<>{});
    const float bound = sorted[count - 1];
    for (std::uint32_t b = 0; b < blocks; ++b) {
      if (peaks[b] < bound) continue;
      for (std::uint32_t i = b * block; i < std::min(vocab, (b + 1) * block); ++i)
        if (logits[i] >= bound) order[candidates++] = i;
    }
  } else {
    for (; candidates < vocab; ++candidates) order[candidates] = candidates;
  }
  const auto before = [&](std::uint32_t a, std::uint32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  };
  count = std::min(count, candidates);
  if (count < candidates) std::nth_element(order, order + count, order + candidates, before);
  std::sort(order, order + count, before);
}

std::int32_t sample_token(
    const kernel_table& kernels, std::span<const float> logits, const sampling_params& params,
    std::span<const std::int32_t> history, std::uint32_t prompt_tokens, std::uint32_t position,
    sampler_scratch& scratch, const token_mask* mask) {
  const auto vocab = static_cast<std::uint32_t>(logits.size());
  if (params.biased() || params.penalised() || mask != nullptr) {
    std::copy(logits.begin(), logits.end(), scratch.adjusted.begin());
    if (params.biased()) add_bias(*params.bias, scratch.adjusted);
    if (params.penalised()) penalise(params, history, prompt_tokens, scratch);
    if (mask != nullptr) mask->for_each(vocab, [&](std::uint32_t id) { scratch.adjusted[id] = -largest; });
    logits = scratch.adjusted;
  }
  const logit_peak peak = kernels.find_peak(logits.data(), vocab);
  if (params.greedy()) return static_cast<std::int32_t>(peak.index);

  // A temperature too small for its inverse is greedy in all but name; the bound keeps 0 * scale a number.
  const tempered row{kernels, logits, peak.value, std::min(1.0F / params.temperature, 1e30F)};
  const double u = runtime::random_unit(params.seed, position);
  const bool typical = params.typical_p < 1.0F;
  const bool filtered = (params.top_k > 0 && params.top_k < vocab) || params.top_p < 1.0F || typical;
  std::uint32_t kept = vocab;
  if (filtered) {
    kept = typical ? keep_typical_then_likely(row, params, scratch) : keep_most_likely(row, params, scratch);
    std::sort(scratch.order.begin(), scratch.order.begin() + kept);
  }
  double total = filtered
                     ? row.weigh({scratch.order.data(), kept}, scratch.weights.data())
                     : kernels.exp_sum(logits.data(), vocab, row.peak, row.scale, scratch.weights.data());
  const std::span<float> weights(scratch.weights.data(), kept);
  if (params.min_p > 0.0F) {
    // The most likely token of all weighs 1, but only typical-p may have left it out.
    const float largest_weight = typical ? *std::max_element(weights.begin(), weights.end()) : 1.0F;
    total = drop_unlikely(weights, params.min_p * largest_weight);
  }
  return walk(weights, filtered ? scratch.order.data() : nullptr, total, u);
}

float log_sum_exp(const kernel_table& kernels, std::span<const float> logits) {
  const auto vocab = static_cast<std::uint32_t>(logits.size());
  const float peak = kernels.find_peak(logits.data(), vocab).value;
  return peak + static_cast<float>(std::log(kernels.exp_sum(logits.data(), vocab, peak, 1.0F, nullptr)));
}

} // namespace troupe::kernels
