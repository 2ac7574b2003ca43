// SPDX-License-Identifier: Apache-2.0
// Loading: which tensors a Llama file must hold, and what becomes of them.
#include "models/model.hpp"

#include "kernels/dense_schemes.hpp"
#include "kernels/kv_range.hpp"
#include "models/vocabulary_gguf.hpp"
#include "models/weight_conversion.hpp"

#include <algorithm>
#include <new>
#include <set>

namespace troupe::models {

namespace {

/// Finds tensors by name, checks their shape, and remembers which were taken.
class tensor_taker {
 public:
  explicit tensor_taker(const gguf_file& file) : file_(file) {}

  /// A matrix [n, k].
  result<const gguf_tensor*> matrix(const std::string& name, std::uint64_t n, std::uint64_t k) {
    const auto found = file_.tensor(name);
    if (!found) return found.error();
    const gguf_tensor& tensor = **found;
    if (tensor.rank != 2 || tensor.ne[0] != k || tensor.ne[1] != n)
      return file_.fail(
          "tensor '" + name + "' is " + describe(tensor) + "; [" + std::to_string(k) + ", " +
          std::to_string(n) + "] is needed");
    taken_.insert(tensor.name);
    return &tensor;
  }

  result<std::vector<float>> vector(const std::string& name, std::uint64_t count) {
    auto numbers = load_vector(file_, name, count);
    if (numbers) taken_.insert(file_.find_tensor(name)->name);
    return numbers;
  }

  bool has(std::string_view name) const { return file_.find_tensor(name) != nullptr; }

  /// A tensor that nobody takes means a computation that is not built (biases, head norms): refuse it.
  result<void> check_all_taken() const {
    for (const gguf_tensor& tensor : file_.tensors())
      if (taken_.find(tensor.name) == taken_.end())
        return file_.fail(
            "tensor '" + std::string(tensor.name) + "' has no place in a llama model as built here",
            errc::unsupported);
    return {};
  }

 private:
  const gguf_file& file_;
  std::set<std::string_view> taken_;
};

/// The requests of a whole model, and where each answer goes.
struct weight_list {
  std::vector<weight_request> requests;
  std::vector<shared_weight*> places;

