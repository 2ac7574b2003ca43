// SPDX-License-Identifier: Apache-2.0
// A model file, loaded: everything that the engine needs of it, immutable.
#pragma once

#include "models/decoder.hpp"
#include "models/hf_folder.hpp"
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

/// What a model needs, known before memory is taken for it.
struct load_forecast {
  std::uint64_t weight_bytes = 0;      ///< packed matrices, a shared one once
  std::uint64_t kv_position_bytes = 0; ///< keys and values of one position over all layers, at 16 bits
  std::uint32_t context = 0;           ///< positions that the model was trained for
  kernels::kv_groups kv_groups{};      ///< of its layers
  std::uint64_t kv_block_bytes = 0;    ///< at 16 bits

  /// The most that a sequence holds while it grows to `positions`, `chunk` of them in one step at most.
  std::uint64_t kv_bytes(std::uint32_t positions, std::uint32_t chunk) const {
    return kv_block_bytes * kv_groups.most(0, positions, chunk);
  }
};

struct model_options {
  /// Finds the schemes beyond the dense ones, which are always there (plugins::scheme_registry::find).
  scheme_finder find_scheme;
  /// The reference path: KV cache in FP32. Its backend is made with isa::ref.
  bool reference = false;
  /// BOS by the tokenizer, for a folder, whose tokenizer is not read here; nothing: hf_folder::bos.
  std::optional<token_id> bos;
  /// Element type of the KV cache when not on the reference path; nothing = chosen at load. Then sixteen
  /// tokens (BOS and fifteen spread over the vocabulary) are run with a cache in single precision, and the
  /// type is F16, which is finer, when eight times the largest key or value found stays within its range
  /// (65504), else BF16, which has the range of single precision. A row that overflows all the same is
  /// flagged, never silently wrong.
  std::optional<kernels::kv_type> kv;
  /// A dense scheme ("dense.f16", "dense.bf16", "dense.f32") that every layer is converted to; empty = as
  /// stored.
  std::string layer_scheme;
  unsigned threads = 0; ///< for packing and that run; 0 = as many as the machine has
  std::function<void(std::uint64_t done, std::uint64_t total)> progress; ///< bytes of the file packed
  /// Called once everything but the numbers has been checked, before memory is taken for weights; its error
  /// ends the loading.
  std::function<result<void>(const load_forecast&)> forecast;
  std::stop_token stop; ///< when asked, the loading ends with errc::shutdown
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
  std::optional<token_id> bos; ///< as the run that chose the KV type had it; within the vocabulary
  std::uint64_t file_bytes = 0;
  std::uint64_t weight_bytes = 0; ///< packed, a shared matrix once
};

/// Maps, checks and packs a GGUF file or a Hugging Face folder, whose vocabulary and chat template stay
/// empty: they are in files of their own (models/folder_tokenizer.hpp). Nothing of it is needed afterwards.
/// Thread: any; blocks until done.
/// Errors: not_found, io; bad_file and unsupported naming the key or tensor; no_memory.
result<std::shared_ptr<const model>> load_model(const std::string& path, const model_options& options);

/// Whether load_model could run the file, without packing a weight: its configuration, vocabulary, tensors
/// and their types; gives what it will need. Errors: those of load_model but for numbers in the weights.
result<load_forecast> check_model(const gguf_file& file, const scheme_finder& find_scheme);

/// The same for a folder.
result<load_forecast> check_folder(const hf_folder& folder);

/// load_model on an open file or folder.
result<std::shared_ptr<const model>> load_model(const gguf_file& file, const model_options& options);
result<std::shared_ptr<const model>> load_model(const hf_folder& folder, const model_options& options);

} // namespace troupe::models
