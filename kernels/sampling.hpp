// SPDX-License-Identifier: Apache-2.0
// What a sequence asks of the sampler, the last op of a step.
#pragma once

#include <cstdint>

namespace troupe::kernels {

/// One sequence's sampling. Applied in this order: penalties (over `history`), temperature, top-k, top-p, min-p, draw.
/// The draw uses the counter-based generator keyed by (seed, position of the token drawn), so the result depends on
/// neither the batch nor on preemption.
struct sampling_params {
  float temperature = 1.0F;         ///< [0, 2]; 0 = greedy: the first of the largest logits
  std::uint32_t top_k = 0;          ///< 0 = off
  float top_p = 1.0F;               ///< (0, 1]
  float min_p = 0.0F;               ///< [0, 1], relative to the most likely token
  float repetition_penalty = 1.0F;  ///< (0, 2]; 1 = off; prompt and output tokens (Keskar et al. 2019, section 4.1)
  float presence_penalty = 0.0F;    ///< [-2, 2]; output tokens
  float frequency_penalty = 0.0F;   ///< [-2, 2]; output tokens
  std::uint64_t seed = 0;

  bool greedy() const noexcept { return temperature <= 0.0F; }
  bool penalised() const noexcept {
    return repetition_penalty != 1.0F || presence_penalty != 0.0F || frequency_penalty != 0.0F;
  }
};

} // namespace troupe::kernels
