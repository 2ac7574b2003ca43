// SPDX-License-Identifier: Apache-2.0
// The replaced operator new of the test program.
#include "tests/models/allocation_meter.hpp"

#include <cstdlib>
#include <new>

namespace {

constexpr std::uint64_t never = UINT64_MAX;

thread_local std::uint64_t total = 0;
thread_local std::uint64_t left = never; // allocations before the one that fails
thread_local bool failed = false;

bool fails_now() noexcept {
  if (left == never || left-- > 0) return false;
  left = never;
  failed = true;
  return true;
}

} // namespace

std::uint64_t troupe::test::allocated_bytes() noexcept {
  return total;
}

void troupe::test::fail_allocation_after(std::uint64_t count) noexcept {
  left = count;
  failed = false;
}

bool troupe::test::allocation_failed() noexcept {
  left = never;
  return failed;
}

void* operator new(std::size_t bytes) {
  total += bytes;
  if (fails_now()) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}

// std::stable_sort asks for its buffer this way; all forms must come from the same place as `delete` returns
// to.
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
