// SPDX-License-Identifier: Apache-2.0
// The same numbers stored in other ways give the same logits: 8-bit weights with scales, quantised and fused
// GGUF tensors, names of a model around the text half.
#include "kernels/half.hpp"
#include "models/float8.hpp"
#include "models/hf_folder.hpp"
#include "models/json_document.hpp"
#include "models/safetensors_file.hpp"
#include "tests/models/llama_file.hpp"
#include "tests/models/model_runs.hpp"
#include "tests/models/shared_files.hpp"
#include "tests/models/tiny_folder.hpp"

#include <boost/json.hpp>
#include <boost/test/unit_test.hpp>

#include <cstring>
#include <functional>
#include <set>

using namespace troupe;
using namespace troupe::models;
using namespace troupe::models::test;

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

const std::string data_folder = TROUPE_TEST_DATA;
const std::vector<std::int32_t> ids{1, 2, 0, 2, 1, 1, 0, 2, 2, 0, 1, 2};

rows logits_at(const fs::path& path, kernels::isa level, const std::vector<std::int32_t>& tokens = ids) {
  const auto m = load(path);
  const auto backend = backend_of(*m, level);
  return logits_of(*backend, *m, tokens, {5, 1, 1000});
}

/// At every level, to what another order of the same sums may differ by.
void check_same(const fs::path& a, const fs::path& b, double tolerance = 1e-4) {
  for (const kernels::isa level : levels()) BOOST_TEST_CONTEXT(kernels::isa_name(level)) {
      const rows left = logits_at(a, level), right = logits_at(b, level);
      double largest = 0;
      for (const auto& row : left)
        for (const float x : row) largest = std::max(largest, std::abs(static_cast<double>(x)));
      BOOST_TEST(largest > 0.01); // there is something to compare
      BOOST_TEST(largest_difference(left, right) < tolerance * std::max(largest, 1.0));
    }
}

// ---- 8-bit folders

enum class scales_of { blocks, rows, all };

/// `name` as codes with scales, and in `plain` the numbers that they stand for.
void store_in_8_bits(
    tiny_folder& narrow, tiny_folder& plain, const std::string& name, const std::string& type,
    scales_of how) {
  const std::uint64_t n = narrow.shapes.at(name)[0], k = narrow.shapes.at(name)[1];
  const std::uint64_t block_columns = (k + 127) / 128;
  std::string codes;
  std::vector<float> scales, numbers;
  const std::uint64_t count = how == scales_of::all    ? 1
                              : how == scales_of::rows ? n
                                                       : (n + 127) / 128 * block_columns;
  for (std::uint64_t i = 0; i < count; ++i) scales.push_back(0.001F * static_cast<float>(i % 13 + 1));
  for (std::uint64_t row = 0; row < n; ++row)
    for (std::uint64_t column = 0; column < k; ++column) {
      auto code = static_cast<std::uint8_t>(row * 31 + column * 7);
      if (type == "F8_E4M3" && (code & 0x7F) > 0x58) code &= 0xC7; // no NaN, at most 16
      if (type == "F8_E5M2" && (code & 0x7F) > 0x4C) code &= 0xC3;
      const float value = type == "I8"        ? static_cast<float>(static_cast<std::int8_t>(code))
                          : type == "F8_E4M3" ? float8_e4m3[code]
                                              : float8_e5m2[code];
      const std::uint64_t scale = how == scales_of::all    ? 0
                                  : how == scales_of::rows ? row
                                                           : row / 128 * block_columns + column / 128;
      codes += static_cast<char>(code);
      numbers.push_back(value * scales[scale]);
    }
  narrow.tensors[name] = {type, std::to_string(n) + ',' + std::to_string(k), codes};
  const std::vector<std::uint64_t> shape = how == scales_of::all ? std::vector<std::uint64_t>{1}
                                           : how == scales_of::rows
                                               ? std::vector<std::uint64_t>{n, 1}
                                               : std::vector<std::uint64_t>{(n + 127) / 128, block_columns};
  narrow.tensors[name + (how == scales_of::blocks ? "_scale_inv" : "_scale")] = f32_tensor(shape, scales);
  plain.tensors[name] = f32_tensor({n, k}, numbers);
}

void check_8_bits(const std::string& type, scales_of how, const json::object& quantisation) {
  tiny_folder narrow(160, 200), plain(160, 200); // several blocks of 128 each way, the last ones cut
  for (const auto& [name, shape] : plain.shapes)
    if (shape.size() == 2 && name.find("_proj.") != std::string::npos)
      store_in_8_bits(narrow, plain, name, type, how);
  narrow.config["quantization_config"] = quantisation;
  const temporary_folder a, b;
  narrow.write(a);
  plain.write(b);
  BOOST_TEST_CONTEXT(type) {
    for (const kernels::isa level : levels())
      BOOST_TEST(largest_difference(logits_at(a.path(), level), logits_at(b.path(), level)) == 0);
    const auto checked = check_folder(hf_folder::open(a.path()).value());
    BOOST_TEST(checked.has_value(), (checked ? "" : checked.error().message));
  }
}

