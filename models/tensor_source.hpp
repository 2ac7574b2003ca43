// SPDX-License-Identifier: Apache-2.0
// Tensors as loading sees them, whatever file they come from.
#pragma once

#include "models/ggml_type.hpp"
#include "runtime/base/error.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::models {

struct model_tensor;

/// Reads a tensor whose elements stand in the file in another form than the one they are loaded as (FP8 with
/// scales). Immutable. Thread: any, concurrently.
class tensor_codec {
 public:
  virtual ~tensor_codec() = default;

  /// Writes the rows of `tensor`, as elements of `tensor.type`, to `out`, which holds them exactly.
  virtual void decode(const model_tensor& tensor, std::byte* out) const = 0;
};

/// One tensor, or some rows of one. `ne[0]` is the row length (inputs), the fastest index; unused dimensions
/// are 1. Points into its source, which outlives it.
struct model_tensor {
  std::string_view name;
  ggml_type type = ggml_type::f32; ///< of the elements as they are loaded
  std::uint32_t rank = 1;          ///< 1..4
  std::array<std::uint64_t, 4> ne{1, 1, 1, 1};
  std::uint64_t elements = 0;          ///< product of ne
  std::span<const std::byte> data;     ///< as the file has them: elements of `type` unless there is a codec
  const tensor_codec* codec = nullptr; ///< reads `data`; null: the elements themselves
  std::uint64_t first_row = 0;         ///< of the whole tensor, when these are some of its rows
};

/// Bytes of the elements as they are loaded. The element count has been checked with the file.
std::uint64_t loaded_bytes(const model_tensor& tensor) noexcept;

/// Rows [first, first + count) of matrix number `matrix` of a tensor of rank 2 or 3, as a matrix.
/// The caller has checked that they exist and that a row is whole blocks.
model_tensor
rows_of(const model_tensor& tensor, std::uint64_t matrix, std::uint64_t first, std::uint64_t count) noexcept;

/// "Q4_1 [576, 1536]": for messages and `inspect`.
std::string describe(const model_tensor& tensor);

/// A file or folder that holds a model's tensors. Thread: any reader.
class tensor_source {
 public:
  virtual ~tensor_source() = default;

  /// The path, for messages.
  virtual const std::string& name() const noexcept = 0;
  /// Null when there is no such tensor, or none that can be read.
  virtual const model_tensor* find_tensor(std::string_view name) const noexcept = 0;
  /// All that `find_tensor` finds, in the order of the source.
  virtual std::span<const model_tensor> tensors() const noexcept = 0;
  /// Why `find_tensor` finds nothing.
  virtual error missing(std::string_view name) const;
  /// Whether tensors are named as Hugging Face folders name them, an expert's matrix each; else as GGUF does.
  virtual bool has_folder_names() const noexcept { return false; }
  /// Names of tensors that are there and that `find_tensor` does not find.
  virtual std::vector<std::string_view> unreadable() const { return {}; }
  /// The bytes of every file that the tensors are read from, in a fixed order; mapped as long as the source
  /// is.
  virtual std::vector<std::span<const std::byte>> contents() const = 0;

  /// Errors: those of `missing`.
  result<const model_tensor*> tensor(std::string_view name) const;
  /// `code` with the source's name in front of `message`.
  error fail(std::string message, errc code = errc::bad_file) const;
  std::uint64_t file_bytes() const; ///< of all of `contents`

 protected:
  tensor_source() = default;
  tensor_source(const tensor_source&) = default;
  tensor_source(tensor_source&&) noexcept = default;
  tensor_source& operator=(const tensor_source&) = default;
  tensor_source& operator=(tensor_source&&) noexcept = default;
};

} // namespace troupe::models
