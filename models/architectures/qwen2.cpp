// SPDX-License-Identifier: Apache-2.0
// Qwen 2 and 2.5 (Yang et al. 2024, arXiv 2407.10671, 2412.15115): biases of q, k and v, which no key tells.
#include "models/architectures/architecture.hpp"

namespace troupe::models {

namespace {

void configure_qwen2(config_reader& keys, model_config& config) {
  require_activation(keys, "hidden_act", "silu");
  config.qkv_bias = true;
  if (keys.is_gguf()) return;
  read_qwen_windows(keys, config);
}

} // namespace

const architecture qwen2_architecture{
    .name = "qwen2",
    .gguf = "qwen2",
    .hf_class = "Qwen2ForCausalLM",
    .configure = configure_qwen2,
    .defaults = {.kv_heads = 32}};

} // namespace troupe::models
