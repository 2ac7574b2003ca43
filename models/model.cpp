// SPDX-License-Identifier: Apache-2.0
// Loading: from an open file to packed weights and a program.
#include "models/model.hpp"

#include "kernels/dense_schemes.hpp"
#include "kernels/kv_range.hpp"
#include "models/layer_groups.hpp"
#include "models/model_tensors.hpp"
#include "models/vocabulary_gguf.hpp"
#include "models/weight_conversion.hpp"

#include <algorithm>
#include <new>
#include <stop_token>

namespace troupe::models {

namespace {

/// Converts the matrices of every layer; embedding and head stay as stored.
result<void> convert_layers(const tensor_source& source, model_weights& weights, const std::string& scheme) {
  std::optional<error> wrong;
  for (std::size_t i = 0; i < weights.layers.size(); ++i)
    for_matrices(weights.layers[i], [&](const char* name, shared_weight& weight) {
      if (wrong) return;
      auto converted = convert_weight(*weight, scheme);
      if (converted)
        weight = std::make_shared<const packed_weight>(std::move(*converted));
      else
        wrong = source.fail(
            "layer " + std::to_string(i) + ", " + name + ": " + converted.error().message,
            converted.error().code);
    });
  if (wrong) return std::move(*wrong);
  return {};
}

std::uint64_t packed_bytes(const model_weights& weights) {
  std::uint64_t bytes = weights.embedding->data.size();
  if (weights.head != weights.embedding) bytes += weights.head->data.size();
  for (const layer_weights& layer : weights.layers) {
    for_matrices(layer, [&](const char*, const shared_weight& weight) { bytes += weight->data.size(); });
    for (const auto* numbers :
         {&layer.attention_norm, &layer.qkv_bias, &layer.q_norm, &layer.k_norm, &layer.output_bias,
          &layer.post_attention_norm, &layer.ffn_norm, &layer.gate_bias, &layer.up_bias, &layer.down_bias,
          &layer.post_ffn_norm})
      bytes += numbers->size() * sizeof(float);
  }
  return bytes;
}

scheme_finder with_dense_schemes(const scheme_finder& others) {
  return [&others](std::string_view id) -> const troupe_quant_scheme* {
    if (const auto* dense = kernels::find_dense_scheme(id)) return dense;
    return others ? others(id) : nullptr;
  };
}

load_forecast forecast_of(const model_config& config, std::uint64_t weight_bytes) {
  const std::uint64_t values = std::uint64_t{2} * config.layers * config.kv_heads * config.head_dim;
  const layer_groups groups = group_layers(config);
  const kernels::kv_layout kv{
      32, groups.layers, config.kv_heads, config.head_dim, kernels::kv_type::f16, groups.windows};
  return {weight_bytes, values * 2, config.context, kv.groups(), kv.bytes_per_block()};
}

result<void> load_all_weights(const tensor_source& source, const model_options& options, model& to) {
  weight_list list;
  if (auto listed = list_weights(source, to.config, !options.layer_scheme.empty(), to.weights, list); !listed)
    return listed;
  weight_load_options load;
  load.find_scheme = with_dense_schemes(options.find_scheme);
  load.threads = options.threads;
  load.progress = options.progress;
  load.stop = options.stop;
  if (options.forecast)
    load.forecast = [&](std::uint64_t packed) { return options.forecast(forecast_of(to.config, packed)); };
  auto loaded = load_weights(source, list.requests, load);
  if (!loaded) return loaded.error();
  for (std::size_t i = 0; i < loaded->size(); ++i)
    *list.places[i] = std::make_shared<const packed_weight>(std::move((*loaded)[i]));
  if (to.config.tied_head) to.weights.head = to.weights.embedding;
  if (!options.layer_scheme.empty())
    if (auto converted = convert_layers(source, to.weights, options.layer_scheme); !converted)
      return converted;
  return {};
}

constexpr float f16_largest = 65504;
constexpr float kv_margin =
    8; // other tokens, at other positions, have larger keys and values than the few looked at
constexpr std::uint32_t probe_tokens = 16;

/// The element type that the keys and values of a few tokens call for; see model_options::kv.
result<kernels::kv_type> choose_kv(const model& m, unsigned threads, const std::stop_token& stop) {
  execution_plan plan = m.plan;
  plan.kv = kernels::kv_type::f32;
  const auto program = build_decoder(m.config, m.weights, plan);
  if (!program) return program.error();
  std::vector<std::int32_t> tokens;
  tokens.push_back(m.bos.value_or(0)); // whose activations are the largest in many models
  const std::uint32_t count = std::min(probe_tokens, m.config.context);
  for (std::uint64_t i = 1; i < count; ++i)
    tokens.push_back(static_cast<std::int32_t>(i * m.config.vocab / count));
  const auto largest = kernels::largest_key_value(**program, tokens, kernels::best_isa(), threads, stop);
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
  auto chat_template = read_chat_template(file);
  if (!chat_template) return chat_template.error();
  to.chat_template = std::move(*chat_template);
  return {};
}

/// Everything but the text side, which a folder keeps in files of its own.
void read_folder_facts(const hf_folder& folder, model& to) {
  to.path = folder.tensors.name();
  to.file_bytes = folder.tensors.file_bytes();
  to.config = folder.config;
}

/// The weights and the program; the facts have been read.
result<void>
load_into(const tensor_source& source, const model_options& options, std::optional<token_id> bos, model& to) {
  if (bos && *bos >= 0 && static_cast<std::uint32_t>(*bos) < to.config.vocab) to.bos = bos;
  if (auto loaded = load_all_weights(source, options, to); !loaded) return loaded;

  if (!options.layer_scheme.empty()) to.plan.layer_schemes.assign(to.config.layers, options.layer_scheme);
  if (options.reference) {
    to.plan.kv = kernels::kv_type::f32;
  } else if (options.kv) {
    to.plan.kv = *options.kv;
  } else {
    const auto kv = choose_kv(to, options.threads, options.stop);
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
    if (auto read = read_facts(file, *loaded); !read) return read.error();
    if (auto fine = load_into(file, options, loaded->vocabulary.bos, *loaded); !fine) return fine.error();
    return std::shared_ptr<const model>(std::move(loaded));
  } catch (const std::bad_alloc&) {
    return file.fail("not enough memory to load the model", errc::no_memory);
  }
}

result<std::shared_ptr<const model>> load_model(const hf_folder& folder, const model_options& options) {
  try {
    auto loaded = std::make_shared<model>();
    read_folder_facts(folder, *loaded);
    const auto bos = options.bos ? options.bos : folder.bos;
    if (auto fine = load_into(folder.tensors, options, bos, *loaded); !fine) return fine.error();
    return std::shared_ptr<const model>(std::move(loaded));
  } catch (const std::bad_alloc&) {
    return folder.tensors.fail("not enough memory to load the model", errc::no_memory);
  }
}

namespace {

result<load_forecast>
check_source(const tensor_source& source, const model_config& config, const scheme_finder& find_scheme) {
  model_weights weights;
  weight_list list;
  if (auto listed = list_weights(source, config, false, weights, list); !listed) return listed.error();
  const auto packed = check_weights(source, list.requests, with_dense_schemes(find_scheme));
  if (!packed) return packed.error();
  return forecast_of(config, *packed);
}

} // namespace

result<load_forecast> check_model(const gguf_file& file, const scheme_finder& find_scheme) {
  model facts;
  if (auto read = read_facts(file, facts); !read) return read.error();
  return check_source(file, facts.config, find_scheme);
}

result<load_forecast> check_folder(const hf_folder& folder) {
  return check_source(folder.tensors, folder.config, {});
}

result<std::shared_ptr<const model>> load_model(const std::string& path, const model_options& options) {
  if (is_folder(path)) {
    const auto folder = hf_folder::open(path);
    if (!folder) return folder.error();
    return load_model(*folder, options);
  }
  auto file = gguf_file::open(path);
  if (!file) return file.error();
  return load_model(*file, options);
}

} // namespace troupe::models
