// SPDX-License-Identifier: Apache-2.0
// The settings that every architecture has, under both of their names.
#include "models/model_config.hpp"

#include "models/architectures/architecture.hpp"
#include "models/config_reader.hpp"
#include "models/json_document.hpp"
#include "models/text_half.hpp"

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

#include <algorithm>

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

/// A key that must be there, unless the architecture has a default for config.json.
std::uint32_t
number_or_default(config_reader& keys, const config_key& key, std::uint32_t fallback, std::uint32_t high) {
  const bool needed = keys.is_gguf() || fallback == 0;
  return needed ? keys.number(key, 1, high) : keys.number_or(key, fallback, 1, high);
}

void read_widths(config_reader& keys, model_config& config) {
  const config_key epsilon{"attention.layer_norm_rms_epsilon", "rms_norm_eps"};
  const hf_defaults& defaults = config.kind->defaults;
  config.layers = number_or_default(keys, {"block_count", "num_hidden_layers"}, defaults.layers, max_layers);
  config.hidden = number_or_default(keys, {"embedding_length", "hidden_size"}, defaults.hidden, max_width);
  config.intermediate =
      number_or_default(keys, {"feed_forward_length", "intermediate_size"}, defaults.intermediate, max_width);
  config.context =
      number_or_default(keys, {"context_length", "max_position_embeddings"}, defaults.context, max_context);
  const bool needed = keys.is_gguf() || defaults.rms_epsilon == 0;
  config.rms_epsilon = needed ? keys.real(epsilon, 0, 1) : keys.real_or(epsilon, defaults.rms_epsilon, 0, 1);
  config.layer_kinds.resize(config.layers);
}

/// A missing key is the class's own number, null as many as heads; in GGUF a missing key is the latter.
std::uint32_t read_kv_heads(config_reader& keys, const model_config& config) {
  const config_key key{"attention.head_count_kv", "num_key_value_heads"};
  const std::uint32_t own = config.kind->defaults.kv_heads;
  const bool stated = keys.is_gguf() || keys.states(key) || own == 0;
  return keys.number_or(key, stated ? config.heads : own, 1, config.heads);
}

void read_heads(config_reader& keys, model_config& config) {
  const config_key head_dim{"attention.key_length", "head_dim"}, value_dim{"attention.value_length", ""};
  const hf_defaults& defaults = config.kind->defaults;
  config.heads =
      number_or_default(keys, {"attention.head_count", "num_attention_heads"}, defaults.heads, max_heads);
  config.kv_heads = read_kv_heads(keys, config);
  if (config.heads % config.kv_heads != 0)
    keys.fail(
        std::to_string(config.heads) + " attention heads cannot share " + std::to_string(config.kv_heads) +
            " KV heads evenly",
        errc::bad_file);
  const bool implied = keys.is_gguf() || defaults.head_dim == 0;
  config.head_dim =
      keys.number_or(head_dim, implied ? config.hidden / config.heads : defaults.head_dim, 1, max_head_dim);
  const std::uint32_t values = keys.number_or(value_dim, config.head_dim, 1, max_head_dim);
  if (values != config.head_dim)
    keys.refuse(
        value_dim, "is " + std::to_string(values) + " with keys of length " +
                       std::to_string(config.head_dim) + ": only equal lengths are supported");
}

/// Some converters put both halves of a model that reads images into one file. What its other half needs is
/// no part of the text's.
bool read_gguf_vision(const gguf_file& file, config_reader& keys, const architecture& kind) {
  if (kind.hf_wrapper.empty()) return false;
  bool there = false;
  for (const char* half : {"vision", "mm"}) {
    keys.ignore_members({half, ""});
    const std::string prefix = std::string(kind.gguf) + '.' + half + '.';
    for (const gguf_value& value : file.metadata()) there = there || value.key.starts_with(prefix);
  }
  return there;
}

/// The embedding table is the authority on the vocabulary; a stated size must agree.
result<void> read_gguf_vocabulary_size(const gguf_file& file, config_reader& keys, model_config& config) {
  const auto table = file.tensor("token_embd.weight");
  if (!table) return table.error();
  const model_tensor& embedding = **table;
  if (embedding.rank != 2 || embedding.ne[0] != config.hidden || embedding.ne[1] > max_vocab)
    return file.fail(
        "tensor 'token_embd.weight' is " + describe(embedding) + "; a matrix with rows of " +
        std::to_string(config.hidden) + " is needed, at most " + std::to_string(max_vocab) + " of them");
  config.vocab = static_cast<std::uint32_t>(embedding.ne[1]);
  const config_key size{"vocab_size", ""};
  const std::uint32_t stated = keys.number_or(size, config.vocab, 1, max_vocab);
  if (stated != config.vocab)
    keys.refuse(
        size,
        "is " + std::to_string(stated) + ", but token_embd.weight has " + std::to_string(config.vocab) +
            " rows",
        errc::bad_file);
  config.tied_head = file.find_tensor("output.weight") == nullptr;
  return {};
}

