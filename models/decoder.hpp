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

/// One transformer layer. Shapes are [outputs, inputs]; what the configuration does not ask for is empty.
struct layer_weights {
  std::vector<float> attention_norm; ///< [hidden]
  std::vector<shared_weight> qkv; ///< [(heads + 2 kv_heads) * head_dim, hidden] as one matrix or as q, k, v
  std::vector<float> qkv_bias;    ///< [(heads + 2 kv_heads) * head_dim]
  std::vector<float> q_norm, k_norm;      ///< [head_dim], or [heads * head_dim] and [kv_heads * head_dim]
  shared_weight attention_output;         ///< [hidden, heads * head_dim]
  std::vector<float> output_bias;         ///< [hidden]
  std::vector<float> post_attention_norm; ///< [hidden]
  std::vector<float> ffn_norm;            ///< [hidden]
  shared_weight gate;                     ///< [intermediate, hidden]
  shared_weight up;                       ///< [intermediate, hidden]
  shared_weight down;                     ///< [hidden, intermediate]
  std::vector<float> gate_bias, up_bias;  ///< [intermediate]
  std::vector<float> down_bias;           ///< [hidden]
  std::vector<float> post_ffn_norm;       ///< [hidden]
  shared_weight router; ///< [experts, hidden]; of a layer with experts, in place of gate, up, down
  std::vector<shared_weight> expert_gate, expert_up; ///< one per expert: [width, hidden]
  std::vector<shared_weight> expert_down;            ///< one per expert: [hidden, width]
};

/// Calls `f` with the name, as GGUF has it, and each matrix of a layer that is there.
template<class Layer, class F>
void for_matrices(Layer& layer, F f) {
  static constexpr const char* split[] = {"attn_q", "attn_k", "attn_v"};
  for (std::size_t i = 0; i < layer.qkv.size(); ++i)
    f(layer.qkv.size() == 1 ? "attn_q, attn_k and attn_v" : split[i], layer.qkv[i]);
  f("attn_output", layer.attention_output);
  if (layer.gate != nullptr) f("ffn_gate", layer.gate);
  if (layer.up != nullptr) f("ffn_up", layer.up);
  if (layer.down != nullptr) f("ffn_down", layer.down);
  if (layer.router != nullptr) f("ffn_gate_inp", layer.router);
  for (auto& weight : layer.expert_gate) f("ffn_gate_exps", weight);
  for (auto& weight : layer.expert_up) f("ffn_up_exps", weight);
  for (auto& weight : layer.expert_down) f("ffn_down_exps", weight);
}

/// All of a model's numbers, as one plan multiplies them.
struct model_weights {
  shared_weight embedding; ///< [vocab, hidden]
  std::vector<layer_weights> layers;
  std::vector<float> output_norm; ///< [hidden]
  shared_weight head;             ///< [vocab, hidden]; the embedding itself when tied
  /// Divisors of rotary frequencies that a GGUF file has as tensors, [rope.dims / 2] or empty: in place of
  /// the configuration's.
  std::vector<float> rope_factors, long_rope_factors;
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
