// SPDX-License-Identifier: Apache-2.0
#include "models/model_tensors.hpp"

#include "models/architectures/architecture.hpp"
#include "models/text_half.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace troupe::models {

namespace {

/// "blk.3.attn_q.weight" as a Hugging Face folder spells it; `expert` takes the place of '#'.
std::string translated(const architecture& kind, const std::string& gguf, std::uint32_t expert) {
  if (gguf == "token_embd.weight") return "model.embed_tokens.weight";
  if (gguf == "output_norm.weight") return "model.norm.weight";
  if (gguf == "output.weight") return "lm_head.weight";
  if (!gguf.starts_with("blk.")) return gguf;
  const auto stem = gguf.find('.', 4) + 1, end = gguf.rfind('.');
  std::string name(hf_name(kind, std::string_view(gguf).substr(stem, end - stem)));
  if (name.empty()) return gguf; // found nowhere
  if (const auto number = name.find('#'); number != std::string::npos)
    name.replace(number, 1, std::to_string(expert));
  return "model.layers." + gguf.substr(4, stem - 4) + name + gguf.substr(end);
}

/// Finds tensors by their GGUF names, checks their shape, and remembers which were taken.
class tensor_taker {
 public:
  tensor_taker(const tensor_source& source, const model_config& config) : source_(source), config_(config) {
    if (config.text_half && is_folder()) half_.emplace(source);
  }

  bool is_folder() const noexcept { return source_.has_folder_names(); }
  bool has(const std::string& gguf) const { return source_.find_tensor(name_of(gguf)) != nullptr; }

  /// A matrix [n, k].
  result<model_tensor>
  matrix(const std::string& gguf, std::uint64_t n, std::uint64_t k, std::uint32_t expert = 0) {
    return take(name_of(gguf, expert), {k, n});
  }

  /// One of the stacked matrices [count, n, k] `stem`_exps of a GGUF file, or a tensor of its own: in a
  /// folder, and in GGUF files of early converters, `stem`.EXPERT.
  result<model_tensor>
  expert_matrix(const std::string& stem, std::uint32_t expert, std::uint64_t n, std::uint64_t k) {
    const std::string gguf = stem + "_exps.weight", own = stem + '.' + std::to_string(expert) + ".weight";
    if (is_folder()) return matrix(gguf, n, k, expert);
    if (has(own)) return matrix(own, n, k);
    const auto stacked = take(gguf, {k, n, config_.experts.count});
    if (!stacked) return stacked.error();
    return rows_of(*stacked, expert, 0, n);
  }

  /// A stack of matrices [count, n, k], for the caller to cut.
  result<model_tensor> stack(const std::string& gguf, std::uint64_t n, std::uint64_t k) {
    return take(gguf, {k, n, config_.experts.count});
  }

  result<void> vector(const std::string& gguf, std::uint64_t count, std::vector<float>& to) {
    const std::string name = name_of(gguf);
    auto numbers = load_vector(source_, name, count);
    if (!numbers) return numbers.error();
    taken_.insert(source_.find_tensor(name)->name);
    to.insert(to.end(), numbers->begin(), numbers->end());
    return {};
  }

  /// The weights of a norm, as they multiply.
  result<void> norm(const std::string& gguf, std::uint64_t count, std::vector<float>& to) {
    if (auto read = vector(gguf, count, to); !read) return read;
    if (config_.norms_add_one)
      for (float& weight : to) weight += 1.0F;
    return {};
  }

  error fail(std::string message, errc code = errc::bad_file) const {
    return source_.fail(std::move(message), code);
  }

  /// A tensor that nobody takes means a computation that is not built: refuse it.
  result<void> check_all_taken() const {
    for (const model_tensor& tensor : source_.tensors())
      if (taken_.find(tensor.name) == taken_.end() && !is_harmless(tensor.name)) return no_place(tensor.name);
    for (const std::string_view name : source_.unreadable())
      if (!is_harmless(name)) return no_place(name);
    return {};
  }

