// SPDX-License-Identifier: Apache-2.0
// The shape of a decoder-only transformer, as its file states it.
#pragma once

#include "models/gguf_file.hpp"
#include "models/rope_config.hpp"
#include "runtime/base/error.hpp"

#include <boost/json/object.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe::models {

struct architecture;

enum class rope_choice : std::uint8_t { global, local, none };

/// In what a layer differs from the others.
struct layer_kind {
  std::uint32_t window = 0; ///< the query at p sees positions (p - window, p]; 0: all
  rope_choice rope = rope_choice::global;
  bool experts = false; ///< its feed-forward is routed to experts
};

/// RMS norms of queries and keys before they are rotated.
enum class qk_norm : std::uint8_t { none, per_head, whole_width };

struct expert_config {
  std::uint32_t count = 0; ///< 0: the model has none
  std::uint32_t used = 0;  ///< per token, <= count
  std::uint32_t width = 0; ///< of an expert's gate
  bool normalise = true;   ///< the chosen experts' weights are divided by their sum
};

/// Every number is in its range (see the source) and they fit each other.
struct model_config {
  std::string architecture;                   ///< "llama"
  std::string name;                           ///< general.name, or the file's
  const models::architecture* kind = nullptr; ///< the row that described it; null when built by hand
  std::uint32_t layers = 0;
  std::uint32_t hidden = 0;       ///< width of the residual stream
  std::uint32_t intermediate = 0; ///< width of the feed-forward gate
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0; ///< divides heads
  std::uint32_t head_dim = 0;
  std::uint32_t vocab = 0;   ///< rows of the embedding table
  std::uint32_t context = 0; ///< positions the model was made for
  float rms_epsilon = 0;
  rope_config rope;
  bool rope_tensors = false;             ///< LongRoPE of a GGUF file: its factors are tensors
  std::optional<rope_config> local_rope; ///< of layers whose choice is `local`
  std::vector<layer_kind> layer_kinds;   ///< [layers], or empty: all plain
  bool tied_head = false;                ///< the head multiplies by the embedding table
  bool text_half = false;                ///< of a model that reads images, too; the rest is not used

  /// Biases; nothing: where the file has them, which is all of a layer's or none.
  std::optional<bool> qkv_bias = false, output_bias = false, mlp_bias = false;
  qk_norm norm_of_qk = qk_norm::none;
  bool input_norms = true;    ///< before attention and feed-forward
  bool output_norms = false;  ///< of what attention and feed-forward add to the residual stream
  bool norms_add_one = false; ///< the file holds norm weights less 1
  bool fused_gate_up = false; ///< the file has gate and up as one matrix, gate first
  kernels::gate_activation activation = kernels::gate_activation::silu;
  expert_config experts;
  float embedding_scale = 1.0F;
  float attention_scale = 0.0F;   ///< of scores; 0: 1 / sqrt(head_dim)
  float attention_softcap = 0.0F; ///< c * tanh(score / c); 0: none
  float residual_scale = 1.0F;    ///< of what attention and feed-forward add
  float logit_scale = 1.0F;
  float logit_softcap = 0.0F; ///< 0: none

  layer_kind layer(std::uint32_t index) const {
    return index < layer_kinds.size() ? layer_kinds[index] : layer_kind{};
  }
};

/// Architectures that can be run, for messages: "gemma2, gemma3, ...".
std::string supported_architectures();

/// Reads and checks every key that shapes the computation; refuses keys that ask for what is not built, and
/// keys that are not known.
/// Errors: bad_file for a missing, ill-typed or out-of-range key; unsupported for another architecture or
/// variant.
result<model_config> read_model_config(const gguf_file& file);

/// The same from a parsed config.json. `name`: its path, for messages.
result<model_config> read_model_config(const boost::json::object& config, const std::string& name);

} // namespace troupe::models
