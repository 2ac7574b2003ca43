// SPDX-License-Identifier: Apache-2.0
// A model file, loaded: everything that the engine needs of it, immutable.
#pragma once

#include "models/decoder.hpp"
#include "models/model_config.hpp"
#include "models/vocabulary.hpp"
#include "models/weights.hpp"
#include "runtime/base/error.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace troupe::models {

struct model_options {
  /// Finds the schemes beyond the dense ones, which are always there (plugins::scheme_registry::find).
  scheme_finder find_scheme;
  /// The reference path: KV cache in FP32. Its backend is made with isa::ref.
  bool reference = false;
  /// Element type of the KV cache when not on the reference path. F16 holds the keys and values of models
  /// whose activations stay below 65504; BF16 is for the others. A row that overflows is flagged, never
  /// silently wrong.
  kernels::kv_type kv = kernels::kv_type::f16;
  /// A dense scheme ("dense.f16", "dense.bf16", "dense.f32") that every layer is converted to; empty = as
  /// stored.
  std::string layer_scheme;
  int threads = 0; ///< for packing; 0 = as many as the machine has
  std::function<void(std::uint64_t done, std::uint64_t total)> progress; ///< bytes of the file packed
  std::stop_token stop; ///< when asked, the loading ends with errc::shutdown
};

/// One line of `inspect`.
struct model_note {
  std::string key;
  std::string value; ///< shortened, printable
};

/// Owns weights and program; shared by whoever runs it. Thread: any reader.
struct model {
  std::string path;
  model_config config;
  execution_plan plan;
  model_weights weights;
  std::shared_ptr<const kernels::step_program> program;
  models::vocabulary vocabulary;
  std::optional<std::string> chat_template;
  std::vector<model_note> metadata; ///< in file order
  std::uint64_t file_bytes = 0;
  std::uint64_t weight_bytes = 0;       ///< packed, a shared matrix once
  std::uint64_t kv_bytes_per_block = 0; ///< of 32 positions, all layers
  std::uint64_t parameters = 0;         ///< elements of all tensors
};

/// Maps, checks and packs a GGUF file. The file is not needed afterwards.
/// Thread: any; blocks until done.
/// Errors: not_found, io; bad_file and unsupported naming the key or tensor; no_memory.
result<std::shared_ptr<const model>> load_model(const std::string& path, const model_options& options);

/// Whether load_model could run the file, without packing a weight: its configuration, vocabulary, tensors
/// and their types. Errors: those of load_model but for numbers in the weights.
result<void> check_model(const gguf_file& file, const scheme_finder& find_scheme);

/// The same on an open file.
result<std::shared_ptr<const model>> load_model(const gguf_file& file, const model_options& options);

} // namespace troupe::models
