// SPDX-License-Identifier: Apache-2.0
// Qwen 3 (Yang et al. 2025, arXiv 2505.09388): queries and keys are normed per head, no biases.
#include "models/architectures/architecture.hpp"

namespace troupe::models {

namespace {

void configure_qwen3(config_reader& keys, model_config& config) {
  require_activation(keys, "hidden_act", "silu");
  config.norm_of_qk = qk_norm::per_head;
  if (keys.is_gguf()) return;
  read_biases(keys, config);
  read_qwen_windows(keys, config);
}

} // namespace

const architecture qwen3_architecture{
    .name = "qwen3",
    .gguf = "qwen3",
    .hf_class = "Qwen3ForCausalLM",
    .configure = configure_qwen3,
    .defaults = {.kv_heads = 32, .head_dim = 128}};

} // namespace troupe::models
