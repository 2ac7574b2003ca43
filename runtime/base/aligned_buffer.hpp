// SPDX-License-Identifier: Apache-2.0
// Owned memory for weights, caches and scratch: cache-line aligned, huge pages where they help.
#pragma once

#include "runtime/base/checked.hpp"
#include "runtime/base/error.hpp"

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace troupe {

/// A block of uninitialised bytes. Move-only; freed when the buffer and every piece of it are gone.
/// Shapes: 64-byte aligned; from 2 MiB on 2 MiB aligned, with huge pages asked for.
/// Thread: any; the bytes themselves are unguarded.
class aligned_buffer {
 public:
  static constexpr std::size_t alignment = 64;
  static constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

  aligned_buffer() = default;
  aligned_buffer(aligned_buffer&& other) noexcept :
      data_(std::move(other.data_)), size_(std::exchange(other.size_, 0)) {}
  aligned_buffer& operator=(aligned_buffer&& other) noexcept {
    data_ = std::move(other.data_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  /// Errors: no_memory. A size of 0 gives an empty buffer.
  static result<aligned_buffer> allocate(std::size_t bytes) {
    aligned_buffer buffer;
    if (bytes == 0) return buffer;
    const std::size_t unit = bytes >= huge_page_bytes ? huge_page_bytes : alignment;
    const auto padded = checked_add(bytes, unit - 1);
    void* memory = padded ? std::aligned_alloc(unit, *padded / unit * unit) : nullptr;
    if (memory == nullptr)
      return error{errc::no_memory, "cannot allocate " + std::to_string(bytes) + " bytes", {}, 0};
    buffer.data_ = {static_cast<std::byte*>(memory), [](std::byte* start) { std::free(start); }};
    // Advice only: without huge pages everything still works.
    if (unit == huge_page_bytes) (void)::madvise(memory, *padded / unit * unit, MADV_HUGEPAGE);
    buffer.size_ = bytes;
    return buffer;
  }

  /// A part of this buffer that keeps the whole of it alive: many small blocks then share huge pages.
  /// `offset` is a multiple of `alignment`, and offset + bytes <= size().
  aligned_buffer piece(std::size_t offset, std::size_t bytes) const {
    aligned_buffer part;
    part.data_ = {data_, data_.get() + offset};
    part.size_ = bytes;
    return part;
  }

  std::byte* data() noexcept { return data_.get(); }
  const std::byte* data() const noexcept { return data_.get(); }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  std::span<std::byte> bytes() noexcept { return {data_.get(), size_}; }
  std::span<const std::byte> bytes() const noexcept { return {data_.get(), size_}; }

 private:
  std::shared_ptr<std::byte> data_;
  std::size_t size_ = 0;
};

} // namespace troupe
