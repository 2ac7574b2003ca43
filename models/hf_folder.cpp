// SPDX-License-Identifier: Apache-2.0
#include "models/hf_folder.hpp"

#include "models/config_reader.hpp"
#include "models/json_document.hpp"
#include "models/text_half.hpp"

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

#include <charconv>
#include <filesystem>
#include <initializer_list>
#include <utility>

namespace troupe::models {

namespace {

constexpr std::uint32_t max_block = 1U << 16; // elements of a scale's block, each way

void read_widened_type(config_reader& keys, folder_format& format) {
  const config_key newer{"", "dtype"}, older{"", "torch_dtype"};
  const std::string type = keys.text_or(keys.has(newer) ? newer : older, "bfloat16");
  if (type == "float32")
    format.widened = ggml_type::f32;
  else if (type == "float16")
    format.widened = ggml_type::f16; // any other: bf16, which has the range of all of them
}

/// The two extents of a scale's block: a list, or "128x128" as compressed-tensors may have it.
void read_block(config_reader& keys, const char* name, folder_format& format) {
  const config_key key{"", name};
  if (!keys.has(key)) return;
  std::vector<std::uint32_t> size;
  if (const std::string text = keys.is_text(key) ? keys.text_or(key, "") : ""; !text.empty()) {
    std::uint32_t rows = 0, columns = 0;
    const char* end = text.data() + text.size();
    const auto [middle, failed] = std::from_chars(text.data(), end, rows);
    if (failed == std::errc{} && middle != end && *middle == 'x' &&
        std::from_chars(middle + 1, end, columns).ptr == end && rows >= 1 && columns >= 1 &&
        rows <= max_block && columns <= max_block)
      size = {rows, columns};
  } else {
    size = keys.numbers(key, 2, 1, max_block);
  }
  if (size.size() != 2) return keys.refuse(key, "must hold two numbers", errc::bad_file);
  format.block_rows = size[0];
  format.block_columns = size[1];
}

/// Keys that only say how the file was made, or what is done to activations and the KV cache, which are not
/// quantised here.
void ignore_all(config_reader& keys, std::initializer_list<const char*> names) {
  for (const char* name : names) keys.ignore({"", name});
}

/// How compressed-tensors stores the weights of one group of layers.
result<void> read_group(const boost::json::object& weights, const std::string& name, folder_format& format) {
  config_reader keys(make_json_source(weights), name, false);
  const config_key bits{"", "num_bits"}, symmetric{"", "symmetric"}, type{"", "type"};
  if (keys.number_or(bits, 8, 1, 64) != 8) keys.refuse(bits, "is not 8; 8-bit weights are supported");
  if (!keys.flag_or(symmetric, true))
    keys.refuse(symmetric, "is false; weights with zero points are not supported");
  if (const std::string of = keys.text_or(type, "int"); of != "int" && of != "float")
    keys.refuse(type, "is '" + for_message(of) + "'; int and float are supported");
  read_block(keys, "block_structure", format);
  // By their shape the scales tell the strategy.
  ignore_all(keys, {"strategy", "group_size", "dynamic", "observer", "actorder", "scale_dtype", "zp_dtype"});
  keys.ignore_members({"", "observer_kwargs"});
  keys.refuse_unread();
  return keys.outcome();
}

result<void>
read_groups(const boost::json::object& quantisation, const std::string& name, folder_format& format) {
  const boost::json::value* groups = quantisation.if_contains("config_groups");
  if (groups == nullptr || !groups->is_object()) return {};
  std::optional<folder_format> first;
  for (const auto& group : groups->get_object()) {
    const std::string where = name + ", " + for_message(group.key());
    if (!group.value().is_object()) return error{errc::bad_file, where + ": must be an object", {}, 0};
    const boost::json::value* weights = group.value().get_object().if_contains("weights");
    if (weights == nullptr || !weights->is_object()) continue; // of activations alone
    folder_format own = format;
    if (auto read = read_group(weights->get_object(), where, own); !read) return read;
    if (first && (first->block_rows != own.block_rows || first->block_columns != own.block_columns))
      return error{errc::unsupported, where + ": its blocks are not those of the group before", {}, 0};
    first = own;
  }
  if (first) format = *first;
  return {};
}

/// The methods whose scales safetensors_folder knows how to lay. What no method here reads is refused: it may
/// change the numbers.
result<void>
read_quantisation(const boost::json::object& quantisation, const std::string& name, folder_format& format) {
  config_reader keys(make_json_source(quantisation), name, false);
  const config_key method_key{"", "quant_method"}, layout_key{"", "format"};
  const std::string method = keys.text_or(method_key, "");
  format.quantised = true;
  ignore_all(keys, {"modules_to_not_convert", "ignored_layers", "ignore"}); // their tensors have no scales
  if (method == "fp8") {
    read_block(keys, "weight_block_size", format);
    ignore_all(keys, {"activation_scheme", "fmt", "scale_fmt", "dequantize"});
  } else if (method == "compressed-tensors") {
    const std::string layout = keys.text_or(layout_key, "");
    if (layout != "float-quantized" && layout != "int-quantized" && layout != "naive-quantized")
      keys.refuse(
          layout_key, "is '" + for_message(layout) +
                          "'; float-quantized, int-quantized and naive-quantized are supported");
    ignore_all(keys, {"global_compression_ratio", "quantization_status", "version"});
    for (const char* object : {"config_groups", "kv_cache_scheme"}) keys.ignore_members({"", object});
    const config_key sparse{"", "sparsity_config.format"};
    if (const std::string of = keys.text_or(sparse, "dense"); of != "dense")
      keys.refuse(sparse, "is '" + for_message(of) + "'; only dense is supported");
  } else if (method == "fbgemm_fp8") {
    ignore_all(keys, {"activation_scale_ub"});
  } else {
    keys.refuse(
        method_key, "is '" + for_message(method) + "'; fp8, fbgemm_fp8 and compressed-tensors are supported");
  }
  keys.refuse_unread();
  if (auto fine = keys.outcome(); !fine) return fine;
  return method == "compressed-tensors" ? read_groups(quantisation, name, format) : result<void>{};
}

/// A number, or the first of a list of them.
std::optional<std::int32_t> bos_of(const boost::json::object& config) {
  const boost::json::value* id = config.if_contains("bos_token_id");
  if (id != nullptr && id->is_array() && !id->get_array().empty()) id = &id->get_array().front();
  if (id == nullptr || !id->is_int64() || !std::in_range<std::int32_t>(id->get_int64())) return std::nullopt;
  return static_cast<std::int32_t>(id->get_int64());
}

result<std::optional<std::int32_t>> read_bos(const boost::json::object& config, const std::string& folder) {
  if (const auto bos = bos_of(config)) return bos;
  const auto generation = read_json_object(folder + "/generation_config.json");
  if (generation) return bos_of(*generation);
  if (generation.error().code == errc::not_found) return std::optional<std::int32_t>();
  return generation.error();
}

} // namespace

result<folder_format> read_folder_format(const boost::json::object& config, const std::string& name) {
  config_reader keys(make_json_source(config), name, false);
  folder_format format;
  read_widened_type(keys, format);
  if (auto fine = keys.outcome(); !fine) return fine.error();
  if (const auto* stated = config.if_contains("quantization_config");
      stated != nullptr && stated->is_object())
    if (auto read = read_quantisation(stated->get_object(), name + ": quantization_config", format); !read)
      return read.error();
  return format;
}

result<hf_folder> hf_folder::open(const std::string& path) {
  const std::string name = path + "/config.json";
  const auto document = read_json_object(name);
  if (!document && document.error().code == errc::not_found)
    return error{
        errc::not_found,
        path +
            ": is a folder without config.json; a model's folder holds that and its weights as .safetensors "
            "files",
        {},
        0};
  if (!document) return document.error();
  const auto half = text_half(*document, name);
  if (!half) return half.error();
  const boost::json::object& text = *half ? **half : *document;
  auto config = read_model_config(*document, name);
  if (!config) return config.error();
  const auto format = read_folder_format(text, name);
  if (!format) return format.error();
  auto tensors = safetensors_folder::open(path, *format);
  if (!tensors) return tensors.error();
  auto folder = std::filesystem::path(path);
  if (!folder.has_filename()) folder = folder.parent_path(); // "folder/"
  config->name = folder.filename().string();
  auto bos = read_bos(text, path);
  if (!bos) return bos.error();
  return hf_folder{std::move(*config), std::move(*tensors), *bos};
}

std::vector<std::string> side_files(const std::string& folder) {
  std::vector<std::string> there;
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
        "chat_template.jinja"}) {
    std::error_code ignored;
    const auto path = std::filesystem::path(folder) / name;
    if (std::filesystem::exists(path, ignored)) there.push_back(path.string());
  }
  return there;
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

} // namespace troupe::models