  void add(std::vector<const gguf_tensor*> parts, shared_weight& place, bool alone = false) {
    requests.push_back({std::move(parts), alone});
    places.push_back(&place);
  }
};

result<void> list_qkv(
    tensor_taker& take, const model_config& config, const std::string& prefix, layer_weights& layer,
    bool alone, weight_list& list) {
  const std::uint64_t q_width = std::uint64_t{config.heads} * config.head_dim;
  const std::uint64_t kv_width = std::uint64_t{config.kv_heads} * config.head_dim;
  const auto q = take.matrix(prefix + "attn_q.weight", q_width, config.hidden);
  if (!q) return q.error();
  const auto k = take.matrix(prefix + "attn_k.weight", kv_width, config.hidden);
  if (!k) return k.error();
  const auto v = take.matrix(prefix + "attn_v.weight", kv_width, config.hidden);
  if (!v) return v.error();
  const std::vector<const gguf_tensor*> parts{*q, *k, *v};
  const bool merged = can_merge(parts);
  layer.qkv.resize(merged ? 1 : 3);
  if (merged) {
    list.add(parts, layer.qkv[0], alone);
  } else {
    for (std::size_t i = 0; i < parts.size(); ++i) list.add({parts[i]}, layer.qkv[i], alone);
  }
  return {};
}

result<void> list_layer(
    tensor_taker& take, const model_config& config, std::uint32_t index, layer_weights& layer, bool alone,
    weight_list& list) {
  const std::string prefix = "blk." + std::to_string(index) + '.';
  auto attention_norm = take.vector(prefix + "attn_norm.weight", config.hidden);
  if (!attention_norm) return attention_norm.error();
  auto ffn_norm = take.vector(prefix + "ffn_norm.weight", config.hidden);
  if (!ffn_norm) return ffn_norm.error();
  layer.attention_norm = std::move(*attention_norm);
  layer.ffn_norm = std::move(*ffn_norm);
  if (auto listed = list_qkv(take, config, prefix, layer, alone, list); !listed) return listed;
  struct {
    const char* suffix;
    std::uint64_t n, k;
    shared_weight& place;
  } const matrices[] = {
      {"attn_output.weight", config.hidden, std::uint64_t{config.heads} * config.head_dim,
       layer.attention_output},
      {"ffn_gate.weight", config.intermediate, config.hidden, layer.gate},
      {"ffn_up.weight", config.intermediate, config.hidden, layer.up},
      {"ffn_down.weight", config.hidden, config.intermediate, layer.down},
  };
  for (const auto& matrix : matrices) {
    const auto tensor = take.matrix(prefix + matrix.suffix, matrix.n, matrix.k);
    if (!tensor) return tensor.error();
    list.add({*tensor}, matrix.place, alone);
  }
  return {};
}

/// `alone`: the matrices of layers, which are converted and freed one by one, get memory of their own.
result<void> list_model(
    const gguf_file& file, const model_config& config, bool alone, model_weights& weights,
    weight_list& list) {
  tensor_taker take(file);
  const auto embedding = take.matrix("token_embd.weight", config.vocab, config.hidden);
  if (!embedding) return embedding.error();
  list.add({*embedding}, weights.embedding);
  weights.layers.resize(config.layers);
  for (std::uint32_t i = 0; i < config.layers; ++i)
    if (auto listed = list_layer(take, config, i, weights.layers[i], alone, list); !listed) return listed;
  auto norm = take.vector("output_norm.weight", config.hidden);
  if (!norm) return norm.error();
  weights.output_norm = std::move(*norm);
  if (!config.tied_head) {
    const auto head = take.matrix("output.weight", config.vocab, config.hidden);
    if (!head) return head.error();
    list.add({*head}, weights.head);
  }
  if (take.has("rope_freqs.weight")) {
    auto factors = take.vector("rope_freqs.weight", config.rope_dims / 2);
    if (!factors) return factors.error();
    if (std::any_of(factors->begin(), factors->end(), [](float x) { return x <= 0; }))
      return file.fail("tensor 'rope_freqs.weight' has factors that are not positive");
    weights.rope_factors = std::move(*factors);
  }
  return take.check_all_taken();
}

/// Converts the matrices of every layer; embedding and head stay as stored.
result<void> convert_layers(const gguf_file& file, model_weights& weights, const std::string& scheme) {
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    layer_weights& layer = weights.layers[i];
    std::vector<std::pair<const char*, shared_weight*>> all{
        {"attn_output", &layer.attention_output},
        {"ffn_gate", &layer.gate},
        {"ffn_up", &layer.up},
        {"ffn_down", &layer.down}};
    static constexpr const char* split[] = {"attn_q", "attn_k", "attn_v"};
    for (std::size_t part = 0; part < layer.qkv.size(); ++part)
      all.emplace_back(layer.qkv.size() == 1 ? "attn_q, attn_k and attn_v" : split[part], &layer.qkv[part]);
    for (const auto& [name, weight] : all) {
      auto converted = convert_weight(**weight, scheme);
      if (!converted)
        return file.fail(
            "layer " + std::to_string(i) + ", " + name + ": " + converted.error().message,
            converted.error().code);
      *weight = std::make_shared<const packed_weight>(std::move(*converted));
    }
  }
  return {};
}

std::uint64_t packed_bytes(const model_weights& weights) {
  std::uint64_t bytes = weights.embedding->data.size();
  if (weights.head != weights.embedding) bytes += weights.head->data.size();
  for (const layer_weights& layer : weights.layers) {
    for (const shared_weight& weight : layer.qkv) bytes += weight->data.size();
    for (const shared_weight& weight : {layer.attention_output, layer.gate, layer.up, layer.down})
      bytes += weight->data.size();
    bytes += (layer.attention_norm.size() + layer.ffn_norm.size()) * sizeof(float);
  }
  return bytes;
}

scheme_finder with_dense_schemes(const scheme_finder& others) {
  return [&others](std::string_view id) -> const troupe_quant_scheme* {
    if (const auto* dense = kernels::find_dense_scheme(id)) return dense;
    return others ? others(id) : nullptr;
  };
}

result<void> load_all_weights(const gguf_file& file, const model_options& options, model& to) {
  weight_list list;
  if (auto listed = list_model(file, to.config, !options.layer_scheme.empty(), to.weights, list); !listed)
    return listed;
  weight_load_options load;
  load.find_scheme = with_dense_schemes(options.find_scheme);
  load.threads = options.threads;
  load.progress = options.progress;
  load.stop = options.stop;
  auto loaded = load_weights(file, list.requests, load);
  if (!loaded) return loaded.error();
  for (std::size_t i = 0; i < loaded->size(); ++i)
    *list.places[i] = std::make_shared<const packed_weight>(std::move((*loaded)[i]));
  if (to.config.tied_head) to.weights.head = to.weights.embedding;
  if (!options.layer_scheme.empty())
    if (auto converted = convert_layers(file, to.weights, options.layer_scheme); !converted) return converted;
  return {};
}

constexpr float f16_largest = 65504;
constexpr float kv_margin =
    8; // other tokens, at other positions, have larger keys and values than the few looked at
constexpr std::uint32_t probe_tokens = 16;

/// The element type that the keys and values of a few tokens call for; see model_options::kv.
result<kernels::kv_type> choose_kv(const model& m, unsigned threads) {
  execution_plan plan = m.plan;
  plan.kv = kernels::kv_type::f32;
  const auto program = build_decoder(m.config, m.weights, plan);
  if (!program) return program.error();
  std::vector<std::int32_t> tokens;
  tokens.push_back(m.vocabulary.bos.value_or(0)); // whose activations are the largest in many models
  const std::uint32_t count = std::min(probe_tokens, m.config.context);
  for (std::uint64_t i = 1; i < count; ++i)
    tokens.push_back(static_cast<std::int32_t>(i * m.config.vocab / count));
  const auto largest = kernels::largest_key_value(**program, tokens, kernels::best_isa(), threads);
  if (!largest) return largest.error();
  return *largest * kv_margin <= f16_largest ? kernels::kv_type::f16 : kernels::kv_type::bf16;
}

/// Everything but the weights.
result<void> read_facts(const gguf_file& file, model& to) {
  to.path = file.name();
  to.file_bytes = file.file_bytes();
  auto config = read_model_config(file);
  if (!config) return config.error();
  to.config = std::move(*config);
  auto vocabulary = read_vocabulary(file);
  if (!vocabulary) return vocabulary.error();
  to.vocabulary = std::move(*vocabulary);
  if (to.vocabulary.tokens.size() > to.config.vocab)
    return file.fail(
        "the tokenizer has " + std::to_string(to.vocabulary.tokens.size()) + " tokens, the model only " +
        std::to_string(to.config.vocab));
  auto chat_template = read_chat_template(file);
  if (!chat_template) return chat_template.error();
  to.chat_template = std::move(*chat_template);
  return {};
}

result<void> load_into(const gguf_file& file, const model_options& options, model& to) {
  if (auto read = read_facts(file, to); !read) return read;
  if (auto loaded = load_all_weights(file, options, to); !loaded) return loaded;

  if (!options.layer_scheme.empty()) to.plan.layer_schemes.assign(to.config.layers, options.layer_scheme);
  if (options.reference) {
    to.plan.kv = kernels::kv_type::f32;
  } else if (options.kv) {
    to.plan.kv = *options.kv;
  } else {
    const auto kv = choose_kv(to, options.threads);
    if (!kv) return kv.error();
    to.plan.kv = *kv;
  }
  auto program = build_decoder(to.config, to.weights, to.plan);
  if (!program) return program.error();
  to.program = std::move(*program);
  to.weight_bytes = packed_bytes(to.weights);
  return {};
}

} // namespace

result<std::shared_ptr<const model>> load_model(const gguf_file& file, const model_options& options) {
  try {
    auto loaded = std::make_shared<model>();
    if (auto fine = load_into(file, options, *loaded); !fine) return fine.error();
    return std::shared_ptr<const model>(std::move(loaded));
  } catch (const std::bad_alloc&) {
    return file.fail("not enough memory to load the model", errc::no_memory);
  }
}

result<void> check_model(const gguf_file& file, const scheme_finder& find_scheme) {
  model facts;
  if (auto read = read_facts(file, facts); !read) return read;
  weight_list list;
  if (auto listed = list_model(file, facts.config, false, facts.weights, list); !listed) return listed;
  return check_weights(file, list.requests, with_dense_schemes(find_scheme));
}

result<std::shared_ptr<const model>> load_model(const std::string& path, const model_options& options) {
  auto file = gguf_file::open(path);
  if (!file) return file.error();
  return load_model(*file, options);
}

} // namespace troupe::models
