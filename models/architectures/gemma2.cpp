// SPDX-License-Identifier: Apache-2.0
// Gemma 2 (Gemma Team 2024, arXiv 2408.00118): norms before and after attention and feed-forward, soft caps
// of scores and logits, every other layer with a window, GELU.
#include "models/architectures/architecture.hpp"

#include <cmath>

namespace troupe::models {

namespace {

void configure_gemma2(config_reader& keys, model_config& config) {
  config.output_norms = true;
  config.norms_add_one = !keys.is_gguf(); // GGUF has the 1 in the numbers
  config.activation = kernels::gate_activation::gelu_tanh;
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
  require_activation(keys, "hidden_activation", "gelu_pytorch_tanh");
  for (const char* older : {"hidden_act", "sliding_window_size"}) // transformers does not look at them
    keys.ignore({"", older});
  read_biases(keys, config);

  const float cap_fallback = keys.states({"", "attn_logit_softcapping"}) ? 0.0F : 50.0F; // null is none
  const float logit_fallback = keys.states({"", "final_logit_softcapping"}) ? 0.0F : 30.0F;
  config.attention_softcap =
      keys.real_or({"attn_logit_softcapping", "attn_logit_softcapping"}, cap_fallback, 0, 1e6F);
  config.logit_softcap =
      keys.real_or({"final_logit_softcapping", "final_logit_softcapping"}, logit_fallback, 0, 1e6F);

  // GGUF has no key: the head's width, but for the 27B model.
  const std::uint32_t width =
      keys.is_gguf() && config.layers == 46 ? config.hidden / config.heads : config.head_dim;
  const auto fallback = static_cast<float>(keys.is_gguf() ? width : 256U);
  config.attention_scale =
      1.0F / std::sqrt(keys.real_or({"", "query_pre_attn_scalar"}, fallback, 1e-3F, 1e6F));

  const config_key window_key{"attention.sliding_window", "sliding_window"};
  const bool none = keys.states(window_key) && !keys.has(window_key);
  const std::uint32_t window = none ? 0 : keys.number_or(window_key, 4096, 1, max_window);
  if (read_layer_types(keys, config, window)) return;
  for (std::uint32_t i = 0; i < config.layers; i += 2) config.layer_kinds[i].window = window;
}

constexpr tensor_name gemma2_names[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};

} // namespace

const architecture gemma2_architecture{
    .name = "gemma2",
    .gguf = "gemma2",
    .hf_class = "Gemma2ForCausalLM",
    .configure = configure_gemma2,
    .hf_tied = true,
    .hf_head_dim_needed = true,
    .hf_names = gemma2_names};

} // namespace troupe::models
