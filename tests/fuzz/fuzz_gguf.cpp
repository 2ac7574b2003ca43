// SPDX-License-Identifier: Apache-2.0
// Fuzzes the GGUF reader: any bytes, or two parts of a split model ("PART", u32 length of the first, both),
// then every getter on every key, every byte of every tensor, and the readers of the model's shape and
// vocabulary.

// covers: models/gguf_file.cpp models/gguf_parser.cpp models/vocabulary_gguf.cpp
#include "models/gguf_file.hpp"
#include "models/model_config.hpp"
#include "models/vocabulary_gguf.hpp"
#include "models/weights.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

using namespace troupe::models;

std::uint64_t sum = 0;

template<class T>
void read_as(const gguf_file& file, std::string_view key) {
  const auto scalar = file.get<T>(key);
  const auto found = file.find<T>(key);
  // Both ways must agree, and a present key is never "nothing".
  if (scalar.has_value() != found.has_value() || (found.has_value() && !found->has_value())) std::abort();
  const auto array = file.get_array<T>(key);
  const auto found_array = file.find_array<T>(key);
  if (array.has_value() != found_array.has_value()) std::abort();
  if (array && array->size() != file.find_value(key)->count) std::abort();
  if (scalar && array) std::abort();
  if constexpr (std::is_same_v<T, std::string_view>) {
    if (scalar)
      for (const char c : *scalar) sum += static_cast<unsigned char>(c);
    if (array)
      for (const std::string_view text : *array)
        for (const char c : text) sum += static_cast<unsigned char>(c);
  }
}

void read_metadata(const gguf_file& file) {
  for (const gguf_value& value : file.metadata()) {
    if (file.find_value(value.key) != &value) std::abort();
    read_as<bool>(file, value.key);
    read_as<std::int32_t>(file, value.key);
    read_as<std::uint32_t>(file, value.key);
    read_as<std::int64_t>(file, value.key);
    read_as<std::uint64_t>(file, value.key);
    read_as<float>(file, value.key);
    read_as<double>(file, value.key);
    read_as<std::string_view>(file, value.key);
    sum += describe(value).size() + value_type_name(value.type).size();
  }
}

void read_tensors(const gguf_file& file) {
  std::uint64_t total = 0;
  for (const gguf_tensor& tensor : file.tensors()) {
    if (file.find_tensor(tensor.name) != &tensor || !file.tensor(tensor.name)) std::abort();
    for (const std::byte byte : tensor.data) sum += static_cast<std::uint64_t>(byte);
    total += tensor.data.size();
    sum += describe(tensor).size();
    if (const auto numbers = load_vector(file, tensor.name, tensor.elements)) sum += numbers->size();
  }
  // Tensors do not overlap, so together they fit the file.
  if (total > file.file_bytes()) std::abort();
}

void read_model(const gguf_file& file) {
  if (const auto config = read_model_config(file)) {
    if (config->heads % config->kv_heads != 0 || config->rope.dims > config->head_dim) std::abort();
    sum += rope_inverse_frequencies(config->rope, config->rope.factors).size();
  }
  if (const auto words = read_vocabulary(file))
    for (const auto& id : {words->bos, words->eos, words->eot, words->eom, words->unknown, words->padding})
      if (id && static_cast<std::size_t>(*id) >= words->tokens.size()) std::abort();
  if (const auto text = read_chat_template(file)) sum += text->value_or("").size();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<gguf_part> parts{{{reinterpret_cast<const std::byte*>(data), size}, "fuzz.gguf"}};
  constexpr std::size_t header = 8;
  if (size > header && std::memcmp(data, "PART", 4) == 0) {
    std::uint32_t first;
    std::memcpy(&first, data + 4, sizeof first);
    const auto both = parts[0].bytes.subspan(header);
    const std::size_t length = std::min<std::size_t>(first, both.size());
    parts = {{both.first(length), "fuzz-1.gguf"}, {both.subspan(length), "fuzz-2.gguf"}};
  }
  const auto file = gguf_file::parse(parts);
  if (!file) {
    if (file.error().message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  if (file->get<std::uint32_t>("no such key").has_value()) std::abort();
  read_metadata(*file);
  read_tensors(*file);
  read_model(*file);
  return 0;
}
