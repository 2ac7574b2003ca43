// SPDX-License-Identifier: Apache-2.0
// Reading the hyperparameters of a `llama` GGUF file.
#include "models/model_config.hpp"

#include <cmath>
#include <string_view>

namespace troupe::models {

namespace {

/// What a file may state at most; each far above any model that fits this machine, low enough that products
/// of any three stay in 64 bits.
constexpr std::uint32_t max_layers = 1024;
constexpr std::uint32_t max_width = 1U << 18;
constexpr std::uint32_t max_heads = 1024;
constexpr std::uint32_t max_head_dim = 512;
constexpr std::uint32_t max_context = 1U << 24;
constexpr std::uint32_t max_vocab = 1U << 22;

/// Reads the keys of one architecture.
class key_reader {
 public:
  key_reader(const gguf_file& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}

  std::string key(std::string_view suffix) const { return prefix_ + std::string(suffix); }

  result<std::uint32_t> number(std::string_view suffix, std::uint32_t low, std::uint32_t high) const {
    const auto value = file_.get<std::uint32_t>(key(suffix));
    if (!value) return value.error();
    return in_range(suffix, *value, low, high);
  }
  result<std::uint32_t>
  number_or(std::string_view suffix, std::uint32_t fallback, std::uint32_t low, std::uint32_t high) const {
    const auto value = file_.find<std::uint32_t>(key(suffix));
    if (!value) return value.error();
    return in_range(suffix, value->value_or(fallback), low, high);
  }
  result<float> real_or(std::string_view suffix, float fallback, float low, float high) const {
    const auto value = file_.find<float>(key(suffix));
    if (!value) return value.error();
    const float x = value->value_or(fallback);
    if (x >= low && x <= high) return x;
    return file_.fail(
        "key '" + key(suffix) + "' is " + std::to_string(x) + "; " + std::to_string(low) + ".." +
        std::to_string(high) + " is possible");
  }

 private:
  result<std::uint32_t>
  in_range(std::string_view suffix, std::uint32_t value, std::uint32_t low, std::uint32_t high) const {
    if (value >= low && value <= high) return value;
    return file_.fail(
        "key '" + key(suffix) + "' is " + std::to_string(value) + "; " + std::to_string(low) + ".." +
        std::to_string(high) + " is possible");
  }

