// SPDX-License-Identifier: Apache-2.0
// A Hugging Face folder of a Llama of one layer, every part of which a test may bend.
#pragma once

#include "tests/models/gguf_builder.hpp"
#include "tests/models/safetensors_builder.hpp"

#include <boost/json.hpp>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::models::test {

/// A folder of its own, gone with the object.
class temporary_folder {
 public:
  explicit temporary_folder(std::string_view stem = "troupe_folder") {
    static int made = 0;
    path_ = std::filesystem::temp_directory_path() /
            (std::string(stem) + '_' + std::to_string(::getpid()) + '_' + std::to_string(made++));
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string path() const { return path_.string(); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return file(name);
  }

 private:
  std::filesystem::path path_;
};

/// One tensor as the file states it; its bytes are as many as its type and shape ask for.
struct stated_tensor {
  std::string type;  ///< "F32"
  std::string shape; ///< "8,4"
  std::string bytes;
};

inline stated_tensor f32_tensor(const std::vector<std::uint64_t>& shape, const std::vector<float>& numbers) {
  stated_tensor tensor{"F32", {}, {}};
  for (const std::uint64_t extent : shape)
    tensor.shape += (tensor.shape.empty() ? "" : ",") + std::to_string(extent);
  for (const float x : numbers) tensor.bytes += raw(x);
  return tensor;
}

/// 2 heads of 4, one KV head, 32 tokens, tied head; the numbers are small and regular.
struct tiny_folder {
  boost::json::object config{
      {"architectures", boost::json::array{"LlamaForCausalLM"}},
      {"model_type", "llama"},
      {"vocab_size", 32},
      {"num_hidden_layers", 1},
      {"num_attention_heads", 2},
      {"num_key_value_heads", 1},
      {"head_dim", 4},
      {"max_position_embeddings", 64},
      {"rms_norm_eps", 1e-5},
      {"tie_word_embeddings", true},
      {"torch_dtype", "float32"}};
  std::map<std::string, std::vector<std::uint64_t>> shapes;
  std::map<std::string, stated_tensor> tensors;

  explicit tiny_folder(std::uint64_t hidden = 8, std::uint64_t intermediate = 12) {
    config["hidden_size"] = static_cast<std::int64_t>(hidden);
    config["intermediate_size"] = static_cast<std::int64_t>(intermediate);
    const std::string layer = "model.layers.0.";
    shapes = {
        {"model.embed_tokens.weight", {32, hidden}},
        {"model.norm.weight", {hidden}},
        {layer + "input_layernorm.weight", {hidden}},
        {layer + "post_attention_layernorm.weight", {hidden}},
        {layer + "self_attn.q_proj.weight", {8, hidden}},
        {layer + "self_attn.k_proj.weight", {4, hidden}},
        {layer + "self_attn.v_proj.weight", {4, hidden}},
        {layer + "self_attn.o_proj.weight", {hidden, 8}},
        {layer + "mlp.gate_proj.weight", {intermediate, hidden}},
        {layer + "mlp.up_proj.weight", {intermediate, hidden}},
        {layer + "mlp.down_proj.weight", {hidden, intermediate}}};
    for (const auto& [name, shape] : shapes) {
      std::uint64_t elements = 1;
      for (const std::uint64_t extent : shape) elements *= extent;
      std::vector<float> numbers(elements);
      for (std::uint64_t i = 0; i < elements; ++i)
        numbers[i] = 0.02F * static_cast<float>(i * 7 % 17) - 0.13F;
      tensors[name] = f32_tensor(shape, numbers);
    }
  }

  void write(const temporary_folder& to) const {
    safetensors_builder file;
    for (const auto& [name, tensor] : tensors) file.add(name, tensor.type, tensor.shape, tensor.bytes);
    to.write("model.safetensors", file.bytes());
    to.write("config.json", boost::json::serialize(config));
  }
};

} // namespace troupe::models::test
