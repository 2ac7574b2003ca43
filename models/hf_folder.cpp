// SPDX-License-Identifier: Apache-2.0
#include "models/hf_folder.hpp"

#include "models/config_reader.hpp"
#include "models/json_document.hpp"
#include "models/text_half.hpp"

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

#include <filesystem>
#include <utility>

namespace troupe::models {

namespace {

constexpr const char* quantisation = "quantization_config";

config_key quantisation_key(const char* name) {
  return {"", std::string(quantisation) + '.' + name};
}

void read_widened_type(config_reader& keys, folder_format& format) {
  const config_key newer{"", "dtype"}, older{"", "torch_dtype"};
  const std::string type = keys.text_or(keys.has(newer) ? newer : older, "bfloat16");
  if (type == "float32")
    format.widened = ggml_type::f32;
  else if (type == "float16")
    format.widened = ggml_type::f16; // any other: bf16, which has the range of all of them
}

/// The methods whose scales safetensors_folder knows how to lay.
void read_quantisation(config_reader& keys, folder_format& format) {
  const config_key method_key = quantisation_key("quant_method"), layout_key = quantisation_key("format");
  const std::string method = keys.text_or(method_key, "");
  format.quantised = true;
  if (method == "fp8") {
    const config_key block = quantisation_key("weight_block_size");
    const auto size = keys.numbers(block, 2, 1, 1U << 16);
    if (size.size() == 1) keys.refuse(block, "must hold two numbers", errc::bad_file);
    if (size.size() != 2) return;
    format.block_rows = size[0];
    format.block_columns = size[1];
  } else if (method == "compressed-tensors") {
    const std::string layout = keys.text_or(layout_key, "");
    if (layout != "float-quantized" && layout != "int-quantized" && layout != "naive-quantized")
      keys.refuse(
          layout_key, "is '" + for_message(layout) +
                          "'; float-quantized, int-quantized and naive-quantized are supported");
  } else if (method != "fbgemm_fp8") {
    keys.refuse(
        method_key, "is '" + for_message(method) + "'; fp8, fbgemm_fp8 and compressed-tensors are supported");
  }
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
  if (keys.is_object({"", quantisation})) read_quantisation(keys, format);
  if (auto fine = keys.outcome(); !fine) return fine.error();
  return format;
}

result<hf_folder> hf_folder::open(const std::string& path) {
  const std::string name = path + "/config.json";
  const auto document = read_json_object(name);
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
