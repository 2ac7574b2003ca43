// SPDX-License-Identifier: Apache-2.0
// SmolLM3 (Hugging Face 2025): Llama with every fourth layer without rotary embedding.
#include "models/architectures/architecture.hpp"

namespace troupe::models {

namespace {

void configure_smollm3(config_reader& keys, model_config& config) {
  require_activation(keys, "hidden_act", "silu");
  read_biases(keys, config);
  const config_key list{"", "no_rope_layers"};
  const std::uint32_t period = keys.number_or({"", "no_rope_layer_interval"}, 4, 1, 1U << 16);
  const auto rotated = keys.numbers(list, config.layers, 0, 1);
  if (!rotated.empty() && rotated.size() != config.layers) {
    keys.refuse(list, "does not name one choice per layer", errc::bad_file);
    return;
  }
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    const bool has_rope = rotated.empty() ? (i + 1) % period != 0 : rotated[i] != 0;
    if (!has_rope) config.layer_kinds[i].rope = rope_choice::none;
  }
  keys.ignore({"", "max_window_layers"}); // left over from Qwen; transformers does not look at it
  const std::uint32_t window = read_optional_window(keys, 0);
  if (read_layer_types(keys, config, window)) return;
  for (layer_kind& layer : config.layer_kinds)
    if (layer.rope == rope_choice::none) layer.window = window;
}

} // namespace

const architecture smollm3_architecture{
    .name = "smollm3",
    .gguf = "smollm3",
    .hf_class = "SmolLM3ForCausalLM",
    .configure = configure_smollm3,
    .gguf_pairs_adjacent = true,
    .defaults = {.kv_heads = 4, .rope_base = 2e6F, .tied = true}};

} // namespace troupe::models
