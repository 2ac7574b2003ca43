// SPDX-License-Identifier: Apache-2.0
#include "models/architectures/architecture.hpp"

#include "models/json_document.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::models {

namespace {

/// Of Llama and most that came after it.
constexpr tensor_name plain_names[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_qkv", "self_attn.qkv_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"attn_output", "self_attn.o_proj"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.experts.#.gate_proj"},
    {"ffn_up_exps", "mlp.experts.#.up_proj"},
    {"ffn_down_exps", "mlp.experts.#.down_proj"},
};

std::string_view find_name(std::span<const tensor_name> names, std::string_view gguf) {
  const auto found =
      std::find_if(names.begin(), names.end(), [&](const auto& row) { return row.gguf == gguf; });
  return found == names.end() ? std::string_view{} : found->hf;
}

} // namespace

std::span<const architecture* const> architectures() noexcept {
  static const architecture* const all[] = {
      &gemma2_architecture,  &gemma3_architecture,  &granite_architecture,   &llama_architecture,
      &mistral_architecture, &mixtral_architecture, &olmo2_architecture,     &phi3_architecture,
      &qwen2_architecture,   &qwen3_architecture,   &qwen3_moe_architecture, &smollm3_architecture};
  return all;
}

const architecture* find_gguf_architecture(std::string_view name) noexcept {
  for (const architecture* kind : architectures())
    if (!name.empty() && kind->gguf == name) return kind;
  return nullptr;
}

const architecture* find_hf_architecture(std::string_view class_name) noexcept {
  for (const architecture* kind : architectures())
    if (kind->hf_class == class_name) return kind;
  return nullptr;
}

const architecture* find_hf_text_half(std::string_view class_name) noexcept {
  for (const architecture* kind : architectures())
    if (!class_name.empty() && kind->hf_wrapper == class_name) return kind;
  return nullptr;
}

std::string_view hf_name(const architecture& kind, std::string_view gguf) noexcept {
  const std::string_view own = find_name(kind.hf_names, gguf);
  return own.empty() ? find_name(plain_names, gguf) : own;
}

bool read_layer_types(config_reader& keys, model_config& config, std::uint32_t window) {
  const config_key key{"", "layer_types"};
  const auto types = keys.texts(key, config.layers);
  if (types.empty()) return false;
  if (types.size() != config.layers) {
    keys.refuse(key, "does not name one type per layer", errc::bad_file);
    return true;
  }
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    if (types[i] == "sliding_attention")
      config.layer_kinds[i].window = window;
    else if (types[i] != "full_attention")
      keys.refuse(key, "holds a type other than full_attention and sliding_attention");
  }
  return true;
}

std::uint32_t read_optional_window(config_reader& keys, std::uint32_t fallback) {
  const config_key window{"", "sliding_window"};
  const bool used = keys.flag_or({"", "use_sliding_window"}, false);
  const bool stated = keys.states(window);
  if (!used) return 0;
  if (!stated) return fallback;
  return keys.has(window) ? keys.number(window, 1, max_window) : 0;
}

void read_qwen_windows(config_reader& keys, model_config& config) {
  const std::uint32_t window = read_optional_window(keys, 4096);
  const std::uint32_t first = keys.number_or({"", "max_window_layers"}, 28, 0, 1U << 16);
  if (read_layer_types(keys, config, window)) return;
  for (std::uint32_t i = first; i < config.layers; ++i) config.layer_kinds[i].window = window;
}

void configure_gemma(config_reader& keys, model_config& config, std::uint32_t widest) {
  config.output_norms = true;
  config.norms_add_one = !keys.is_gguf(); // GGUF has the 1 in the numbers
  config.activation = kernels::gate_activation::gelu_tanh;
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
  require_activation(keys, "hidden_activation", "gelu_pytorch_tanh");
  read_biases(keys, config);
  // GGUF has no key: the head's width, but for the 27B model.
  const std::uint32_t width =
      keys.is_gguf() && config.layers == widest ? config.hidden / config.heads : config.head_dim;
  const auto fallback = static_cast<float>(keys.is_gguf() ? width : 256U);
  config.attention_scale =
      1.0F / std::sqrt(keys.real_or({"", "query_pre_attn_scalar"}, fallback, 1e-3F, 1e6F));
}

std::uint32_t read_gemma_window(config_reader& keys, std::uint32_t fallback) {
  const config_key key{"attention.sliding_window", "sliding_window"};
  const bool none = keys.states(key) && !keys.has(key);
  return none ? 0 : keys.number_or(key, fallback, keys.is_gguf() ? 0 : 1, max_window);
}

void read_biases(config_reader& keys, model_config& config) {
  if (keys.is_gguf()) {
    config.qkv_bias = config.output_bias = config.mlp_bias = std::nullopt;
    return;
  }
  config.qkv_bias = config.output_bias = keys.flag_or({"", "attention_bias"}, false);
  config.mlp_bias = keys.flag_or({"", "mlp_bias"}, false);
}

void require_activation(config_reader& keys, const char* hf, const char* wanted) {
  const config_key key{"", hf};
  const std::string stated = keys.text_or(key, wanted);
  if (stated != wanted)
    keys.refuse(key, "is '" + for_message(stated) + "'; only " + wanted + " is built for this architecture");
}

} // namespace troupe::models
