// SPDX-License-Identifier: Apache-2.0
// A Hugging Face model folder: config.json and its tensors.
#pragma once

#include "models/model_config.hpp"
#include "models/safetensors_folder.hpp"
#include "runtime/base/error.hpp"

#include <boost/json/object.hpp>

#include <string>

namespace troupe::models {

/// What config.json says about the storage of weights: `torch_dtype` (or `dtype`) and `quantization_config`.
/// Errors: unsupported for a quantisation that is not FP8 or INT8 with scales; bad_file.
result<folder_format> read_folder_format(const boost::json::object& config, const std::string& name);

/// An open folder. The tensors are mapped, not read. Move-only. Thread: any reader.
struct hf_folder {
  model_config config;
  safetensors_folder tensors;

  /// Errors: not_found; bad_file and unsupported of config.json and of the safetensors files.
  static result<hf_folder> open(const std::string& path);
};

/// Whether a path names a folder.
bool is_folder(const std::string& path);

} // namespace troupe::models
