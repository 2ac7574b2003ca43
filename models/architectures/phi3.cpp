// SPDX-License-Identifier: Apache-2.0
// Phi-3 and 3.5 (Abdin et al. 2024, arXiv 2404.14219): q, k, v in one matrix, gate and up in another, a
// window, LongRoPE.
#include "models/architectures/architecture.hpp"

namespace troupe::models {

namespace {

void configure_phi3(config_reader& keys, model_config& config) {
  require_activation(keys, "hidden_act", "silu");
  config.fused_gate_up = true;
  keys.ignore({"", "original_max_position_embeddings"}); // LongRoPE has read it
  for (const char* unused :
       {"full_attn_mod", "interpolate_factor"}) // of Phi-4-mini; transformers has no use for them
    keys.ignore({"", unused});
  read_biases(keys, config);
  const std::uint32_t window =
      keys.number_or({"attention.sliding_window", "sliding_window"}, 0, 0, max_window);
  for (layer_kind& layer : config.layer_kinds) layer.window = window;
}

constexpr tensor_name phi3_names[] = {{"ffn_up", "mlp.gate_up_proj"}};

} // namespace

const architecture phi3_architecture{
    .name = "phi3",
    .gguf = "phi3",
    .hf_class = "Phi3ForCausalLM",
    .configure = configure_phi3,
    .defaults = {.original_context = 4096},
    .hf_names = phi3_names};

} // namespace troupe::models
