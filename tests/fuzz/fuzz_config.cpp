// SPDX-License-Identifier: Apache-2.0
// Fuzzes the reader of config.json: any text, then the description of every architecture.

// covers: models/config_reader.cpp models/model_config.cpp models/rope_config.cpp models/architectures/*.cpp
#include "models/hf_folder.hpp"
#include "models/json_document.hpp"

#include <cstdlib>

namespace {

using namespace troupe::models;

void check_message(const troupe::error& error) {
  if (error.message.find('\n') != std::string::npos) std::abort();
}

void check_rope(const rope_config& rope, std::uint32_t head_dim) {
  if (rope.dims == 0 || rope.dims % 2 != 0 || rope.dims > head_dim) std::abort();
  for (const auto* factors : {&rope.factors, &rope.long_factors}) {
    if (!factors->empty() && factors->size() != rope.dims / 2) std::abort();
    if (rope_inverse_frequencies(rope, *factors).size() != rope.dims / 2) std::abort();
  }
}

void check_config(const model_config& config) {
  if (config.heads % config.kv_heads != 0 || config.layer_kinds.size() != config.layers) std::abort();
  if (config.experts.used > config.experts.count) std::abort();
  check_rope(config.rope, config.head_dim);
  if (config.local_rope) check_rope(*config.local_rope, config.head_dim);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto document = parse_json_object({reinterpret_cast<const char*>(data), size}, "config.json");
  if (!document) {
    check_message(document.error());
    return 0;
  }
  if (const auto config = read_model_config(*document, "config.json"))
    check_config(*config);
  else
    check_message(config.error());
  if (const auto format = read_folder_format(*document, "config.json")) {
    if (format->block_rows == 0 || format->block_columns == 0) std::abort();
  } else {
    check_message(format.error());
  }
  return 0;
}