  const gguf_file& file_;
  std::string prefix_;
};

result<void> read_shape(const key_reader& keys, model_config& config) {
  const auto layers = keys.number("block_count", 1, max_layers);
  if (!layers) return layers.error();
  const auto hidden = keys.number("embedding_length", 1, max_width);
  if (!hidden) return hidden.error();
  const auto intermediate = keys.number("feed_forward_length", 1, max_width);
  if (!intermediate) return intermediate.error();
  const auto context = keys.number("context_length", 1, max_context);
  if (!context) return context.error();
  const auto epsilon = keys.real_or("attention.layer_norm_rms_epsilon", 1e-5F, 0.0F, 1.0F);
  if (!epsilon) return epsilon.error();
  config.layers = *layers;
  config.hidden = *hidden;
  config.intermediate = *intermediate;
  config.context = *context;
  config.rms_epsilon = *epsilon;
  return {};
}

result<void> read_heads(const gguf_file& file, const key_reader& keys, model_config& config) {
  const auto heads = keys.number("attention.head_count", 1, max_heads);
  if (!heads) return heads.error();
  const auto kv_heads = keys.number_or("attention.head_count_kv", *heads, 1, *heads);
  if (!kv_heads) return kv_heads.error();
  if (*heads % *kv_heads != 0)
    return file.fail(
        std::to_string(*heads) + " attention heads cannot share " + std::to_string(*kv_heads) +
        " KV heads evenly");
  const auto head_dim = keys.number_or("attention.key_length", config.hidden / *heads, 1, max_head_dim);
  if (!head_dim) return head_dim.error();
  const auto value_dim = keys.number_or("attention.value_length", *head_dim, 1, max_head_dim);
  if (!value_dim) return value_dim.error();
  if (*value_dim != *head_dim)
    return file.fail(
        "keys of length " + std::to_string(*head_dim) + " with values of length " +
            std::to_string(*value_dim) + ": only equal lengths are supported",
        errc::unsupported);
  config.heads = *heads;
  config.kv_heads = *kv_heads;
  config.head_dim = *head_dim;
  return {};
}

/// Linear scaling, under its key or the one of older files; 0 is none.
result<float> read_rope_factor(const gguf_file& file, const key_reader& keys) {
  const char* suffix = "rope.scaling.factor";
  if (file.find_value(keys.key(suffix)) == nullptr) suffix = "rope.scale_linear";
  const auto stated = file.find<float>(keys.key(suffix));
  if (stated && stated->value_or(0) == 0) return 1.0F;
  return keys.real_or(suffix, 1.0F, 1e-3F, 1e6F);
}

result<void> read_rope(const gguf_file& file, const key_reader& keys, model_config& config) {
  const auto dims = keys.number_or("rope.dimension_count", config.head_dim, 2, config.head_dim);
  if (!dims) return dims.error();
  if (*dims % 2 != 0) return file.fail("key '" + keys.key("rope.dimension_count") + "' must be even");
  const auto base = keys.real_or("rope.freq_base", 10000.0F, 1.0F, 1e12F);
  if (!base) return base.error();
  const auto scaling = file.find<std::string_view>(keys.key("rope.scaling.type"));
  if (!scaling) return scaling.error();
  const std::string_view type = scaling->value_or("linear"); // as llama.cpp reads a factor that stands alone
  if (type != "none" && type != "linear")
    return file.fail(
        "key '" + keys.key("rope.scaling.type") + "' is '" + std::string(type) +
            "'; none and linear are supported",
        errc::unsupported);
  if (type == "linear") {
    const auto factor = read_rope_factor(file, keys);
    if (!factor) return factor.error();
    config.rope_scale = *factor;
  }
  config.rope_dims = *dims;
  config.rope_base = *base;
  return {};
}

/// The embedding table is the authority on the vocabulary; a stated size must agree.
result<void> read_vocabulary_size(const gguf_file& file, const key_reader& keys, model_config& config) {
  const auto table = file.tensor("token_embd.weight");
  if (!table) return table.error();
  const gguf_tensor& embedding = **table;
  if (embedding.rank != 2 || embedding.ne[0] != config.hidden || embedding.ne[1] > max_vocab)
    return file.fail(
        "tensor 'token_embd.weight' is " + describe(embedding) + "; a matrix with rows of " +
        std::to_string(config.hidden) + " is needed, at most " + std::to_string(max_vocab) + " of them");
  config.vocab = static_cast<std::uint32_t>(embedding.ne[1]);
  const auto stated = keys.number_or("vocab_size", config.vocab, 1, max_vocab);
  if (!stated) return stated.error();
  if (*stated != config.vocab)
    return file.fail(
        "key '" + keys.key("vocab_size") + "' is " + std::to_string(*stated) +
        ", but token_embd.weight has " + std::to_string(config.vocab) + " rows");
  config.tied_head = file.find_tensor("output.weight") == nullptr;
  return {};
}

/// Keys of variants whose computation differs from the plain one.
result<void> refuse_variants(const gguf_file& file, const key_reader& keys) {
  const auto refused = [&](std::string_view suffix) {
    return file.fail(
        "key '" + keys.key(suffix) + "' asks for a variant that is not supported", errc::unsupported);
  };
  for (const char* suffix : {"expert_count", "attention.sliding_window", "attention.layer_indices"}) {
    const auto value = file.find<std::uint32_t>(keys.key(suffix));
    if (!value || value->value_or(0) != 0) return refused(suffix);
  }
  const auto causal = file.find<bool>(keys.key("attention.causal"));
  if (!causal || !causal->value_or(true)) return refused("attention.causal");
  for (const auto& [suffix, plain] :
       {std::pair{"attention.clamp_kqv", 0.0F}, {"rope.scaling.attn_factor", 1.0F}}) {
    const auto value = file.find<float>(keys.key(suffix));
    if (!value || value->value_or(plain) != plain) return refused(suffix);
  }
  for (const char* suffix : {"attention.scale", "logit_scale", "residual_scale", "embedding_scale"})
    if (file.find_value(keys.key(suffix)) != nullptr) return refused(suffix);
  return {};
}

} // namespace

result<model_config> read_model_config(const gguf_file& file) {
  const auto architecture = file.get<std::string_view>("general.architecture");
  if (!architecture) return architecture.error();
  if (*architecture != "llama")
    return file.fail(
        "architecture '" + std::string(architecture->substr(0, 64)) +
            "' is not supported; supported: " + supported_architectures,
        errc::unsupported);
  model_config config;
  config.architecture = *architecture;
  const auto name = file.find<std::string_view>("general.name");
  if (!name) return name.error();
  config.name = name->value_or(file.name());

  const key_reader keys(file, config.architecture + '.');
  if (auto read = refuse_variants(file, keys); !read) return read.error();
  if (auto read = read_shape(keys, config); !read) return read.error();
  if (auto read = read_heads(file, keys, config); !read) return read.error();
  if (auto read = read_rope(file, keys, config); !read) return read.error();
  if (auto read = read_vocabulary_size(file, keys, config); !read) return read.error();
  return config;
}

std::vector<float> rope_inverse_frequencies(const model_config& config, const std::vector<float>& factors) {
  std::vector<float> frequency(config.rope_dims / 2);
  for (std::uint32_t i = 0; i < frequency.size(); ++i) {
    const double exponent = 2.0 * i / config.rope_dims;
    const double factor = factors.empty() ? 1.0 : static_cast<double>(factors[i]);
    frequency[i] = static_cast<float>(
        1.0 / (static_cast<double>(config.rope_scale) *
               std::pow(static_cast<double>(config.rope_base), exponent) * factor));
  }
  return frequency;
}

} // namespace troupe::models
