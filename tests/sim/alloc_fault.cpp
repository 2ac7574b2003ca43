// SPDX-License-Identifier: Apache-2.0
// Replaces operator new for the whole program.
#include "tests/sim/alloc_fault.hpp"

#include <cstdlib>
#include <new>

namespace troupe::sim {
namespace {

thread_local std::uint32_t countdown_left = 0; // 0 = off
thread_local bool has_fired = false;

} // namespace

alloc_fault::alloc_fault(std::uint32_t countdown) noexcept {
  countdown_left = countdown;
  has_fired = false;
}
alloc_fault::~alloc_fault() {
  countdown_left = 0;
}
bool alloc_fault::fired() const noexcept {
  return has_fired;
}

void* allocate(std::size_t bytes) {
  if (countdown_left != 0 && --countdown_left == 0) {
    has_fired = true;
    throw std::bad_alloc();
  }
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}

} // namespace troupe::sim

void* operator new(std::size_t bytes) {
  return troupe::sim::allocate(bytes);
}
void* operator new[](std::size_t bytes) {
  return troupe::sim::allocate(bytes);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes == 0 ? 1 : bytes); // never a fault: whoever asks this way copes
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete[](void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, const std::nothrow_t&) noexcept {
  std::free(p);
}
void operator delete[](void* p, const std::nothrow_t&) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, std::size_t) noexcept {
  std::free(p);
}
