// SPDX-License-Identifier: Apache-2.0
// What a sequence asks of the sampler, the last op of a step.
#pragma once

#include <cstdint>

namespace troupe::kernels {

/// One sequence's sampling. Applied in this order:
///   1. penalties over `history`: a token of prompt or output has its logit divided by repetition_penalty
///   when positive,
///      multiplied when not; a token of the output then loses presence_penalty + count * frequency_penalty;
///      Ids that are held back (step_sequence::held_back) then count as least likely, and are drawn only when
///      nothing else is there;
///   2. temperature divides the logits; p = softmax of all of them;
///   3. top-k keeps the k most likely tokens (of equals the lower ids);
///   4. top-p keeps the shortest run of the most likely kept tokens that holds top_p of their sum;
///   5. min-p keeps what has at least min_p times the probability of the most likely token;
///   6. draw: u in [0, 1) from the counter-based generator (runtime/rng.hpp) keyed by (seed, position of the
///   token drawn);
///      the answer is the first kept token, walking in order of id, whose running sum exceeds u times the sum
///      of all kept.
/// So the result depends on neither the batch nor on preemption, and a filter that keeps every token changes
/// nothing.
struct sampling_params {
  float temperature = 1.0F; ///< [0, 2]; 0 = greedy: the first of the largest logits
  std::uint32_t top_k = 0;  ///< 0 = off
  float top_p = 1.0F;       ///< (0, 1]
  float min_p = 0.0F;       ///< [0, 1], relative to the most likely token
  float repetition_penalty =
      1.0F; ///< (0, 2]; 1 = off; prompt and output tokens (Keskar et al. 2019, section 4.1)
  float presence_penalty = 0.0F;  ///< [-2, 2]; output tokens
  float frequency_penalty = 0.0F; ///< [-2, 2]; output tokens
  std::uint64_t seed = 0;

  bool greedy() const noexcept { return temperature <= 0.0F; }
  bool penalised() const noexcept {
    return repetition_penalty != 1.0F || presence_penalty != 0.0F || frequency_penalty != 0.0F;
  }
};

} // namespace troupe::kernels
