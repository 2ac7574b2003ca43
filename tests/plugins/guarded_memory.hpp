// SPDX-License-Identifier: Apache-2.0
// Memory that ends at a page nobody may touch.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <new>

namespace troupe::test {

/// `count` elements whose last byte is the last before a protected page, so that one element too many faults.
/// The start is as aligned as count * sizeof(T) is.
template<class T>
class guarded_array {
 public:
  explicit guarded_array(std::size_t count) : count_(count) {
    const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t bytes = (count * sizeof(T) + page - 1) / page * page;
    mapped_bytes_ = bytes + page;
    void* start = ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) throw std::bad_alloc();
    start_ = static_cast<std::byte*>(start);
    ::mprotect(start_ + bytes, page, PROT_NONE);
    data_ = reinterpret_cast<T*>(start_ + bytes - count * sizeof(T));
  }
  guarded_array(const guarded_array&) = delete;
  guarded_array& operator=(const guarded_array&) = delete;
  ~guarded_array() { ::munmap(start_, mapped_bytes_); }

  T* data() { return data_; }
  std::size_t size() const { return count_; }
  T& operator[](std::size_t i) { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + count_; }

 private:
  std::byte* start_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

} // namespace troupe::test