 private:
  std::string name_of(const std::string& gguf, std::uint32_t expert = 0) const {
    if (!is_folder() || config_.kind == nullptr) return gguf;
    const std::string name = translated(*config_.kind, gguf, expert);
    return half_ ? half_->whole(name) : name;
  }

  result<model_tensor> take(const std::string& name, std::initializer_list<std::uint64_t> ne) {
    const auto found = source_.tensor(name);
    if (!found) return found.error();
    const model_tensor& tensor = **found;
    if (tensor.rank != ne.size() || !std::equal(ne.begin(), ne.end(), tensor.ne.begin())) {
      std::string needed;
      for (const std::uint64_t extent : ne) needed += (needed.empty() ? "" : ", ") + std::to_string(extent);
      return fail("tensor '" + name + "' is " + describe(tensor) + "; [" + needed + "] is needed");
    }
    taken_.insert(tensor.name);
    return tensor;
  }

  /// What old checkpoints carry along: frequencies that follow from the configuration, masks, and the head of
  /// a model whose head is its embedding.
  bool is_harmless(std::string_view name) const {
    if (!is_folder()) return config_.text_half && (name.starts_with("v.") || name.starts_with("mm."));
    if (half_ && text_half_names::is_vision(name)) return true;
    return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".position_ids") ||
           name.ends_with(".masked_bias") || (config_.tied_head && name == name_of("output.weight"));
  }

  error no_place(std::string_view name) const {
    return fail(
        "tensor '" + std::string(name) + "' has no place in a " + config_.architecture +
            " model as built here",
        errc::unsupported);
  }

  const tensor_source& source_;
  const model_config& config_;
  std::optional<text_half_names> half_;
  std::set<std::string_view> taken_;
};

/// Lists one layer; keeps the first error, so that the parts read as a list.
class layer_lister {
 public:
  layer_lister(
      tensor_taker& take, const model_config& config, std::uint32_t index, bool alone, layer_weights& layer,
      weight_list& list) :
      take_(take),
      config_(config), index_(index), prefix_("blk." + std::to_string(index) + '.'), alone_(alone),
      layer_(layer), list_(list) {}

  result<void> run() {
    const std::uint64_t hidden = config_.hidden;
    if (config_.input_norms) {
      norm("attn_norm.weight", hidden, layer_.attention_norm);
      norm("ffn_norm.weight", hidden, layer_.ffn_norm);
    }
    if (config_.output_norms) {
      norm("post_attention_norm.weight", hidden, layer_.post_attention_norm);
      norm("post_ffw_norm.weight", hidden, layer_.post_ffn_norm);
    }
    attention();
    if (config_.layer(index_).experts)
      experts();
    else
      feed_forward();
    if (error_) return *error_;
    return {};
  }

 private:
  void keep(const result<void>& done) {
    if (!done && !error_) error_ = done.error();
  }
  void norm(const char* suffix, std::uint64_t count, std::vector<float>& to) {
    if (!error_) keep(take_.norm(prefix_ + suffix, count, to));
  }

  /// The bias of `stem`, where the configuration or, if that leaves it open, the file has it.
  void bias(const char* stem, std::optional<bool> rule, std::uint64_t count, std::vector<float>& to) {
    const std::string name = prefix_ + stem + ".bias";
    if (!error_ && rule.value_or(take_.has(name))) keep(take_.vector(name, count, to));
  }

  void add(std::vector<model_tensor> parts, shared_weight& place) {
    list_.requests.push_back({std::move(parts), alone_});
    list_.places.push_back(&place);
  }
  /// Nothing after an error.
  std::optional<model_tensor> good(result<model_tensor> found) {
    if (found) return std::move(*found);
    if (!error_) error_ = found.error();
    return std::nullopt;
  }
  std::optional<model_tensor> matrix(const char* suffix, std::uint64_t n, std::uint64_t k) {
    return error_ ? std::nullopt : good(take_.matrix(prefix_ + suffix, n, k));
  }
  void matrix(const char* suffix, std::uint64_t n, std::uint64_t k, shared_weight& place) {
    if (const auto found = matrix(suffix, n, k)) add({*found}, place);
  }

