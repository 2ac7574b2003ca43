// SPDX-License-Identifier: Apache-2.0
// Gemma 3, text (Gemma Team 2025, arXiv 2503.19786): Gemma 2 with norms of q and k in place of the soft cap
// of scores; five layers with a window and a rotary base of their own to one without.
#include "models/architectures/architecture.hpp"

#include <cmath>

namespace troupe::models {

namespace {

/// `rope`, which has been read, holds for global layers only, scaling included.
void read_gemma3_local_rope(config_reader& keys, model_config& config) {
  const config_key keyed{"", "rope_parameters.sliding_attention"};
  if (keys.is_object(keyed)) {
    config.local_rope = read_hf_rope(keys, {config.head_dim, config.context}, "sliding_attention");
    return;
  }
  rope_config local;
  local.dims = config.rope.dims;
  local.pairs = config.rope.pairs;
  local.base = keys.real_or({"rope.freq_base_swa", "rope_local_base_freq"}, 10000.0F, 1.0F, 1e12F);
  config.local_rope = local;
}

/// Every which layer is global; 6 unless stated.
void read_gemma3_layers(config_reader& keys, model_config& config) {
  const config_key window_key{"attention.sliding_window", "sliding_window"};
  const bool none = keys.states(window_key) && !keys.has(window_key);
  const std::uint32_t window =
      none ? 0 : keys.number_or(window_key, keys.is_gguf() ? 1024 : 4096, 1, max_window);
  const config_key pattern{"attention.sliding_window_pattern", "sliding_window_pattern"};
  keys.ignore({"", "_sliding_window_pattern"}); // as transformers 5 repeats it
  const std::uint32_t period = keys.number_or(pattern, 6, 1, 1U << 16);
  const bool typed = read_layer_types(keys, config, window);
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    layer_kind& layer = config.layer_kinds[i];
    if (!typed && (i + 1) % period != 0) layer.window = window;
    if (typed ? layer.window != 0 : (i + 1) % period != 0) layer.rope = rope_choice::local;
  }
}

void configure_gemma3(config_reader& keys, model_config& config) {
  config.output_norms = true;
  config.norms_add_one = !keys.is_gguf(); // GGUF has the 1 in the numbers
  config.norm_of_qk = qk_norm::per_head;
  config.activation = kernels::gate_activation::gelu_tanh;
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
  require_activation(keys, "hidden_activation", "gelu_pytorch_tanh");
  read_biases(keys, config);
  config.attention_softcap = keys.real_or({"attn_logit_softcapping", "attn_logit_softcapping"}, 0, 0, 1e6F);
  config.logit_softcap = keys.real_or({"final_logit_softcapping", "final_logit_softcapping"}, 0, 0, 1e6F);

  // GGUF has no key: the head's width, but for the 27B model.
  const std::uint32_t width =
      keys.is_gguf() && config.layers == 62 ? config.hidden / config.heads : config.head_dim;
  const auto fallback = static_cast<float>(keys.is_gguf() ? width : 256U);
  config.attention_scale =
      1.0F / std::sqrt(keys.real_or({"", "query_pre_attn_scalar"}, fallback, 1e-3F, 1e6F));
  read_gemma3_local_rope(keys, config);
  read_gemma3_layers(keys, config);
}

constexpr tensor_name gemma3_names[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};

} // namespace

const architecture gemma3_architecture{
    .name = "gemma3",
    .gguf = "gemma3",
    .hf_class = "Gemma3ForCausalLM",
    .configure = configure_gemma3,
    .hf_tied = true,
    .hf_head_dim_needed = true,
    .hf_rope_base = 1e6F,
    .hf_names = gemma3_names};

} // namespace troupe::models
