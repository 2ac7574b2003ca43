// SPDX-License-Identifier: Apache-2.0
// The forward pass of a decoder-only transformer, top to bottom.
#include "models/decoder.hpp"

#include "models/layer_groups.hpp"

#include <cmath>

namespace troupe::models {

namespace {

error decoder_error(const std::string& why) {
  return {errc::internal, "decoder: " + why, {}, 0};
}

/// Whether weights have the shapes that the configuration asks for; keeps the first that has not.
class shape_check {
 public:
  shape_check(const model_config& config, std::string where) : config_(config), where_(std::move(where)) {}

  void matrix(const shared_weight& weight, const char* name, std::uint32_t n, std::uint32_t k) {
    if (weight == nullptr || weight->shape.n != n || weight->shape.k != k)
      fail(std::string(name) + " is not a matrix of " + std::to_string(n) + " x " + std::to_string(k));
  }
  /// `need`: nothing means that it may be there.
  void
  vector(const std::vector<float>& numbers, const char* name, std::size_t width, std::optional<bool> need) {
    const bool fits = numbers.size() == width || numbers.empty();
    if (!fits || (need && *need == numbers.empty()))
      fail(std::string(name) + " is not a vector of " + std::to_string(need.value_or(true) ? width : 0));
  }
  void fail(const std::string& what) {
    if (!error_) error_ = decoder_error(where_ + what);
  }

  void attention(const layer_weights& layer) {
    const std::uint32_t q = config_.heads * config_.head_dim, kv = config_.kv_heads * config_.head_dim;
    if (layer.qkv.size() == 1) {
      matrix(layer.qkv[0], "qkv", q + 2 * kv, config_.hidden);
    } else if (layer.qkv.size() == 3) {
      matrix(layer.qkv[0], "q", q, config_.hidden);
      matrix(layer.qkv[1], "k", kv, config_.hidden);
      matrix(layer.qkv[2], "v", kv, config_.hidden);
    } else {
      fail("must have one or three matrices for q, k, v");
    }
    const bool per_head = config_.norm_of_qk == qk_norm::per_head,
               normed = config_.norm_of_qk != qk_norm::none;
    vector(layer.qkv_bias, "qkv bias", q + 2 * kv, config_.qkv_bias);
    vector(layer.q_norm, "q norm", per_head ? config_.head_dim : q, normed);
    vector(layer.k_norm, "k norm", per_head ? config_.head_dim : kv, normed);
    matrix(layer.attention_output, "output", config_.hidden, q);
    vector(layer.output_bias, "output bias", config_.hidden, config_.output_bias);
  }

  void dense(const layer_weights& layer) {
    matrix(layer.gate, "gate", config_.intermediate, config_.hidden);
    matrix(layer.up, "up", config_.intermediate, config_.hidden);
    matrix(layer.down, "down", config_.hidden, config_.intermediate);
    vector(layer.gate_bias, "gate bias", config_.intermediate, config_.mlp_bias);
    vector(layer.up_bias, "up bias", config_.intermediate, config_.mlp_bias);
    vector(layer.down_bias, "down bias", config_.hidden, config_.mlp_bias);
  }

  void experts(const layer_weights& layer) {
    const expert_config& experts = config_.experts;
    matrix(layer.router, "router", experts.count, config_.hidden);
    for (const auto* list : {&layer.expert_gate, &layer.expert_up, &layer.expert_down})
      if (list->size() != experts.count) return fail("must have one matrix per expert");
    for (std::uint32_t e = 0; e < experts.count; ++e) {
      matrix(layer.expert_gate[e], "expert gate", experts.width, config_.hidden);
      matrix(layer.expert_up[e], "expert up", experts.width, config_.hidden);
      matrix(layer.expert_down[e], "expert down", config_.hidden, experts.width);
    }
  }

  void norms(const layer_weights& layer) {
    vector(layer.attention_norm, "attention norm", config_.hidden, config_.input_norms);
    vector(layer.ffn_norm, "feed-forward norm", config_.hidden, config_.input_norms);
    vector(layer.post_attention_norm, "norm after attention", config_.hidden, config_.output_norms);
    vector(layer.post_ffn_norm, "norm after feed-forward", config_.hidden, config_.output_norms);
  }

  void scheme(const layer_weights& layer, const std::string& wanted) {
    if (wanted.empty() || error_) return;
    for_matrices(layer, [&](const char*, const shared_weight& weight) {
      if (weight->scheme->id != wanted)
        fail(std::string("is packed as ") + weight->scheme->id + ", the plan says " + wanted);
    });
  }

  result<void> outcome() const {
    if (error_) return *error_;
    return {};
  }

