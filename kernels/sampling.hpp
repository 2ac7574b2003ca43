// SPDX-License-Identifier: Apache-2.0
// What a sequence asks of the sampler, the last op of a step.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe::kernels {

/// Added to one token's logit.
struct token_bias {
  std::int32_t token = 0;
  float bias = 0;
};

/// One sequence's sampling. Applied in this order (docs/sampling.md says the same to users):
///   1. bias: the logit of each token that is named gets its bias added;
///   2. penalties over `history`: a token of prompt or output has its logit divided by repetition_penalty
///      when positive, multiplied when not; a token of the output then loses presence_penalty + count *
///      frequency_penalty;
///   3. mask (step_sequence::mask): what it forbids counts as least likely, and is drawn only when nothing
///      else is there;
///   4. temperature divides the logits; p = softmax of all of them;
///   5. top-k keeps the k most likely tokens (of equals the lower ids);
///   6. typical-p keeps the shortest run of the kept tokens, ordered by how near -ln p is to the entropy of
///      the kept (of equals the lower ids), that holds typical_p of their sum (Meister et al. 2022,
///      section 3);
///   7. top-p keeps the shortest run of the most likely kept tokens that holds top_p of their sum;
///   8. min-p keeps what has at least min_p times the probability of the most likely kept token;
///   9. draw: u in [0, 1) from the counter-based generator (runtime/rng.hpp) keyed by (seed, position of the
///      token drawn); the answer is the first kept token, walking in order of id, whose running sum exceeds u
///      times the sum of all kept.
/// So the result depends on neither the batch nor on preemption, and a filter that keeps every token changes
/// nothing. At temperature 0 the answer is the first of the largest logits after 3.
struct sampling_params {
  float temperature = 1.0F; ///< [0, 2]; 0 = greedy
  std::uint32_t top_k = 0;  ///< 0 = off
  float typical_p = 1.0F;   ///< (0, 1]; 1 = off
  float top_p = 1.0F;       ///< (0, 1]
  float min_p = 0.0F;       ///< [0, 1], relative to the most likely token
  float repetition_penalty =
      1.0F; ///< (0, 2]; 1 = off; prompt and output tokens (Keskar et al. 2019, section 4.1)
  float presence_penalty = 0.0F;  ///< [-2, 2]; output tokens
  float frequency_penalty = 0.0F; ///< [-2, 2]; output tokens
  std::uint64_t seed = 0;
  /// Each id at most once; null: none. Shared, because every step carries a copy of these parameters.
  std::shared_ptr<const std::vector<token_bias>> bias;

  bool greedy() const noexcept { return temperature <= 0.0F; }
  bool penalised() const noexcept {
    return repetition_penalty != 1.0F || presence_penalty != 0.0F || frequency_penalty != 0.0F;
  }
  bool biased() const noexcept { return bias != nullptr && !bias->empty(); }
};

} // namespace troupe::kernels
