// SPDX-License-Identifier: Apache-2.0
// The forward pass of a Llama-style decoder, top to bottom.
#include "models/decoder.hpp"

#include <cmath>

namespace troupe::models {

namespace {

/// Collects ops and buffers in reading order.
class program_writer {
 public:
  explicit program_writer(kernels::step_program& program) : program_(program) {}

  kernels::buffer_id rows(const char* name, std::uint32_t width) { return add(name, width, false); }
  kernels::buffer_id output_rows(const char* name, std::uint32_t width) { return add(name, width, true); }
  void operator()(kernels::op op) { program_.ops.push_back(std::move(op)); }

 private:
  kernels::buffer_id add(const char* name, std::uint32_t width, bool output_rows) {
    program_.buffers.push_back({name, width, output_rows});
    return static_cast<kernels::buffer_id>(program_.buffers.size() - 1);
  }

  kernels::step_program& program_;
};

result<void>
check_matrix(const shared_weight& weight, const std::string& name, std::uint32_t n, std::uint32_t k) {
  if (weight != nullptr && weight->shape.n == n && weight->shape.k == k) return {};
  return error{
      errc::internal,
      "decoder: " + name + " is not a matrix of " + std::to_string(n) + " x " + std::to_string(k),
      {},
      0};
}

result<void> check_layer(
    const model_config& config, const layer_weights& layer, const std::string& scheme,
    const std::string& name) {
  const std::uint32_t q = config.heads * config.head_dim, kv = config.kv_heads * config.head_dim;
  const std::vector<std::uint32_t> split =
      layer.qkv.size() == 1 ? std::vector{q + 2 * kv} : std::vector{q, kv, kv};
  if (layer.qkv.size() != split.size())
    return error{errc::internal, "decoder: " + name + " must have one or three matrices for q, k, v", {}, 0};
  std::vector<shared_weight> all = layer.qkv;
  for (std::size_t i = 0; i < split.size(); ++i)
    if (auto fine = check_matrix(layer.qkv[i], name + " qkv", split[i], config.hidden); !fine) return fine;
  if (auto fine = check_matrix(layer.attention_output, name + " output", config.hidden, q); !fine)
    return fine;
  if (auto fine = check_matrix(layer.gate, name + " gate", config.intermediate, config.hidden); !fine)
    return fine;
  if (auto fine = check_matrix(layer.up, name + " up", config.intermediate, config.hidden); !fine)
    return fine;
  if (auto fine = check_matrix(layer.down, name + " down", config.hidden, config.intermediate); !fine)
    return fine;
  if (layer.attention_norm.size() != config.hidden || layer.ffn_norm.size() != config.hidden)
    return error{errc::internal, "decoder: " + name + " has norms of another width", {}, 0};
  if (scheme.empty()) return {};
  all.insert(all.end(), {layer.attention_output, layer.gate, layer.up, layer.down});
  for (const shared_weight& weight : all)
    if (weight->scheme->id != scheme)
      return error{
          errc::internal,
          "decoder: " + name + " is packed as " + weight->scheme->id + ", the plan says " + scheme,
          {},
          0};
  return {};
}

} // namespace

result<std::shared_ptr<const kernels::step_program>>
build_decoder(const model_config& config, const model_weights& weights, const execution_plan& plan) {
  if (weights.layers.size() != config.layers ||
      (!plan.layer_schemes.empty() && plan.layer_schemes.size() != config.layers))
    return error{
        errc::internal, "decoder: weights, plan and configuration differ in their number of layers", {}, 0};
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    const std::string scheme = plan.layer_schemes.empty() ? std::string{} : plan.layer_schemes[i];
    if (auto fine = check_layer(config, weights.layers[i], scheme, "layer " + std::to_string(i)); !fine)
      return fine.error();
  }
  if (auto fine = check_matrix(weights.embedding, "embedding", config.vocab, config.hidden); !fine)
    return fine.error();
  if (auto fine = check_matrix(weights.head, "head", config.vocab, config.hidden); !fine) return fine.error();

  auto program = std::make_shared<kernels::step_program>();
  program->kv = {32, config.layers, config.kv_heads, config.head_dim, plan.kv};
  program->vocab = config.vocab;
  program->context = config.context;
  const auto rotary = std::make_shared<const kernels::rope>(
      kernels::rope{config.rope_dims, rope_inverse_frequencies(config, weights.rope_factors), 1.0F});
  const float scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim));
  const std::uint32_t heads = config.heads, kv_heads = config.kv_heads, head_dim = config.head_dim;
  const float epsilon = config.rms_epsilon;

  program_writer then(*program);
  const auto x = then.rows("residual", config.hidden);
  const auto normed = then.rows("normed", config.hidden);
  const auto q = then.rows("q", heads * head_dim);
  const auto attended = then.rows("attended", heads * head_dim);
  const auto gated = then.rows("gated", config.intermediate);
  const auto last = then.output_rows("last", config.hidden);
  const auto last_normed = then.output_rows("last normed", config.hidden);
  const auto logits = then.output_rows("logits", config.vocab);

  then(kernels::embed_op{weights.embedding, x});
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    const layer_weights& layer = weights.layers[i];
    then(kernels::rms_norm_op{x, layer.attention_norm, epsilon, normed});
    then(kernels::qkv_op{normed, layer.qkv, heads, kv_heads, head_dim, rotary, i, q});
    then(kernels::attention_op{q, heads, kv_heads, head_dim, scale, i, attended});
    then(kernels::linear_add_op{attended, layer.attention_output, x});
    then(kernels::rms_norm_op{x, layer.ffn_norm, epsilon, normed});
    then(kernels::gate_up_op{normed, layer.gate, layer.up, gated});
    then(kernels::linear_add_op{gated, layer.down, x});
  }
  then(kernels::select_rows_op{x, last});
  then(kernels::rms_norm_op{last, weights.output_norm, epsilon, last_normed});
  then(kernels::head_op{last_normed, weights.head, logits});
  then(kernels::sample_op{logits});
  return std::shared_ptr<const kernels::step_program>(std::move(program));
}

} // namespace troupe::models