// ---- quantised GGUF tensors

/// Blocks of a type and the numbers that the gguf package says they stand for
/// (tools/tiny_models/make_blocks.py), without those of extreme scale.
struct known_blocks {
  ggml_type type;
  std::vector<std::string> blocks;
  std::vector<std::vector<float>> values;
};

known_blocks blocks_of(const std::string& name, std::uint32_t number) {
  const ggml_type_info& info = *find_ggml_type(number);
  const std::string packed = read_file(data_folder + "/ggml_blocks/" + name + ".blocks");
  const std::string floats = read_file(data_folder + "/ggml_blocks/" + name + ".f32");
  known_blocks all{info.type, {}, {}};
  for (std::size_t i = 0; i < packed.size() / info.block_bytes; ++i) {
    std::vector<float> values(info.block_elements);
    std::memcpy(
        values.data(), floats.data() + i * values.size() * sizeof(float), values.size() * sizeof(float));
    const bool moderate = std::all_of(values.begin(), values.end(), [](float x) { return std::abs(x) < 8; });
    const bool some = std::any_of(values.begin(), values.end(), [](float x) { return std::abs(x) > 1e-3F; });
    if (!moderate || !some) continue;
    all.blocks.push_back(packed.substr(i * info.block_bytes, info.block_bytes));
    all.values.push_back(std::move(values));
  }
  BOOST_REQUIRE(!all.blocks.empty());
  return all;
}

/// `name` as blocks, drawn in turn, and in `plain` as the same numbers in F32.
void store_in_blocks(
    llama_file& packed, llama_file& plain, const std::string& name, const known_blocks& from) {
  std::uint64_t elements = 1;
  for (const std::uint64_t extent : packed.tensors.at(name)) elements *= extent;
  std::string bytes, floats;
  std::size_t turn = name.size();
  for (std::uint64_t done = 0; done < elements; done += from.values.front().size()) {
    turn = (turn * 5 + 3) % 1009;
    bytes += from.blocks[turn % from.blocks.size()];
    for (const float x : from.values[turn % from.blocks.size()]) floats += raw(x);
  }
  packed.types[name] = from.type;
  packed.contents[name] = bytes;
  plain.contents[name] = floats;
}

/// A model 256 wide, so that a row is a whole block of every type.
llama_file wide_file() {
  llama_file file;
  file.numbers["llama.embedding_length"] = file.numbers["llama.feed_forward_length"] = 256;
  file.numbers["llama.attention.key_length"] = file.numbers["llama.attention.value_length"] = 32;
  file.tensors = {{"token_embd.weight", {256, 3}},       {"output_norm.weight", {256}},
                  {"blk.0.attn_norm.weight", {256}},     {"blk.0.ffn_norm.weight", {256}},
                  {"blk.0.attn_q.weight", {256, 64}},    {"blk.0.attn_k.weight", {256, 32}},
                  {"blk.0.attn_v.weight", {256, 32}},    {"blk.0.attn_output.weight", {64, 256}},
                  {"blk.0.ffn_gate.weight", {256, 256}}, {"blk.0.ffn_up.weight", {256, 256}},
                  {"blk.0.ffn_down.weight", {256, 256}}};
  for (const char* norm : {"output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"})
    for (int i = 0; i < 256; ++i) file.contents[norm] += raw(0.05F);
  return file;
}

void with_experts(llama_file& file, std::uint64_t count) {
  file.numbers["llama.expert_count"] = static_cast<std::uint32_t>(count);
  file.numbers["llama.expert_used_count"] = 2;
  for (const char* name : {"blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight"})
    file.tensors.erase(name);
  const std::uint64_t width = file.numbers["llama.embedding_length"],
                      inner = file.numbers["llama.feed_forward_length"];
  file.tensors["blk.0.ffn_gate_inp.weight"] = {width, count};
  file.tensors["blk.0.ffn_gate_exps.weight"] = {width, inner, count};
  file.tensors["blk.0.ffn_up_exps.weight"] = {width, inner, count};
  file.tensors["blk.0.ffn_down_exps.weight"] = {inner, width, count};
}

void check_same_files(const llama_file& a, const llama_file& b) {
  const temporary_folder disk;
  check_same(disk.write("a.gguf", a.bytes()), disk.write("b.gguf", b.bytes()));
}

// ---- text halves

