// SPDX-License-Identifier: Apache-2.0
// Fuzzes the safetensors reader: any bytes, or a folder of shards ("FOLDER", the index's length in two bytes,
// low first, the index, the shard "a.safetensors"); then every tensor as loading reads it, then the whole as
// a small model.

// covers: models/safetensors_*.cpp models/tensor_source.cpp models/json_document.cpp
#include "models/json_document.hpp"
#include "models/model.hpp"
#include "models/safetensors_folder.hpp"
#include "models/weights.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <unistd.h>

namespace {

using namespace troupe::models;

std::uint64_t sum = 0;

/// The format is drawn from the input's length, so that all of it is reached.
folder_format format_of(std::size_t size) {
  constexpr ggml_type types[] = {ggml_type::f32, ggml_type::f16, ggml_type::bf16};
  return {types[size % 3], size % 2 == 0, 1 + size % 5, 1 + size % 7};
}

void read_entries(const safetensors_file& file) {
  std::uint64_t total = 0;
  for (const safetensors_entry& entry : file.entries()) {
    if (file.find(entry.name) != &entry) std::abort();
    if (entry.data.size() != entry.elements * element_bytes(entry.type)) std::abort();
    for (const std::byte byte : entry.data) sum += static_cast<std::uint64_t>(byte);
    total += entry.data.size();
    sum += describe(entry).size();
  }
  if (total > file.file_bytes()) std::abort(); // they do not overlap
}

void read_tensors(const safetensors_folder& folder) {
  for (const model_tensor& tensor : folder.tensors()) {
    if (folder.find_tensor(tensor.name) != &tensor || !folder.tensor(tensor.name)) std::abort();
    std::vector<std::byte> loaded(loaded_bytes(tensor));
    if (tensor.codec != nullptr) tensor.codec->decode(tensor, loaded.data());
    if (tensor.rank == 2 && tensor.ne[1] > 1) {
      const model_tensor last = rows_of(tensor, 0, tensor.ne[1] - 1, 1);
      std::vector<std::byte> row(loaded_bytes(last));
      if (last.codec != nullptr) last.codec->decode(last, row.data());
      if (last.codec != nullptr &&
          !std::equal(row.begin(), row.end(), loaded.end() - static_cast<std::ptrdiff_t>(row.size())))
        std::abort();
    }
    sum += describe(tensor).size();
    if (const auto numbers = load_vector(folder, tensor.name, tensor.elements)) sum += numbers->size();
  }
  for (const std::string_view name : folder.unreadable())
    if (folder.tensor(name)) std::abort();
}

void check_message(const troupe::error& error) {
  if (error.message.find('\n') != std::string::npos) std::abort();
}

/// Two small models; the corpus has files that are they.
constexpr const char* configurations[] = {
    R"({"architectures":["LlamaForCausalLM"],"vocab_size":6,"hidden_size":4,"intermediate_size":3,"head_dim":2,
        "num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,"max_position_embeddings":8,
        "rms_norm_eps":1e-5})",
    R"({"architectures":["Gemma3ForConditionalGeneration"],"text_config":{"vocab_size":6,"hidden_size":4,
        "intermediate_size":3,"head_dim":2,"num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1}})"};

void check_model_of(safetensors_folder folder, std::size_t size) {
  const auto document = parse_json_object(configurations[size % 2], "config.json");
  auto config = read_model_config(*document, "config.json");
  if (!config) std::abort();
  const auto checked = check_folder({std::move(*config), std::move(folder), {}});
  if (!checked) check_message(checked.error());
}

/// A folder of this process's own, gone with it.
struct scratch_folder {
  scratch_folder() :
      path(std::filesystem::temp_directory_path() / ("troupe-fuzz-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path);
  }
  ~scratch_folder() { std::filesystem::remove_all(path); }
  void write(const char* name, std::string_view bytes) const {
    std::ofstream(path / name, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  std::filesystem::path path;
};

void open_folder(std::string_view input) {
  static const scratch_folder scratch;
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(input[at]); };
  const std::string_view rest = input.substr(2);
  const std::size_t length = std::min<std::size_t>(byte(0) | byte(1) << 8, rest.size());
  scratch.write("model.safetensors.index.json", rest.substr(0, length));
  scratch.write("a.safetensors", rest.substr(length));
  const auto folder = safetensors_folder::open(scratch.path.string(), format_of(input.size()));
  if (folder)
    read_tensors(*folder);
  else
    check_message(folder.error());
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::string_view mark = "FOLDER";
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.starts_with(mark) && size >= mark.size() + 2) {
    open_folder(input.substr(mark.size()));
    return 0;
  }
  auto file = safetensors_file::parse({reinterpret_cast<const std::byte*>(data), size}, "fuzz.safetensors");
  if (!file) {
    check_message(file.error());
    return 0;
  }
  read_entries(*file);
  std::vector<safetensors_file> files;
  files.push_back(std::move(*file));
  auto folder = safetensors_folder::join(std::move(files), "fuzz", format_of(size));
  if (!folder) {
    check_message(folder.error());
    return 0;
  }
  read_tensors(*folder);
  check_model_of(std::move(*folder), size);
  return 0;
}
