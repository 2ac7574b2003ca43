// SPDX-License-Identifier: Apache-2.0
// The tensors of a Hugging Face folder: one safetensors file or shards, 8-bit weights widened.
#pragma once

#include "models/safetensors_file.hpp"
#include "models/tensor_source.hpp"

#include <memory>

namespace troupe::models {

/// What config.json says about how the folder stores its weights.
struct folder_format {
  ggml_type widened = ggml_type::bf16; ///< f32, f16 or bf16: what 8-bit weights become when they are loaded
  bool quantised = false;              ///< a quantization_config is there: 8-bit weights need their scales
  std::uint64_t block_rows = 128;      ///< of a scale per block
  std::uint64_t block_columns = 128;
};

/// F32, F16 and BF16 tensors are read where they are mapped. FP8 weights `X.weight` are multiplied by their
/// scales `X.weight_scale_inv` or `X.weight_scale` (one, one per row, or one per block) and rounded to
/// `widened`; INT8 weights, I8 or U8, likewise, less their zero points
/// `X.weight_zero_point` (I8 or U8, one for each scale) where there are any. Without a quantization_config
/// FP8 elements are plain numbers. Scales of activations and of the KV cache are left out: neither is
/// quantised here. Move-only. Thread: any reader. Errors: every message starts with the path of the folder or
/// file.
class safetensors_folder final : public tensor_source {
 public:
  /// `folder`/model.safetensors, or the shards that `folder`/model.safetensors.index.json lists.
  /// Errors: those of safetensors_file::open; not_found when there is neither; bad_file for an index that
  /// does not fit its files, and for scales that do not fit their weight.
  static result<safetensors_folder> open(const std::string& folder, const folder_format& format);

  /// The same from open files.
  static result<safetensors_folder>
  join(std::vector<safetensors_file> files, std::string name, const folder_format& format);

  const std::string& name() const noexcept override { return name_; }
  const model_tensor* find_tensor(std::string_view name) const noexcept override;
  std::span<const model_tensor> tensors() const noexcept override { return tensors_; } ///< sorted by name
  error missing(std::string_view name) const override;

  bool has_folder_names() const noexcept override { return true; }
  /// Tensors that no model here can multiply: integers, other ranks.
  std::vector<std::string_view> unreadable() const override;
  std::vector<std::span<const std::byte>> contents() const override; ///< the file, or the shards by name

 private:
  result<void> index_entries();
  result<void> add(const safetensors_entry& entry, const folder_format& format);
  result<void> add_codec(const safetensors_entry& entry, const folder_format& format, model_tensor& tensor);
  result<void> add_zeros(const safetensors_entry& entry, std::size_t count, std::vector<float>& zeros) const;
  const safetensors_entry* scale_of(const std::string& weight) const noexcept;
  const safetensors_entry* find_entry(std::string_view name) const noexcept;
  bool is_scale(std::string_view name) const noexcept;

  std::vector<safetensors_file> files_;
  std::string name_;
  std::vector<const safetensors_entry*> entries_; // of all files, sorted by name
  bool has_narrow_ = false;                       // 8-bit weights among them
  std::vector<model_tensor> tensors_;
  std::vector<const safetensors_entry*> unreadable_;
  std::vector<std::unique_ptr<const tensor_codec>> codecs_;
};

} // namespace troupe::models
