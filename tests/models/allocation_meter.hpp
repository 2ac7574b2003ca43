// SPDX-License-Identifier: Apache-2.0
// How much a piece of code asks of operator new on this thread.
#pragma once

#include <cstdint>

namespace troupe::test {

/// Bytes given out by operator new on this thread since it started, freed or not.
std::uint64_t allocated_bytes() noexcept;

} // namespace troupe::test