  void attention() {
    const std::uint64_t q = std::uint64_t{config_.heads} * config_.head_dim;
    const std::uint64_t kv = std::uint64_t{config_.kv_heads} * config_.head_dim;
    if (take_.has(prefix_ + "attn_qkv.weight")) {
      layer_.qkv.resize(1);
      matrix("attn_qkv.weight", q + 2 * kv, config_.hidden, layer_.qkv[0]);
      bias("attn_qkv", config_.qkv_bias, q + 2 * kv, layer_.qkv_bias);
    } else {
      split_qkv(q, kv);
    }
    const bool per_head = config_.norm_of_qk == qk_norm::per_head;
    if (config_.norm_of_qk != qk_norm::none) {
      norm("attn_q_norm.weight", per_head ? config_.head_dim : q, layer_.q_norm);
      norm("attn_k_norm.weight", per_head ? config_.head_dim : kv, layer_.k_norm);
    }
    matrix("attn_output.weight", config_.hidden, q, layer_.attention_output);
    bias("attn_output", config_.output_bias, config_.hidden, layer_.output_bias);
  }

  void split_qkv(std::uint64_t q, std::uint64_t kv) {
    const auto q_matrix = matrix("attn_q.weight", q, config_.hidden);
    const auto k_matrix = matrix("attn_k.weight", kv, config_.hidden);
    const auto v_matrix = matrix("attn_v.weight", kv, config_.hidden);
    if (error_) return;
    const std::vector<model_tensor> parts{*q_matrix, *k_matrix, *v_matrix};
    const bool merged = can_merge(parts);
    layer_.qkv.resize(merged ? 1 : parts.size());
    if (merged)
      add(parts, layer_.qkv[0]);
    else
      for (std::size_t i = 0; i < parts.size(); ++i) add({parts[i]}, layer_.qkv[i]);
    // All three or none: one alone would leave the vector short.
    std::optional<bool> rule = config_.qkv_bias;
    for (const char* name : {"attn_q.bias", "attn_k.bias", "attn_v.bias"})
      if (!config_.qkv_bias && take_.has(prefix_ + name)) rule = true;
    bias("attn_q", rule, q, layer_.qkv_bias);
    bias("attn_k", rule, kv, layer_.qkv_bias);
    bias("attn_v", rule, kv, layer_.qkv_bias);
  }

  void feed_forward() {
    const std::uint64_t width = config_.intermediate;
    if (config_.fused_gate_up) {
      if (const auto both = matrix("ffn_up.weight", 2 * width, config_.hidden)) {
        add({rows_of(*both, 0, 0, width)}, layer_.gate);
        add({rows_of(*both, 0, width, width)}, layer_.up);
      }
    } else {
      matrix("ffn_gate.weight", width, config_.hidden, layer_.gate);
      matrix("ffn_up.weight", width, config_.hidden, layer_.up);
    }
    matrix("ffn_down.weight", config_.hidden, width, layer_.down);
    bias("ffn_gate", config_.mlp_bias, width, layer_.gate_bias);
    bias("ffn_up", config_.mlp_bias, width, layer_.up_bias);
    bias("ffn_down", config_.mlp_bias, config_.hidden, layer_.down_bias);
  }

  void experts() {
    const expert_config& experts = config_.experts;
    matrix("ffn_gate_inp.weight", experts.count, config_.hidden, layer_.router);
    layer_.expert_gate.resize(experts.count);
    layer_.expert_up.resize(experts.count);
    layer_.expert_down.resize(experts.count);
    if (take_.has(prefix_ + "ffn_gate_up_exps.weight"))
      fused_experts();
    else
      for (std::uint32_t e = 0; e < experts.count; ++e) {
        expert("ffn_gate", e, experts.width, config_.hidden, layer_.expert_gate[e]);
        expert("ffn_up", e, experts.width, config_.hidden, layer_.expert_up[e]);
      }
    for (std::uint32_t e = 0; e < experts.count; ++e)
      expert("ffn_down", e, config_.hidden, experts.width, layer_.expert_down[e]);
  }

