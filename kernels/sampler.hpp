// SPDX-License-Identifier: Apache-2.0
// From one row of logits to one token, as sampling.hpp says.
#pragma once

#include "kernels/kernel_table.hpp"
#include "kernels/sampling.hpp"
#include "kernels/token_mask.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe::kernels {

/// What the sampler needs to work in, for one vocabulary; one per thread. Allocates in the constructor only.
class sampler_scratch {
 public:
  sampler_scratch() = default;
  explicit sampler_scratch(std::uint32_t vocab);
  std::uint32_t vocab() const noexcept { return static_cast<std::uint32_t>(adjusted.size()); }
  static std::uint64_t bytes(std::uint32_t vocab) noexcept;

  std::vector<float> adjusted;       ///< [vocab] logits after bias, penalties and mask
  std::vector<float> weights;        ///< [vocab] exponentials
  std::vector<std::uint32_t> order;  ///< [vocab] candidates
  std::vector<std::uint32_t> counts; ///< [vocab] uses of a token, all zero between calls
  std::vector<float> peaks;          ///< one per block of the vocabulary, and a copy to sort
};

/// Writes the ids of the `count` largest of `logits` to `order`, the largest first, of equals the lower id
/// first. Thread: any; `scratch` and `order` (size >= logits.size()) are the caller's.
void largest_logits(
    const kernel_table& kernels, std::span<const float> logits, std::uint32_t count,
    std::vector<float>& peaks, std::uint32_t* order);

/// The token of a row whose logits are finite. `history` is prompt then output, `prompt_tokens` of it prompt;
/// ids outside the vocabulary are ignored. `position` is that of the token drawn. What `mask` forbids is not
/// drawn while there is anything else; null forbids nothing. Thread: any; allocates nothing.
std::int32_t sample_token(
    const kernel_table& kernels, std::span<const float> logits, const sampling_params& params,
    std::span<const std::int32_t> history, std::uint32_t prompt_tokens, std::uint32_t position,
    sampler_scratch& scratch, const token_mask* mask = nullptr);

/// Natural logarithm of the sum of the exponentials of finite logits.
float log_sum_exp(const kernel_table& kernels, std::span<const float> logits);

} // namespace troupe::kernels