/// The fixture `from` with its tensors renamed and another config.json.
void write_renamed(
    const temporary_folder& to, const fs::path& from, const json::object& config,
    const std::function<std::string(const std::string&)>& renamed) {
  safetensors_builder file;
  for (const auto& entry : fs::directory_iterator(from)) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto part = safetensors_file::open(entry.path().string());
    BOOST_REQUIRE_MESSAGE(part, part.error().message);
    for (const safetensors_entry& tensor : part->entries()) {
      std::string shape;
      for (const std::uint64_t extent : tensor.shape)
        shape += (shape.empty() ? "" : ",") + std::to_string(extent);
      file.add(
          renamed(tensor.name), type_name(tensor.type), shape,
          {reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size()});
    }
  }
  file.add("vision_tower.x.weight", "I64", "1", std::string(8, '\1'));
  to.write("model.safetensors", file.bytes());
  to.write("config.json", json::serialize(config));
}

const std::vector<std::int32_t> long_ids = [] {
  std::vector<std::int32_t> made;
  for (std::int32_t i = 0; i < 40; ++i) made.push_back(3 + i * 11 % 120); // beyond the windows of 16
  return made;
}();

double difference(const std::string& a, const std::string& b) {
  return largest_difference(
      logits_at(a, kernels::best_isa(), long_ids), logits_at(b, kernels::best_isa(), long_ids));
}

} // namespace

BOOST_AUTO_TEST_SUITE(stored_forms)

BOOST_AUTO_TEST_CASE(folders_of_8_bit_weights_give_the_logits_of_their_numbers) {
  const json::object fp8{{"quant_method", "fp8"}, {"weight_block_size", json::array{128, 128}}};
  check_8_bits("F8_E4M3", scales_of::blocks, fp8);
  check_8_bits("F8_E5M2", scales_of::blocks, fp8);
  const json::object floats{{"quant_method", "compressed-tensors"}, {"format", "float-quantized"}};
  check_8_bits("F8_E4M3", scales_of::rows, floats);
  check_8_bits("F8_E4M3", scales_of::all, floats);
  check_8_bits("I8", scales_of::rows, {{"quant_method", "compressed-tensors"}, {"format", "int-quantized"}});
}

BOOST_AUTO_TEST_CASE(quantised_experts_give_the_logits_of_their_numbers) {
  llama_file packed = wide_file();
  with_experts(packed, 4);
  llama_file plain = packed;
  store_in_blocks(packed, plain, "blk.0.ffn_gate_exps.weight", blocks_of("Q8_0", 8));
  store_in_blocks(packed, plain, "blk.0.ffn_up_exps.weight", blocks_of("Q4_K", 12));
  store_in_blocks(packed, plain, "blk.0.ffn_down_exps.weight", blocks_of("Q4_K", 12));
  check_same_files(packed, plain);
}

BOOST_AUTO_TEST_CASE(a_tensor_for_every_expert_is_the_same_as_one_for_all) {
  llama_file stacked = wide_file();
  with_experts(stacked, 4);
  llama_file single = stacked;
  for (const char* name : {"ffn_gate", "ffn_up", "ffn_down"}) {
    const std::string stem = std::string("blk.0.") + name;
    single.tensors.erase(stem + "_exps.weight");
    for (int e = 0; e < 4; ++e) {
      const std::string own = stem + '.' + std::to_string(e) + ".weight";
      single.tensors[own] = {256, 256};
      for (int i = 0; i < 256 * 256; ++i)
        single.contents[own] += raw(0.01F * static_cast<float>((i * (e + 2)) % 13 - 6));
      stacked.contents[stem + "_exps.weight"] += single.contents[own];
    }
  }
  check_same_files(single, stacked);
}

BOOST_AUTO_TEST_CASE(gate_and_up_of_all_experts_in_one_tensor_are_the_same_as_in_two) {
  llama_file split = wide_file();
  with_experts(split, 4);
  llama_file fused = split;
  fused.tensors.erase("blk.0.ffn_gate_exps.weight");
  fused.tensors.erase("blk.0.ffn_up_exps.weight");
  fused.tensors["blk.0.ffn_gate_up_exps.weight"] = {256, 512, 4};
  std::string gate, up, both;
  for (int e = 0; e < 4; ++e) { // an expert's gate, then its up
    std::string of_gate, of_up;
    for (int i = 0; i < 256 * 256; ++i) {
      of_gate += raw(0.01F * static_cast<float>((i + e) % 13 - 6));
      of_up += raw(0.01F * static_cast<float>((i * 3 + e) % 11 - 5));
    }
    gate += of_gate;
    up += of_up;
    both += of_gate + of_up;
  }
  split.contents["blk.0.ffn_gate_exps.weight"] = gate;
  split.contents["blk.0.ffn_up_exps.weight"] = up;
  fused.contents["blk.0.ffn_gate_up_exps.weight"] = both;
  check_same_files(fused, split);
}