  void expert(const char* stem, std::uint32_t e, std::uint64_t n, std::uint64_t k, shared_weight& place) {
    if (error_) return;
    if (const auto found = good(take_.expert_matrix(prefix_ + stem, e, n, k))) add({*found}, place);
  }

  /// Gate and up of an expert in one matrix, gate first.
  void fused_experts() {
    const std::uint64_t width = config_.experts.width;
    const auto both = good(take_.stack(prefix_ + "ffn_gate_up_exps.weight", 2 * width, config_.hidden));
    for (std::uint32_t e = 0; both && e < config_.experts.count; ++e) {
      add({rows_of(*both, e, 0, width)}, layer_.expert_gate[e]);
      add({rows_of(*both, e, width, width)}, layer_.expert_up[e]);
    }
  }

  tensor_taker& take_;
  const model_config& config_;
  std::uint32_t index_;
  std::string prefix_;
  bool alone_;
  layer_weights& layer_;
  weight_list& list_;
  std::optional<error> error_;
};

/// Rotary factors that GGUF keeps in tensors: Llama 3's scaling and both sets of LongRoPE.
result<void> read_rope_factors(tensor_taker& take, const model_config& config, model_weights& weights) {
  if (take.is_folder()) return {};
  const std::uint64_t pairs = config.rope.dims / 2;
  const char *one = "rope_freqs.weight", *near = "rope_factors_short.weight",
             *far = "rope_factors_long.weight";
  if (take.has(one)) {
    if (auto read = take.vector(one, pairs, weights.rope_factors); !read) return read;
  } else if (take.has(near) || take.has(far)) {
    if (auto read = take.vector(near, pairs, weights.rope_factors); !read) return read;
    if (auto read = take.vector(far, pairs, weights.long_rope_factors); !read) return read;
    if (config.rope.original_context == 0)
      return take.fail(
          "has tensor '" + std::string(far) + "' but no key rope.scaling.original_context_length");
  }
  if (config.rope_tensors && weights.long_rope_factors.empty())
    return take.fail(
        "key rope.scaling.type asks for longrope, whose tensors '" + std::string(near) + "' and '" + far +
        "' are missing");
  if (!weights.rope_factors.empty() && !config.rope.factors.empty())
    return take.fail("has rotary factors beside a rope.scaling.type of their own", errc::unsupported);
  const char* first = take.has(one) ? one : near;
  for (const auto& [factors, name] :
       {std::pair{&weights.rope_factors, first}, {&weights.long_rope_factors, far}})
    if (std::any_of(factors->begin(), factors->end(), [](float x) { return x <= 0; }))
      return take.fail("tensor '" + std::string(name) + "' has factors that are not positive");
  return {};
}

} // namespace

result<void> list_weights(
    const tensor_source& source, const model_config& config, bool alone, model_weights& weights,
    weight_list& list) {
  tensor_taker take(source, config);
  const auto whole = [&](const char* name, shared_weight& place) -> result<void> {
    const auto tensor = take.matrix(name, config.vocab, config.hidden);
    if (!tensor) return tensor.error();
    list.requests.push_back({{*tensor}, false});
    list.places.push_back(&place);
    return {};
  };
  if (auto listed = whole("token_embd.weight", weights.embedding); !listed) return listed;
  weights.layers.resize(config.layers);
  for (std::uint32_t i = 0; i < config.layers; ++i)
    if (auto listed = layer_lister(take, config, i, alone, weights.layers[i], list).run(); !listed)
      return listed;
  if (auto read = take.norm("output_norm.weight", config.hidden, weights.output_norm); !read) return read;
  if (!config.tied_head)
    if (auto listed = whole("output.weight", weights.head); !listed) return listed;
  if (auto read = read_rope_factors(take, config, weights); !read) return read;
  return take.check_all_taken();
}

} // namespace troupe::models
