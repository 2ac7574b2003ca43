// SPDX-License-Identifier: Apache-2.0
// The replaced operator new of the test program.
#include "tests/models/allocation_meter.hpp"

#include <cstdlib>
#include <new>

namespace {

thread_local std::uint64_t total = 0;

} // namespace

std::uint64_t troupe::test::allocated_bytes() noexcept {
  return total;
}

void* operator new(std::size_t bytes) {
  total += bytes;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}

// std::stable_sort asks for its buffer this way; all forms must come from the same place as `delete` returns to.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  total += bytes;
  return std::malloc(bytes == 0 ? 1 : bytes);
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
