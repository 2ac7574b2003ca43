// SPDX-License-Identifier: Apache-2.0
// A whole Llama of one layer, or a model like it, as GGUF bytes, in one file or in parts.
#pragma once

#include "models/ggml_type.hpp"
#include "tests/models/gguf_builder.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace troupe::models::test {

/// Every part of the file may be left out or bent.
struct llama_file {
  std::map<std::string, std::uint32_t> numbers{
      {"llama.block_count", 1},           {"llama.context_length", 64},
      {"llama.embedding_length", 8},      {"llama.feed_forward_length", 12},
      {"llama.attention.head_count", 2},  {"llama.attention.head_count_kv", 1},
      {"tokenizer.ggml.bos_token_id", 0}, {"tokenizer.ggml.eos_token_id", 1}};
  std::map<std::string, float> reals{{"llama.attention.layer_norm_rms_epsilon", 1e-5F}};
  std::map<std::string, bool> flags;
  std::map<std::string, std::string> texts{
      {"general.architecture", "llama"}, {"tokenizer.ggml.model", "gpt2"}, {"tokenizer.ggml.pre", "gpt-2"}};
  std::map<std::string, std::vector<std::uint64_t>> tensors{
      {"token_embd.weight", {8, 3}},      {"output_norm.weight", {8}},
      {"blk.0.attn_norm.weight", {8}},    {"blk.0.ffn_norm.weight", {8}},
      {"blk.0.attn_q.weight", {8, 8}},    {"blk.0.attn_k.weight", {8, 4}},
      {"blk.0.attn_v.weight", {8, 4}},    {"blk.0.attn_output.weight", {8, 8}},
      {"blk.0.ffn_gate.weight", {8, 12}}, {"blk.0.ffn_up.weight", {8, 12}},
      {"blk.0.ffn_down.weight", {12, 8}}};
  std::map<std::string, float> scales;         ///< of tensors whose numbers are larger than usual
  std::map<std::string, ggml_type> types;      ///< of tensors that are not F32; their blocks are all zero
  std::map<std::string, std::string> contents; ///< bytes of tensors, as `types` has them
  std::vector<std::string> tokens{"a", "b", "c"};

  std::string bytes() const { return parts(1).front(); }

  /// As llama-gguf-split writes them: the metadata in the first, the tensors in turn.
  std::vector<std::string> parts(std::uint16_t count) const {
    std::vector<gguf_builder> files(count);
    add_metadata(files.front());
    for (std::uint16_t i = 0; count > 1 && i < count; ++i)
      files[i].value("split.no", 2, raw(i)).value("split.count", 2, raw(count));
    std::size_t next = 0;
    for (const auto& [name, ne] : tensors) add_tensor(files[next++ % count], name, ne);
    std::vector<std::string> all;
    for (const gguf_builder& file : files) all.push_back(file.bytes());
    return all;
  }

 private:
  void add_metadata(gguf_builder& file) const {
    // "llama.x" is "phi3.x" in a file of that architecture.
    const auto named = [&](const std::string& key) {
      return key.starts_with("llama.") ? texts.at("general.architecture") + key.substr(5) : key;
    };
    for (const auto& [key, value] : texts) file.text(named(key), value);
    for (const auto& [key, value] : numbers) file.u32(named(key), value);
    for (const auto& [key, value] : reals) file.value(named(key), 6, raw(value));
    for (const auto& [key, value] : flags) file.value(named(key), 7, std::string(1, value ? '\1' : '\0'));
    std::string encoded;
    for (const auto& token : tokens) encoded += raw_string(token);
    file.array("tokenizer.ggml.tokens", 8, tokens.size(), encoded);
    file.array("tokenizer.ggml.merges", 8, 0, "");
  }

  void add_tensor(gguf_builder& file, const std::string& name, const std::vector<std::uint64_t>& ne) const {
    std::uint64_t elements = 1;
    for (const std::uint64_t extent : ne) elements *= extent;
    if (contents.contains(name)) {
      file.add(name, ne, types.contains(name) ? types.at(name) : ggml_type::f32, contents.at(name));
      return;
    }
    if (types.contains(name)) {
      const ggml_type_info& info = type_info(types.at(name));
      file.add(name, ne, info.type, std::string(elements / info.block_elements * info.block_bytes, '\0'));
      return;
    }
    const float scale = scales.contains(name) ? scales.at(name) : 0.01F;
    std::string data;
    for (std::uint64_t i = 0; i < elements; ++i) data += raw(scale * static_cast<float>(i % 17));
    file.add(name, ne, ggml_type::f32, data);
  }
};

} // namespace troupe::models::test
