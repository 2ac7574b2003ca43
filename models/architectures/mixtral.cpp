// SPDX-License-Identifier: Apache-2.0
// Mixtral (Jiang et al. 2024, arXiv 2401.04088): Mistral whose feed-forward is routed to experts. GGUF files
// call it `llama`.
#include "models/architectures/architecture.hpp"

namespace troupe::models {

namespace {

void configure_mixtral(config_reader& keys, model_config& config) {
  require_activation(keys, "hidden_act", "silu");
  const config_key count{"", keys.has({"", "num_local_experts"}) ? "num_local_experts" : "num_experts"};
  config.experts.count = keys.number_or(count, 8, 1, 1024);
  config.experts.used = keys.number_or({"", "num_experts_per_tok"}, 2, 1, config.experts.count);
  config.experts.width = config.intermediate;
  const std::uint32_t window = keys.number_or({"", "sliding_window"}, 0, 0, max_window);
  for (layer_kind& layer : config.layer_kinds) {
    layer.experts = true;
    layer.window = window;
  }
}

constexpr tensor_name mixtral_names[] = {
    {"ffn_gate_inp", "block_sparse_moe.gate"},
    {"ffn_gate_exps", "block_sparse_moe.experts.#.w1"},
    {"ffn_up_exps", "block_sparse_moe.experts.#.w3"},
    {"ffn_down_exps", "block_sparse_moe.experts.#.w2"},
};

} // namespace

const architecture mixtral_architecture{
    .name = "mixtral",
    .gguf = "",
    .hf_class = "MixtralForCausalLM",
    .configure = configure_mixtral,
    .defaults = {.kv_heads = 8, .rope_base = 1e6F},
    .hf_names = mixtral_names};

} // namespace troupe::models
