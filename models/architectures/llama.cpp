// SPDX-License-Identifier: Apache-2.0
// Llama 2 and 3 (Touvron et al. 2023, arXiv 2307.09288; Grattafiori et al. 2024, arXiv 2407.21783). In GGUF
// files Mistral is `llama` too, and Mixtral is `llama` with experts.
#include "models/architectures/architecture.hpp"

namespace troupe::models {

namespace {

void read_llama_experts(config_reader& keys, model_config& config) {
  expert_config& experts = config.experts;
  experts.count = keys.number_or({"expert_count", ""}, 0, 0, 1024);
  const std::uint32_t used = keys.number_or({"expert_used_count", ""}, 0, 0, experts.count);
  if (experts.count == 0) return;
  if (used == 0) keys.refuse({"expert_used_count", ""}, "is missing; the experts per token", errc::bad_file);
  experts.used = used;
  experts.width = config.intermediate;
  for (layer_kind& layer : config.layer_kinds) layer.experts = true;
}

void configure_llama(config_reader& keys, model_config& config) {
  require_activation(keys, "hidden_act", "silu");
  read_biases(keys, config);
  if (keys.is_gguf()) read_llama_experts(keys, config);
}

} // namespace

const architecture llama_architecture{
    .name = "llama",
    .gguf = "llama",
    .hf_class = "LlamaForCausalLM",
    .configure = configure_llama,
    .gguf_pairs_adjacent = true};

} // namespace troupe::models