BOOST_AUTO_TEST_CASE(a_quantised_phi3_file_is_cut_where_its_fused_matrices_meet) {
  llama_file packed = wide_file();
  packed.texts["general.architecture"] = "phi3";
  for (const char* name :
       {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.0.ffn_gate.weight"})
    packed.tensors.erase(name);
  packed.tensors["blk.0.attn_qkv.weight"] = {256, 128};
  packed.tensors["blk.0.ffn_up.weight"] = {256, 512};
  llama_file plain = packed;
  store_in_blocks(packed, plain, "blk.0.attn_qkv.weight", blocks_of("Q8_0", 8));
  store_in_blocks(packed, plain, "blk.0.ffn_up.weight", blocks_of("Q4_K", 12));
  store_in_blocks(packed, plain, "blk.0.ffn_down.weight", blocks_of("Q8_0", 8));
  check_same_files(packed, plain);
}

BOOST_AUTO_TEST_CASE(the_text_half_of_a_model_is_found_under_both_spellings) {
  const fs::path fixture = data_folder + "/arch/gemma3_vision";
  const json::object config = read_json_object((fixture / "config.json").string()).value();
  const temporary_folder newer;
  const std::string published = "language_model.model.";
  write_renamed(newer, fixture, config, [&](const std::string& name) {
    return name.starts_with(published) ? "model.language_model." + name.substr(published.size())
                                       : "model." + name;
  });
  BOOST_TEST(difference(newer.path(), fixture.string()) == 0);
  const auto m = load(fixture);
  BOOST_TEST(m->config.text_half);
  BOOST_TEST(m->config.kv_heads == 4U); // which the file does not state

  // What is not known to belong to images is not left out in silence.
  json::object odd = config;
  odd["audio_config"] = json::object{{"x", 1}};
  const auto refused = read_model_config(odd, "config.json");
  BOOST_REQUIRE(!refused);
  BOOST_TEST(refused.error().message.find("'audio_config.x'") != std::string::npos, refused.error().message);
  odd = config;
  odd["text_config"] = 1;
  BOOST_TEST(
      read_model_config(odd, "config.json").error().message.find("'text_config'") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_text_half_of_mistral_3_is_a_mistral) {
  const fs::path fixture = data_folder + "/arch/mistral";
  json::object text = read_json_object((fixture / "config.json").string()).value();
  text.erase("architectures");
  text.erase("tie_word_embeddings"); // said outside
  const json::object config{
      {"architectures", json::array{"Mistral3ForConditionalGeneration"}},
      {"model_type", "mistral3"},
      {"text_config", text},
      {"vision_config", json::object{{"model_type", "pixtral"}, {"hidden_size", 8}}},
      {"image_token_index", 10},
      {"multimodal_projector_bias", false},
      {"projector_hidden_act", "gelu"},
      {"spatial_merge_size", 2},
      {"tie_word_embeddings", false},
      {"vision_feature_layer", -1},
      {"torch_dtype", "float32"}};
  const temporary_folder disk;
  write_renamed(disk, fixture, config, [](const std::string& name) { return "language_model." + name; });
  BOOST_TEST(difference(disk.path(), fixture.string()) == 0);
}

BOOST_AUTO_TEST_CASE(yarn_of_a_gguf_file_is_that_of_a_folder) {
  llama_file file;
  file.texts["llama.rope.scaling.type"] = "yarn";
  file.reals["llama.rope.scaling.factor"] = 4;
  file.numbers["llama.rope.scaling.original_context_length"] = 32;
  file.numbers["llama.attention.key_length"] = file.numbers["llama.attention.value_length"] = 16;
  const auto config_of = [&] {
    const std::string all = file.bytes();
    return read_model_config(gguf_file::parse(as_bytes(all), "test.gguf").value()).value();
  };
  json::object folder = tiny_folder{}.config;
  folder["head_dim"] = 16;
  folder["rope_scaling"] =
      json::object{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}};
  const model_config expected = read_model_config(folder, "config.json").value();
  BOOST_REQUIRE(expected.rope.factors.size() == 8U); // compared with transformers in test_hf_folder.cpp
  BOOST_TEST(config_of().rope.factors == expected.rope.factors, boost::test_tools::per_element());
  BOOST_TEST(config_of().rope.attention_factor == expected.rope.attention_factor);
  BOOST_TEST(config_of().context == 128U);
  file.reals["llama.rope.scaling.yarn_beta_slow"] = 0.25F;
  BOOST_TEST((config_of().rope.factors != expected.rope.factors));
}

BOOST_AUTO_TEST_SUITE_END()
