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
  const std::uint32_t window = read_optional_window(keys);
  const std::uint32_t first = keys.number_or({"", "max_window_layers"}, 28, 0, 1U << 16);
  if (read_layer_types(keys, config, window)) return;
  for (std::uint32_t i = first; i < config.layers; ++i) config.layer_kinds[i].window = window;
}

} // namespace

const architecture qwen3_architecture{
    .name = "qwen3",
    .gguf = "qwen3",
    .hf_class = "Qwen3ForCausalLM",
    .configure = configure_qwen3,
    .hf_head_dim_needed = true};

} // namespace troupe::models
