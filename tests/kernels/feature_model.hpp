// SPDX-License-Identifier: Apache-2.0
// Small decoders that use every feature of step_program.hpp, and their forward pass in double precision.
#pragma once

#include "kernels/step_program.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe::kernels::test {

enum class qk_norm : std::uint8_t { none, each_head, all_heads };

/// What the layers of a model have; the defaults are a plain Llama.
struct feature_options {
  std::uint32_t layers = 2, hidden = 48, intermediate = 56, vocab = 70;
  std::uint32_t heads = 4, kv_heads = 2, head_dim = 12;
  rope_pairs pairs = rope_pairs::adjacent;
  std::uint32_t rope_dims = 12;
  std::uint32_t original_context = 0; ///< > 0: LongRoPE beyond it
  std::uint32_t rotated_layers = ~0U; ///< bit i: layer i rotates
  std::uint32_t window = 0;           ///< of even layers
  float score_cap = 0, logit_cap = 0;
  float embed_scale = 1, residual_scale = 1, logit_scale = 1;
  bool qkv_bias = false, other_bias = false;
  bool merged_qkv = true;
  qk_norm norm = qk_norm::none;
  bool pre_norms = true, post_norms = false;
  gate_activation activation = gate_activation::silu;
  std::uint32_t experts = 0, chosen = 0; ///< > 0: a mixture in odd layers
  bool normalise = true;
  bool stacked = false;            ///< all experts in one matrix; `intermediate` and `hidden` of panels
  std::uint32_t equal_experts = 0; ///< the last so many have the router row of the first of them
  kv_type kv = kv_type::f32;
};

/// [n][k] numbers; packed as dense.f32 in the program.
struct plain_matrix {
  std::uint32_t n = 0, k = 0;
  std::vector<float> at;
};

struct feature_layer {
  std::vector<float> norm[4]; ///< before attention, after it, before the MLP, after it; [hidden]
  plain_matrix qkv, output;
  std::vector<float> qkv_bias, output_bias, q_norm, k_norm;
  plain_matrix router;
  std::vector<plain_matrix> gate, up, down; ///< one, or one for each expert
  std::vector<float> gate_bias, up_bias, down_bias;
};

struct feature_model {
  feature_options options;
  std::shared_ptr<rope> rotary;
  plain_matrix embedding, head;
  std::vector<feature_layer> layers;
  std::vector<float> norm;

  /// Random numbers from a fixed seed.
  explicit feature_model(const feature_options& o);
  /// What the backend runs.
  std::shared_ptr<const step_program> program() const;
  /// The logits of every position in double precision.
  std::vector<std::vector<double>> forward(std::span<const std::int32_t> tokens, std::uint32_t reach) const;
};

} // namespace troupe::kernels::test
