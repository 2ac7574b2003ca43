// SPDX-License-Identifier: Apache-2.0
// The part of the GGUF reader that walks untrusted bytes.
#pragma once

#include "models/gguf_file.hpp"

namespace troupe::models {

/// Fills a `gguf_file` from its bytes. One use.
class gguf_parser {
 public:
  /// `file.contents_` and `file.name_` are set. Errors: bad_file, unsupported.
  static result<void> fill(gguf_file& file);

  /// Sorts the tensors of all parts by name. Errors: bad_file when one occurs twice.
  static result<void> index_tensors(gguf_file& file);

 private:
  explicit gguf_parser(gguf_file& file) : file_(file), bytes_(file.contents_.front()) {}

  result<void> read_header();
  result<void> read_metadata();
  result<void> read_value(gguf_value& value);
  result<void> read_strings(gguf_value& value);
  result<void> index_metadata();
  result<void> read_split();
  result<void> read_tensor_infos();
  result<void> read_tensor_info(gguf_tensor& tensor, std::uint64_t& offset);
  result<void> place_tensors();
  result<void> refuse_overlaps() const;

  std::uint64_t left() const noexcept { return bytes_.size() - position_; }
  template<class T>
  result<T> read(const char* what);
  result<std::string_view> read_name(const char* what, std::uint64_t longest);
  error truncated(const std::string& what, std::uint64_t needed) const;

  gguf_file& file_;
  std::span<const std::byte> bytes_;
  std::uint64_t position_ = 0;
  std::uint64_t value_count_ = 0;
  std::uint64_t tensor_count_ = 0;
  std::vector<std::uint64_t> offsets_; // of each tensor, from the start of the tensor data
  std::string where_;                  // what is being read, for messages
};

} // namespace troupe::models
