// SPDX-License-Identifier: Apache-2.0
// Owned memory for weights, caches and scratch: cache-line aligned, huge pages where they help.
#pragma once

#include "runtime/base/checked.hpp"
#include "runtime/base/error.hpp"

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>

namespace troupe {

/// A block of uninitialised bytes. Move-only; freed by the destructor.
/// Shapes: 64-byte aligned; from 2 MiB on 2 MiB aligned, with huge pages asked for.
/// Thread: any; the bytes themselves are unguarded.
class aligned_buffer {
 public:
  static constexpr std::size_t alignment = 64;
  static constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

  aligned_buffer() = default;
  aligned_buffer(aligned_buffer&& other) noexcept :
      data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  aligned_buffer& operator=(aligned_buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~aligned_buffer() { std::free(data_); }

  /// Errors: no_memory. A size of 0 gives an empty buffer.
  static result<aligned_buffer> allocate(std::size_t bytes) {
    aligned_buffer buffer;
    if (bytes == 0) return buffer;
    const std::size_t unit = bytes >= huge_page_bytes ? huge_page_bytes : alignment;
    const auto padded = checked_add(bytes, unit - 1);
    if (padded) buffer.data_ = static_cast<std::byte*>(std::aligned_alloc(unit, *padded / unit * unit));
    if (buffer.data_ == nullptr)
      return error{errc::no_memory, "cannot allocate " + std::to_string(bytes) + " bytes", {}, 0};
    // Advice only: without huge pages everything still works.
    if (unit == huge_page_bytes) (void)::madvise(buffer.data_, *padded / unit * unit, MADV_HUGEPAGE);
    buffer.size_ = bytes;
    return buffer;
  }

  std::byte* data() noexcept { return data_; }
  const std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  std::span<std::byte> bytes() noexcept { return {data_, size_}; }
  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

} // namespace troupe
