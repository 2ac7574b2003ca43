// SPDX-License-Identifier: Apache-2.0
// A regular file mapped read-only.
#pragma once

#include "runtime/base/error.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <utility>

namespace troupe::models {

/// Move-only; unmapped by the destructor. The bytes keep their address when the object moves.
/// Reading a page that was cut off the file after `open` raises SIGBUS: readers copy what they keep, at load.
/// Thread: any reader.
class mapped_file {
 public:
  mapped_file() = default;
  mapped_file(mapped_file&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  mapped_file& operator=(mapped_file&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~mapped_file();

  /// Errors: not_found; io when the system refuses; bad_file for what is not a regular file, or is empty.
  static result<mapped_file> open(const std::string& path);

  std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

} // namespace troupe::models