/// Keys of GGUF variants whose computation differs from the plain one; their neutral values are fine.
void check_neutral_gguf_keys(config_reader& keys) {
  const config_key causal{"attention.causal", ""}, clamp{"attention.clamp_kqv", ""};
  if (!keys.flag_or(causal, true)) keys.refuse(causal, "asks for a variant that is not supported");
  if (keys.real_or(clamp, 0, 0, 1e9F) != 0) keys.refuse(clamp, "asks for a variant that is not supported");
  keys.ignore({"tensor_data_layout", ""}); // a note of old converters
}

void read_hf_common(config_reader& keys, model_config& config) {
  config.vocab = number_or_default(keys, {"", "vocab_size"}, config.kind->defaults.vocab, max_vocab);
  config.tied_head = keys.flag_or({"", "tie_word_embeddings"}, config.kind->defaults.tied);
  const config_key both_ways{"", "use_bidirectional_attention"};
  if (keys.flag_or(both_ways, false)) keys.refuse(both_ways, "asks for a variant that is not supported");
  keys.ignore_members({"", "quantization_config"}); // read with the tensors
}

/// The class in `architectures`, which must be one.
result<const architecture*> find_kind(const boost::json::object& config, const std::string& name) {
  const auto fail = [&](const std::string& why, errc code) { return error{code, name + ": " + why, {}, 0}; };
  const boost::json::value* list = config.if_contains("architectures");
  const boost::json::array* classes = list == nullptr ? nullptr : list->if_array();
  if (classes == nullptr || classes->size() != 1 || !classes->front().is_string())
    return fail("key 'architectures' must hold one class name", errc::bad_file);
  const std::string_view stated(classes->front().get_string());
  if (const architecture* kind = find_hf_architecture(stated)) return kind;
  std::string known;
  for (const architecture* kind : architectures()) {
    (known += known.empty() ? "" : ", ") += kind->hf_class;
    if (!kind->hf_wrapper.empty()) (known += ", ") += kind->hf_wrapper;
  }
  return fail(
      "architecture '" + for_message(stated) + "' is not supported; supported: " + known, errc::unsupported);
}

} // namespace

std::string supported_architectures() {
  std::string names;
  for (const architecture* kind : architectures())
    if (!kind->gguf.empty()) (names += names.empty() ? "" : ", ") += kind->gguf;
  return names;
}

result<model_config> read_model_config(const gguf_file& file) {
  const auto stated = file.get<std::string_view>("general.architecture");
  if (!stated) return stated.error();
  const architecture* kind = find_gguf_architecture(*stated);
  if (kind == nullptr)
    return file.fail(
        "architecture '" + for_message(*stated) +
            "' is not supported; supported: " + supported_architectures(),
        errc::unsupported);
  const auto name = file.find<std::string_view>("general.name");
  if (!name) return name.error();

  model_config config;
  config.architecture = kind->name;
  config.name = name->value_or(file.name());
  config.kind = kind;
  config_reader keys(make_gguf_source(file, std::string(*stated) + '.'), file.name(), true);
  check_neutral_gguf_keys(keys);
  config.text_half = read_gguf_vision(file, keys, *kind);
  read_widths(keys, config);
  read_heads(keys, config);
  if (keys.failed()) return keys.outcome().error(); // heads and widths are divisors below
  config.rope = read_gguf_rope(keys, {config.head_dim, config.context}, config.rope_tensors);
  config.context = std::max(config.context, config.rope.reach);
  config.rope.pairs = kind->gguf_pairs_adjacent ? kernels::rope_pairs::adjacent : kernels::rope_pairs::halves;
  if (auto read = read_gguf_vocabulary_size(file, keys, config); !read)
    return keys.failed() ? keys.outcome().error() : read.error();
  if (!keys.failed()) kind->configure(keys, config);
  keys.refuse_unread();
  if (auto fine = keys.outcome(); !fine) return fine.error();
  return config;
}

result<model_config> read_model_config(const boost::json::object& json, const std::string& name) {
  const auto half = text_half(json, name);
  if (!half) return half.error();
  const boost::json::object& text = *half ? **half : json;
  const auto kind = find_kind(text, name);
  if (!kind) return kind.error();
  model_config config;
  config.architecture = (*kind)->name;
  config.kind = *kind;
  config.text_half = half->has_value();
  config_reader keys(make_json_source(text), name, false);
  read_widths(keys, config);
  if (keys.failed()) return keys.outcome().error();
  read_heads(keys, config);
  read_hf_common(keys, config);
  if (keys.failed()) return keys.outcome().error();
  const bool by_layer_type = keys.is_object({"", "rope_parameters.full_attention"});
  const hf_defaults& defaults = (*kind)->defaults;
  config.rope = read_hf_rope(
      keys, {config.head_dim, config.context, defaults.rope_base, defaults.original_context},
      by_layer_type ? "full_attention" : "");
  config.context = std::max(config.context, config.rope.reach);
  if (!keys.failed()) (*kind)->configure(keys, config);
  keys.refuse_unread();
  if (auto fine = keys.outcome(); !fine) return fine.error();
  return config;
}

} // namespace troupe::models