 private:
  const model_config& config_;
  std::string where_;
  std::optional<error> error_;
};

result<void>
check_shapes(const model_config& config, const model_weights& weights, const execution_plan& plan) {
  if (weights.layers.size() != config.layers ||
      (!plan.layer_schemes.empty() && plan.layer_schemes.size() != config.layers))
    return decoder_error("weights, plan and configuration differ in their number of layers");
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    const layer_weights& layer = weights.layers[i];
    shape_check check(config, "layer " + std::to_string(i) + ' ');
    check.norms(layer);
    check.attention(layer);
    if (config.layer(i).experts)
      check.experts(layer);
    else
      check.dense(layer);
    check.scheme(layer, plan.layer_schemes.empty() ? std::string{} : plan.layer_schemes[i]);
    if (auto fine = check.outcome(); !fine) return fine;
  }
  shape_check check(config, "");
  check.matrix(weights.embedding, "embedding", config.vocab, config.hidden);
  check.matrix(weights.head, "head", config.vocab, config.hidden);
  check.vector(weights.output_norm, "output norm", config.hidden, true);
  const std::size_t pairs = config.rope.dims / 2;
  for (const auto* factors :
       {&config.rope.factors, &config.rope.long_factors, &weights.rope_factors, &weights.long_rope_factors})
    check.vector(*factors, "list of rotary factors", pairs, std::nullopt);
  return check.outcome();
}

using shared_rope = std::shared_ptr<const kernels::rope>;

shared_rope make_rope(
    const rope_config& rope, const std::vector<float>& factors, const std::vector<float>& long_factors) {
  kernels::rope made{
      rope.dims, rope_inverse_frequencies(rope, factors), rope.attention_factor, rope.pairs, {}, 0};
  if (!long_factors.empty()) {
    made.long_inverse_frequency = rope_inverse_frequencies(rope, long_factors);
    made.original_context = rope.original_context;
  }
  return std::make_shared<const kernels::rope>(std::move(made));
}

/// Writes ops and buffers in reading order.
class program_writer {
 public:
  program_writer(
      kernels::step_program& program, const model_config& config, const model_weights& weights,
      const layer_groups& groups) :
      program_(program),
      config_(config), weights_(weights), groups_(groups) {}

  void write() {
    choose_ropes();
    add_buffers();
    then(kernels::embed_op{weights_.embedding, x_, config_.embedding_scale});
    for (std::uint32_t i = 0; i < config_.layers; ++i) {
      write_attention(i, weights_.layers[i]);
      if (config_.layer(i).experts)
        write_experts(weights_.layers[i]);
      else
        write_feed_forward(weights_.layers[i]);
    }
    const auto last = add("last", config_.hidden, true),
               last_normed = add("last normed", config_.hidden, true);
    const auto logits = add("logits", config_.vocab, true);
    then(kernels::select_rows_op{x_, last});
    then(kernels::rms_norm_op{last, weights_.output_norm, config_.rms_epsilon, last_normed});
    then(kernels::head_op{last_normed, weights_.head, logits, config_.logit_scale, config_.logit_softcap});
    then(kernels::sample_op{logits});
  }

 private:
  void then(kernels::op op) { program_.ops.push_back(std::move(op)); }

  kernels::buffer_id add(const char* name, std::uint32_t width, bool output_rows = false) {
    program_.buffers.push_back({name, width, output_rows});
    return static_cast<kernels::buffer_id>(program_.buffers.size() - 1);
  }

  void choose_ropes() {
    const rope_config& rope = config_.rope;
    global_ = make_rope(
        rope, weights_.rope_factors.empty() ? rope.factors : weights_.rope_factors,
        weights_.long_rope_factors.empty() ? rope.long_factors : weights_.long_rope_factors);
    if (config_.local_rope) local_ = make_rope(*config_.local_rope, config_.local_rope->factors, {});
  }

  void add_buffers() {
    bool dense = false, experts = false;
    for (std::uint32_t i = 0; i < config_.layers; ++i) (config_.layer(i).experts ? experts : dense) = true;
    x_ = add("residual", config_.hidden);
    normed_ = add("normed", config_.hidden);
    q_ = add("q", config_.heads * config_.head_dim);
    attended_ = add("attended", config_.heads * config_.head_dim);
    if (dense) gated_ = add("gated", config_.intermediate);
    if (config_.norm_of_qk == qk_norm::whole_width)
      qkv_ = add("qkv", (config_.heads + 2 * config_.kv_heads) * config_.head_dim);
    if (config_.output_norms) projected_ = add("projected", config_.hidden);
    if (!experts) return;
    scores_ = add("expert scores", config_.experts.count);
    gathered_ = add("expert rows", config_.experts.used * config_.hidden);
    expert_gated_ = add("expert gated", config_.experts.used * config_.experts.width);
  }

  /// What attention or feed-forward reads: the residual stream, normed where the model norms it.
  kernels::buffer_id read_residual(const std::vector<float>& norm) {
    if (!config_.input_norms) return x_;
    then(kernels::rms_norm_op{x_, norm, config_.rms_epsilon, normed_});
    return normed_;
  }

