// SPDX-License-Identifier: Apache-2.0
// Reader of safetensors files.
#pragma once

#include "models/mapped_file.hpp"
#include "runtime/base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::models {

/// Element types by their names in the file. Those that no model here multiplies are known all the same, so
/// that a file may hold them beside its weights.
enum class safetensors_type : std::uint8_t {
  boolean,
  u8,
  i8,
  f8_e4m3,
  f8_e5m2,
  f8_e8m0,
  u16,
  i16,
  f16,
  bf16,
  u32,
  i32,
  f32,
  u64,
  i64,
  f64
};

/// "BF16", as the file spells it.
std::string_view type_name(safetensors_type type) noexcept;
std::uint32_t element_bytes(safetensors_type type) noexcept;

struct safetensors_entry {
  std::string name;
  safetensors_type type;
  std::vector<std::uint64_t> shape; ///< outermost first, as the file has it; at most 8, empty for a scalar
  std::uint64_t elements;           ///< product of the shape
  std::span<const std::byte> data;  ///< exactly the tensor's bytes; of no particular alignment
};

/// An open file, checked whole: header size (at most 100 MB, as the format says), its JSON, types, shapes and
/// extents, which must cover the data without gap or overlap. Entries point into the mapping. Move-only.
/// Thread: any reader. Time O(n log n) in the header, memory a small multiple of it.
/// Errors: every message starts with the file's name and names the tensor at fault.
/// Source: huggingface/safetensors, README ("Format").
class safetensors_file {
 public:
  /// Errors: those of mapped_file::open; bad_file; unsupported for an element type that is not known.
  static result<safetensors_file> open(const std::string& path);

  /// The same on bytes that the caller keeps alive; `name` is for messages.
  static result<safetensors_file> parse(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const noexcept { return name_; }
  std::uint64_t file_bytes() const noexcept { return bytes_.size(); }
  std::span<const std::byte> bytes() const noexcept { return bytes_; }             ///< of the whole file
  std::span<const safetensors_entry> entries() const noexcept { return entries_; } ///< sorted by name

  const safetensors_entry* find(std::string_view name) const noexcept;

 private:
  friend class safetensors_parser;

  mapped_file mapping_; // empty when the caller owns the bytes
  std::span<const std::byte> bytes_;
  std::string name_;
  std::vector<safetensors_entry> entries_;
};

/// "BF16 [576, 1536]", outermost dimension first.
std::string describe(const safetensors_entry& entry);

inline constexpr std::uint64_t max_safetensors_header = 100'000'000;

} // namespace troupe::models
