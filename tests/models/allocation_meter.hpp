// SPDX-License-Identifier: Apache-2.0
// How much a piece of code asks of operator new on this thread.
#pragma once

#include <cstdint>

namespace troupe::test {

/// Bytes given out by operator new on this thread since it started, freed or not.
std::uint64_t allocated_bytes() noexcept;

/// Lets `count` more calls of operator new on this thread succeed; the one after them throws std::bad_alloc,
/// and those after that succeed again.
void fail_allocation_after(std::uint64_t count) noexcept;

/// Takes the failure back. Returns whether it has happened.
bool allocation_failed() noexcept;

} // namespace troupe::test