  /// residual += in @ W^T, normed on the way where the model does so.
  void add_projection(
      kernels::buffer_id in, const shared_weight& weight, const std::vector<float>& bias,
      const std::vector<float>& norm) {
    if (!config_.output_norms) {
      then(kernels::linear_add_op{in, weight, x_, bias, config_.residual_scale});
      return;
    }
    then(kernels::linear_op{in, weight, projected_, 0, bias});
    then(kernels::rms_norm_op{projected_, norm, config_.rms_epsilon, normed_});
    then(kernels::add_op{normed_, x_, config_.residual_scale});
  }

  shared_rope rope_of(const layer_kind& kind) const {
    if (kind.rope == rope_choice::none) return nullptr;
    return kind.rope == rope_choice::local && local_ != nullptr ? local_ : global_;
  }

  void write_attention(std::uint32_t index, const layer_weights& layer) {
    const layer_kind kind = config_.layer(index);
    const auto [group, place] = groups_.places[index];
    const std::uint32_t heads = config_.heads, kv_heads = config_.kv_heads, head_dim = config_.head_dim;
    const auto in = read_residual(layer.attention_norm);
    if (config_.norm_of_qk == qk_norm::whole_width) {
      write_projections(in, layer);
      then(kernels::place_op{
          qkv_, heads, kv_heads, head_dim, rope_of(kind), place, q_, layer.q_norm, layer.k_norm,
          config_.rms_epsilon, group});
    } else {
      then(kernels::qkv_op{
          in, layer.qkv, heads, kv_heads, head_dim, rope_of(kind), place, q_, layer.qkv_bias, layer.q_norm,
          layer.k_norm, config_.rms_epsilon, group});
    }
    const float scale = config_.attention_scale != 0 ? config_.attention_scale
                                                     : 1.0F / std::sqrt(static_cast<float>(head_dim));
    then(kernels::attention_op{
        q_, heads, kv_heads, head_dim, scale, place, attended_, kind.window, config_.attention_softcap,
        group});
    add_projection(attended_, layer.attention_output, layer.output_bias, layer.post_attention_norm);
  }

  /// q | k | v side by side, whichever way they are packed.
  void write_projections(kernels::buffer_id in, const layer_weights& layer) {
    std::uint32_t first = 0;
    for (const shared_weight& weight : layer.qkv) {
      std::vector<float> bias;
      if (!layer.qkv_bias.empty())
        bias.assign(layer.qkv_bias.begin() + first, layer.qkv_bias.begin() + first + weight->shape.n);
      then(kernels::linear_op{in, weight, qkv_, first, std::move(bias)});
      first += weight->shape.n;
    }
  }

  void write_feed_forward(const layer_weights& layer) {
    const auto in = read_residual(layer.ffn_norm);
    then(kernels::gate_up_op{
        in, layer.gate, layer.up, gated_, config_.activation, layer.gate_bias, layer.up_bias});
    add_projection(gated_, layer.down, layer.down_bias, layer.post_ffn_norm);
  }

  void write_experts(const layer_weights& layer) {
    const expert_config& experts = config_.experts;
    kernels::moe_op op;
    op.in = read_residual(layer.ffn_norm);
    op.router = layer.router;
    op.gate = layer.expert_gate;
    op.up = layer.expert_up;
    op.down = layer.expert_down;
    op.experts = experts.count;
    op.chosen = experts.used;
    op.intermediate = experts.width;
    op.scores = scores_;
    op.gathered = gathered_;
    op.gated = expert_gated_;
    op.residual = x_;
    op.normalise = experts.normalise;
    op.activation = config_.activation;
    then(std::move(op));
  }

  kernels::step_program& program_;
  const model_config& config_;
  const model_weights& weights_;
  const layer_groups& groups_;
  shared_rope global_, local_;
  kernels::buffer_id x_ = 0, normed_ = 0, q_ = 0, attended_ = 0, gated_ = 0, qkv_ = 0, projected_ = 0;
  kernels::buffer_id scores_ = 0, gathered_ = 0, expert_gated_ = 0;
};

} // namespace

result<std::shared_ptr<const kernels::step_program>>
build_decoder(const model_config& config, const model_weights& weights, const execution_plan& plan) {
  if (auto fine = check_shapes(config, weights, plan); !fine) return fine.error();
  auto program = std::make_shared<kernels::step_program>();
  const layer_groups groups = group_layers(config);
  program->kv = {32, groups.layers, config.kv_heads, config.head_dim, plan.kv, groups.windows};
  program->vocab = config.vocab;
  program->context = config.context;
  program_writer(*program, config, weights, groups).write();
  return std::shared_ptr<const kernels::step_program>(std::move(program));
}

} // namespace troupe::models
