// SPDX-License-Identifier: Apache-2.0
// Gemma 3, text (Gemma Team 2025, arXiv 2503.19786): Gemma 2 with norms of q and k in place of the soft cap
// of scores; five layers with a window and a rotary base of their own to one without.
#include "models/architectures/architecture.hpp"

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

/// Every which layer is global; 6 unless stated. A GGUF file without a window has global layers only, as
/// llama.cpp reads it.
void read_gemma3_layers(config_reader& keys, model_config& config) {
  const std::uint32_t window = read_gemma_window(keys, keys.is_gguf() ? 0 : 4096);
  const config_key pattern{"attention.sliding_window_pattern", "sliding_window_pattern"};
  keys.ignore({"", "_sliding_window_pattern"}); // as transformers 5 repeats it
  const std::uint32_t period = keys.number_or(pattern, 6, 1, 1U << 16);
  if (keys.is_gguf() && window == 0) return;
  const bool typed = read_layer_types(keys, config, window);
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    layer_kind& layer = config.layer_kinds[i];
    if (!typed && (i + 1) % period != 0) layer.window = window;
    if (typed ? layer.window != 0 : (i + 1) % period != 0) layer.rope = rope_choice::local;
  }
}

void configure_gemma3(config_reader& keys, model_config& config) {
  configure_gemma(keys, config, 62);
  config.norm_of_qk = qk_norm::per_head;
  config.attention_softcap = keys.real_or({"attn_logit_softcapping", "attn_logit_softcapping"}, 0, 0, 1e6F);
  config.logit_softcap = keys.real_or({"final_logit_softcapping", "final_logit_softcapping"}, 0, 0, 1e6F);
  read_gemma3_local_rope(keys, config);
  read_gemma3_layers(keys, config);
}

} // namespace

const architecture gemma3_architecture{
    .name = "gemma3",
    .gguf = "gemma3",
    .hf_class = "Gemma3ForCausalLM",
    .configure = configure_gemma3,
    .defaults =
        {.layers = 26,
         .hidden = 2304,
         .intermediate = 9216,
         .heads = 8,
         .vocab = 262208,
         .context = 131072,
         .rms_epsilon = 1e-6F,
         .kv_heads = 4,
         .head_dim = 256,
         .rope_base = 1e6F,
         .tied = true},
    .hf_wrapper = "Gemma3ForConditionalGeneration",
    .hf_names = gemma_names};

} // namespace troupe::models
