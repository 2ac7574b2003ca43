// SPDX-License-Identifier: Apache-2.0
// Granite 3 (IBM 2024): Llama with multipliers of the embedding, the scores, the residual additions and the
// logits.
#include "models/architectures/architecture.hpp"

namespace troupe::models {

namespace {

constexpr float largest_multiplier = 1e6F;

void configure_granite(config_reader& keys, model_config& config) {
  require_activation(keys, "hidden_act", "silu");
  read_biases(keys, config);
  config.embedding_scale =
      keys.real_or({"embedding_scale", "embedding_multiplier"}, 1, -largest_multiplier, largest_multiplier);
  config.residual_scale =
      keys.real_or({"residual_scale", "residual_multiplier"}, 1, -largest_multiplier, largest_multiplier);
  // Absent: 1 in config.json, the usual 1 / sqrt(head) in GGUF, written as 0 here.
  config.attention_scale = keys.real_or(
      {"attention.scale", "attention_multiplier"}, keys.is_gguf() ? 0.0F : 1.0F, 0, largest_multiplier);
  if (keys.is_gguf() && !keys.has({"logit_scale", ""})) // llama.cpp needs it, too
    keys.refuse({"logit_scale", ""}, "is missing; a number is needed", errc::bad_file);
  // llama.cpp reads this key as whether positions are rotated at all.
  if (!keys.flag_or({"rope.scaling.finetuned", ""}, true))
    for (layer_kind& layer : config.layer_kinds) layer.rope = rope_choice::none;
  config.logit_scale = 1.0F / keys.real_or({"logit_scale", "logits_scaling"}, 1, 1e-6F, largest_multiplier);
}

} // namespace

const architecture granite_architecture{
    .name = "granite",
    .gguf = "granite",
    .hf_class = "GraniteForCausalLM",
    .configure = configure_granite,
    .gguf_pairs_adjacent = true};

} // namespace troupe::models
