// SPDX-License-Identifier: Apache-2.0
// The decoder as data: a model's shape, weights and plan become a step_program. No arithmetic happens here.
#pragma once

#include "kernels/step_program.hpp"
#include "models/model_config.hpp"
#include "runtime/base/error.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe::models {

using shared_weight = std::shared_ptr<const packed_weight>;

/// One transformer layer. Shapes are [outputs, inputs].
struct layer_weights {
  std::vector<float> attention_norm; ///< [hidden]
  std::vector<shared_weight> qkv; ///< [(heads + 2 kv_heads) * head_dim, hidden] as one matrix or as q, k, v
  shared_weight attention_output; ///< [hidden, heads * head_dim]
  std::vector<float> ffn_norm;    ///< [hidden]
  shared_weight gate;             ///< [intermediate, hidden]
  shared_weight up;               ///< [intermediate, hidden]
  shared_weight down;             ///< [hidden, intermediate]
};

/// All of a model's numbers, as one plan multiplies them.
struct model_weights {
  shared_weight embedding; ///< [vocab, hidden]
  std::vector<layer_weights> layers;
  std::vector<float> output_norm;  ///< [hidden]
  shared_weight head;              ///< [vocab, hidden]; the embedding itself when tied
  std::vector<float> rope_factors; ///< [rope_dims / 2], or empty
};

/// What multiplies each layer. Immutable once published; a change is a new plan with a new number.
struct execution_plan {
  std::uint64_t number = 0;
  kernels::kv_type kv = kernels::kv_type::f16;
  std::vector<std::string> layer_schemes; ///< [layers] ids; empty = as stored
};

/// The forward pass of `config` over `weights`, which must be packed as `plan` says.
/// Errors: internal when a matrix has not the shape the configuration asks for, or the plan another scheme.
result<std::shared_ptr<const kernels::step_program>>
build_decoder(const model_config& config, const model_weights& weights, const execution_plan& plan);

} // namespace troupe::models
