// SPDX-License-Identifier: Apache-2.0
// Qwen 3 with experts (Yang et al. 2025, arXiv 2505.09388). A folder may mix dense layers in; GGUF cannot.
#include "models/architectures/architecture.hpp"

#include <algorithm>

namespace troupe::models {

namespace {

void read_expert_layers(config_reader& keys, model_config& config) {
  const std::uint32_t step = keys.number_or({"", "decoder_sparse_step"}, 1, 1, 1U << 16);
  const auto dense = keys.numbers({"", "mlp_only_layers"}, config.layers, 0, config.layers - 1);
  for (std::uint32_t i = 0; i < config.layers; ++i)
    config.layer_kinds[i].experts =
        (i + 1) % step == 0 && std::find(dense.begin(), dense.end(), i) == dense.end();
}

void configure_qwen3_moe(config_reader& keys, model_config& config) {
  require_activation(keys, "hidden_act", "silu");
  config.norm_of_qk = qk_norm::per_head;
  const config_key norms{"", "use_qk_norm"}; // of some conversions; transformers always norms
  if (!keys.flag_or(norms, true)) keys.refuse(norms, "asks for a variant that is not supported");
  const bool newer = keys.has({"", "num_local_experts"}); // transformers 5
  expert_config& experts = config.experts;
  experts.count = keys.number({"expert_count", newer ? "num_local_experts" : "num_experts"}, 1, 1024);
  experts.used = keys.number({"expert_used_count", "num_experts_per_tok"}, 1, experts.count);
  experts.width = keys.number({"expert_feed_forward_length", "moe_intermediate_size"}, 1, 1U << 18);
  experts.normalise = keys.flag_or({"", "norm_topk_prob"}, keys.is_gguf()); // GGUF has no key: always
  read_expert_layers(keys, config);
  if (keys.is_gguf()) return;
  read_biases(keys, config);
  keys.ignore({"", "max_window_layers"}); // the window, where used, is every layer's
  const std::uint32_t window = read_optional_window(keys, 4096);
  for (layer_kind& layer : config.layer_kinds) layer.window = window;
}

} // namespace

const architecture qwen3_moe_architecture{
    .name = "qwen3moe",
    .gguf = "qwen3moe",
    .hf_class = "Qwen3MoeForCausalLM",
    .configure = configure_qwen3_moe,
    .defaults = {.kv_heads = 4}};

} // namespace troupe::models
