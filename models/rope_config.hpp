// SPDX-License-Identifier: Apache-2.0
// Rotary position embeddings as model files state them.
#pragma once

#include "kernels/step_program.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::models {

class config_reader;

/// One set of angles. A pair's inverse frequency is 1 / (scale * base^(2i / dims) * factors[i]).
struct rope_config {
  std::uint32_t dims = 0; ///< rotated elements of a head, even, <= head_dim
  kernels::rope_pairs pairs = kernels::rope_pairs::adjacent;
  float base = 10000.0F;
  float scale = 1.0F;            ///< linear scaling: positions are divided by it
  std::vector<float> factors;    ///< [dims / 2] divisors, or empty: all 1
  float attention_factor = 1.0F; ///< multiplies sine and cosine
  /// LongRoPE: divisors of sequences that reach beyond `original_context` positions; or empty.
  std::vector<float> long_factors;
  std::uint32_t original_context = 0;
  std::uint32_t reach = 0; ///< positions that the scaling was made for, where it says so; else 0

  bool operator==(const rope_config&) const = default;
};

/// [dims / 2], radians per position; see rope_config. `factors` are [dims / 2] or empty.
std::vector<float> rope_inverse_frequencies(const rope_config& rope, const std::vector<float>& factors);

/// What scaling rules look at.
struct rope_facts {
  std::uint32_t head_dim = 0;
  std::uint32_t context = 0; ///< positions, as the file says
  float default_base = 10000.0F;
  std::uint32_t original_context = 0; ///< when scaling does not say; 0: `context`
};

/// Reads ARCH.rope.* of a GGUF file: none, linear and yarn scaling; llama3 and LongRoPE are in tensors there,
/// and `tensors_needed` is set when a key says LongRoPE, which is no scaling without them.
rope_config read_gguf_rope(config_reader& keys, const rope_facts& facts, bool& tensors_needed);

/// Reads rope_theta and rope_scaling of config.json, or rope_parameters as transformers 5 writes it, there of
/// `layer_type` when it is keyed by layer type. Both may be there when they say the same. Scaling: linear,
/// llama3, yarn, longrope; others are refused by name. Source of the rules: Chen et al. 2023 (arXiv
/// 2306.15595); Peng et al. 2023 (arXiv 2309.00071); Ding et al. 2024 (arXiv 2402.13753); transformers,
/// modeling_rope_utils.py.
rope_config read_hf_rope(config_reader& keys, const rope_facts& facts, const std::string& layer_type = {});

} // namespace troupe::models
