// SPDX-License-Identifier: Apache-2.0
// OLMo 2 (OLMo Team 2024, arXiv 2501.00656): norms after attention and feed-forward instead of before;
// queries and keys are normed over their whole width.
#include "models/architectures/architecture.hpp"

namespace troupe::models {

namespace {

void configure_olmo2(config_reader& keys, model_config& config) {
  require_activation(keys, "hidden_act", "silu");
  config.norm_of_qk = qk_norm::whole_width;
  config.input_norms = false;
  config.output_norms = true;
  if (!keys.is_gguf()) read_biases(keys, config);
}

constexpr tensor_name olmo2_names[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};

} // namespace

const architecture olmo2_architecture{
    .name = "olmo2",
    .gguf = "olmo2",
    .hf_class = "Olmo2ForCausalLM",
    .configure = configure_olmo2,
    .hf_names = olmo2_names};

} // namespace troupe::models
