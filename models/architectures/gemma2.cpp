// SPDX-License-Identifier: Apache-2.0
// Gemma 2 (Gemma Team 2024, arXiv 2408.00118): norms before and after attention and feed-forward, soft caps
// of scores and logits, every other layer with a window, GELU.
#include "models/architectures/architecture.hpp"

namespace troupe::models {

namespace {

void configure_gemma2(config_reader& keys, model_config& config) {
  configure_gemma(keys, config, 46);
  for (const char* older : {"hidden_act", "sliding_window_size"}) // transformers does not look at them
    keys.ignore({"", older});

  const float cap_fallback = keys.states({"", "attn_logit_softcapping"}) ? 0.0F : 50.0F; // null is none
  const float logit_fallback = keys.states({"", "final_logit_softcapping"}) ? 0.0F : 30.0F;
  config.attention_softcap =
      keys.real_or({"attn_logit_softcapping", "attn_logit_softcapping"}, cap_fallback, 0, 1e6F);
  config.logit_softcap =
      keys.real_or({"final_logit_softcapping", "final_logit_softcapping"}, logit_fallback, 0, 1e6F);

  const std::uint32_t window = read_gemma_window(keys, 4096);
  if (read_layer_types(keys, config, window)) return;
  for (std::uint32_t i = 0; i < config.layers; i += 2) config.layer_kinds[i].window = window;
}

} // namespace

const architecture gemma2_architecture{
    .name = "gemma2",
    .gguf = "gemma2",
    .hf_class = "Gemma2ForCausalLM",
    .configure = configure_gemma2,
    .defaults = {.kv_heads = 4, .head_dim = 256, .tied = true},
    .hf_names = gemma_names};

} // namespace troupe::models
