// SPDX-License-Identifier: Apache-2.0
// Reader of GGUF model files, versions 2 and 3.
#pragma once

#include "models/mapped_file.hpp"
#include "models/tensor_source.hpp"
#include "runtime/base/error.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::models {

/// Types of metadata values, as numbered in the file.
enum class gguf_value_type : std::uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64
};

/// "a u32", "a string": for messages.
std::string_view value_type_name(gguf_value_type type) noexcept;

/// One metadata entry. A scalar has count 1; a string's `bytes` are its characters.
struct gguf_value {
  std::string_view key;
  gguf_value_type type; ///< of the elements, for an array
  bool is_array;
  std::uint64_t count; ///< elements
  std::span<const std::byte>
      bytes; ///< encoded elements; in an array of strings each has its u64 length in front
};

/// One tensor; `data` is aligned as the file says.
using gguf_tensor = model_tensor;

/// The bytes of one file of a split model, and its name for messages.
struct gguf_part {
  std::span<const std::byte> bytes;
  std::string name;
};

/// An open model file, or all files of a split model as one: the metadata of the first, the tensors of all.
/// Everything it hands out points into the mappings and lives as long as the file object.
/// `open` believes nothing: counts, lengths, types, alignment, extents and overlaps are checked there, and
/// what it allocates is bounded by a small multiple of the file's size. Move-only. Thread: any reader.
/// Errors: every message starts with the file's name and names the key or tensor at fault.
/// Source: ggml, docs/gguf.md.
class gguf_file final : public tensor_source {
 public:
  /// Of a split model `path` is the first part, NAME-00001-of-0000N.gguf, and the others lie beside it.
  /// Errors: those of mapped_file::open; bad_file, also for parts that do not belong together; unsupported
  /// for big-endian and other versions.
  static result<gguf_file> open(const std::string& path);

  /// The same on bytes that the caller keeps alive; `name` is for messages.
  static result<gguf_file> parse(std::span<const std::byte> bytes, std::string name);
  /// All parts of a split model, in order; at least one.
  static result<gguf_file> parse(std::span<const gguf_part> parts);

  const std::string& name() const noexcept override { return name_; }
  std::uint32_t version() const noexcept { return version_; }
  std::uint32_t alignment() const noexcept { return alignment_; }
  std::vector<std::span<const std::byte>> contents() const override { return contents_; } ///< of all parts
  /// Files of a split model; 1 for any other.
  std::uint64_t parts() const noexcept { return parts_; }

  /// In file order.
  std::span<const gguf_value> metadata() const noexcept { return values_; }
  /// In file order; empty for a file that holds a vocabulary only.
  std::span<const gguf_tensor> tensors() const noexcept override { return tensors_; }

  const gguf_value* find_value(std::string_view key) const noexcept;
  const gguf_tensor* find_tensor(std::string_view name) const noexcept override;

  /// A scalar. T: bool, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t, float, double,
  /// std::string_view. Any integer type of the file serves any integer T that can hold the value; f32 and f64
  /// serve both floats. Errors: bad_file when the key is missing, has another type, or the value does not
  /// fit.
  template<class T>
  result<T> get(std::string_view key) const;
  /// Nothing when the key is missing; otherwise like `get`.
  template<class T>
  result<std::optional<T>> find(std::string_view key) const;

  /// An array, copied out; T as for `get`. Errors: likewise.
  template<class T>
  result<std::vector<T>> get_array(std::string_view key) const;
  template<class T>
  result<std::optional<std::vector<T>>> find_array(std::string_view key) const;

 private:
  friend class gguf_parser;

  /// What a file says of the split model that it is a part of.
  struct split_info {
    std::uint64_t index = 0;              // from 0
    std::uint64_t count = 1;              // of parts
    std::optional<std::uint64_t> tensors; // of all parts together
  };

  static result<gguf_file> parse_one(std::span<const std::byte> bytes, std::string name);
  result<void> check_first() const;
  result<void> add_part(gguf_file part);
  result<void> finish_parts();

  template<class T>
  result<T> read_scalar(const gguf_value& value) const;
  template<class T>
  result<std::vector<T>> read_array(const gguf_value& value) const;

  std::vector<mapped_file> mappings_; // empty when the caller owns the bytes
  std::vector<std::span<const std::byte>> contents_;
  split_info split_;
  std::uint64_t parts_ = 1; // taken so far
  std::string name_;
  std::uint32_t version_ = 0;
  std::uint32_t alignment_ = 32;
  std::vector<gguf_value> values_;
  std::vector<gguf_tensor> tensors_;
  std::vector<std::uint32_t> values_by_key_;   // indices, sorted
  std::vector<std::uint32_t> tensors_by_name_; // indices, sorted
};

/// One line for `inspect`: scalars in full, long strings and arrays shortened, control characters escaped.
std::string describe(const gguf_value& value);

} // namespace troupe::models
