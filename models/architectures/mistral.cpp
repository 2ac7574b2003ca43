// SPDX-License-Identifier: Apache-2.0
// Mistral (Jiang et al. 2023, arXiv 2310.06825): Llama with a window in every layer. GGUF files call it
// `llama` and do not hold the window.
#include "models/architectures/architecture.hpp"

namespace troupe::models {

namespace {

void configure_mistral(config_reader& keys, model_config& config) {
  const config_key window{"", "sliding_window"};
  require_activation(keys, "hidden_act", "silu");
  // transformers: a missing key is a window of 4096, null is none.
  const bool none = keys.states(window) && !keys.has(window);
  const std::uint32_t width = none ? 0 : keys.number_or(window, 4096, 1, max_window);
  for (layer_kind& layer : config.layer_kinds) layer.window = width;
}

} // namespace

const architecture mistral_architecture{
    .name = "mistral",
    .gguf = "",
    .hf_class = "MistralForCausalLM",
    .configure = configure_mistral,
    .defaults = {.kv_heads = 8},
    .hf_wrapper = "Mistral3ForConditionalGeneration"};

} // namespace troupe::models
