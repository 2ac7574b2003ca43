// SPDX-License-Identifier: Apache-2.0
// A file for what memory has no room for: without a name, gone with the process.
#pragma once

#include "runtime/base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace troupe::runtime {

/// Opened in a folder and unlinked at once, so that nobody else opens it and nothing is left of it, whatever
/// becomes of the process. Move-only. Thread: one at a time.
class spill_file {
 public:
  spill_file() = default;
  spill_file(spill_file&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  spill_file& operator=(spill_file&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~spill_file();

  /// Errors: io, naming the folder and why.
  static result<spill_file> open(const std::string& folder);

  /// All of it or an error: io. What a failed write left behind is not to be read.
  result<void> write(std::uint64_t offset, std::span<const std::byte> from) const noexcept;
  result<void> read(std::uint64_t offset, std::span<std::byte> into) const noexcept;

 private:
  explicit spill_file(int fd) noexcept : fd_(fd) {}
  int fd_ = -1;
};

} // namespace troupe::runtime
