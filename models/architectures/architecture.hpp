// SPDX-License-Identifier: Apache-2.0
// One row per architecture: its names in files, and how it differs from a plain Llama. docs/architectures.md
// explains how to add one.
#pragma once

#include "models/config_reader.hpp"
#include "models/model_config.hpp"

#include <cstdint>
#include <span>
#include <string_view>

namespace troupe::models {

/// A tensor's name in a layer, as GGUF and as a Hugging Face folder spell it. '#' is an expert's number.
struct tensor_name {
  std::string_view gguf; ///< "ffn_norm"
  std::string_view hf;   ///< "pre_feedforward_layernorm"
};

/// What config.json means where it leaves a key out: the defaults of the model's class in transformers. 0:
/// the key is needed, unless the member says otherwise. Only a model inside another one (`hf_wrapper`) is
/// written without keys that all published checkpoints of its own state.
struct hf_defaults {
  std::uint32_t layers = 0, hidden = 0, intermediate = 0, heads = 0, vocab = 0, context = 0;
  float rms_epsilon = 0;
  std::uint32_t kv_heads = 0;         ///< 0: as many as heads, which is also what null means
  std::uint32_t head_dim = 0;         ///< 0: hidden / heads
  std::uint32_t original_context = 0; ///< of rope scaling; 0: the context
  float rope_base = 10000.0F;
  bool tied = false;
};

struct architecture {
  std::string_view name;     ///< ours; the one of GGUF where that has one
  std::string_view gguf;     ///< general.architecture; empty: GGUF files have it under another row's name
  std::string_view hf_class; ///< in `architectures` of config.json
  /// Reads what goes beyond the common keys and sets what differs from a plain Llama. The shape (layers,
  /// heads, widths, context, vocabulary) and `rope` have been read; `layer_kinds` has one plain entry per
  /// layer.
  void (*configure)(config_reader& keys, model_config& config);
  bool gguf_pairs_adjacent = false; ///< rotary pairs are (2i, 2i + 1) in GGUF files
  hf_defaults defaults = {};
  std::string_view hf_wrapper = {}; ///< class of models that read images too and hold this one for text
  std::span<const tensor_name> hf_names = {}; ///< where they differ from Llama's
};

extern const architecture llama_architecture, mistral_architecture, mixtral_architecture, qwen2_architecture,
    qwen3_architecture, qwen3_moe_architecture, gemma2_architecture, gemma3_architecture, phi3_architecture,
    smollm3_architecture, granite_architecture, olmo2_architecture;

/// All of them.
std::span<const architecture* const> architectures() noexcept;

/// By the name in GGUF, or by the class in config.json; null: none.
const architecture* find_gguf_architecture(std::string_view name) noexcept;
const architecture* find_hf_architecture(std::string_view class_name) noexcept;
/// By the class of the model around it (`hf_wrapper`).
const architecture* find_hf_text_half(std::string_view class_name) noexcept;

/// "self_attn.q_proj" for "attn_q".
std::string_view hf_name(const architecture& kind, std::string_view gguf) noexcept;

/// Windows by `layer_types` of config.json where it is there: "sliding_attention" gets `window`,
/// "full_attention" none; false when it is absent. Another type is refused.
bool read_layer_types(config_reader& keys, model_config& config, std::uint32_t window);

/// `sliding_window` of config.json, which counts only with `use_sliding_window`; 0 when it does not, and for
/// null. `fallback`: when it is left out.
std::uint32_t read_optional_window(config_reader& keys, std::uint32_t fallback);

/// The window of Qwen: as above, in the layers that `layer_types` names, else from `max_window_layers` on.
void read_qwen_windows(config_reader& keys, model_config& config);

/// What Gemma 2 and 3 share: norms around attention and feed-forward, GELU, the scale of the embedding and
/// that of scores. `widest`: layers of the model (27B) whose scores GGUF scales by another rule.
void configure_gemma(config_reader& keys, model_config& config, std::uint32_t widest);
/// `sliding_window`; 0 for null. `fallback`: when it is left out.
std::uint32_t read_gemma_window(config_reader& keys, std::uint32_t fallback);
inline constexpr tensor_name gemma_names[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};

/// `attention_bias` (q, k, v and o) and `mlp_bias` of config.json; in GGUF the tensors tell.
void read_biases(config_reader& keys, model_config& config);

/// Refuses a `hidden_act` (or `hidden_activation`, under `hf`) other than `wanted`.
void require_activation(config_reader& keys, const char* hf, const char* wanted);

inline constexpr std::uint32_t max_window = 1U << 24;

} // namespace troupe::models
