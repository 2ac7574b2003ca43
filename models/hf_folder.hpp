// SPDX-License-Identifier: Apache-2.0
// A Hugging Face model folder: config.json and its tensors.
#pragma once

#include "models/model_config.hpp"
#include "models/safetensors_folder.hpp"
#include "runtime/base/error.hpp"

#include <boost/json/object.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe::models {

/// What config.json says about the storage of weights: `torch_dtype` (or `dtype`) and `quantization_config`.
/// Errors: unsupported for a quantisation that is not FP8 or INT8 with scales; bad_file.
result<folder_format> read_folder_format(const boost::json::object& config, const std::string& name);

/// An open folder. The tensors are mapped, not read. Move-only. Thread: any reader.
struct hf_folder {
  model_config config;
  safetensors_folder tensors;
  std::optional<std::int32_t> bos; ///< `bos_token_id` of config.json, else of generation_config.json

  /// Errors: not_found; bad_file and unsupported of config.json and of the safetensors files.
  static result<hf_folder> open(const std::string& path);
};

/// The files of a folder, beside its safetensors, that make a model's numbers and text; those that are there.
std::vector<std::string> side_files(const std::string& folder);

/// Whether a path names a folder.
bool is_folder(const std::string& path);

} // namespace troupe::models
