// SPDX-License-Identifier: Apache-2.0
// Makes one chosen allocation of this program fail.
#pragma once

#include <cstdint>

namespace troupe::sim {

/// While one lives, the `countdown`-th allocation of its thread from now on throws bad_alloc; the others
/// succeed.
class alloc_fault {
 public:
  explicit alloc_fault(std::uint32_t countdown) noexcept;
  ~alloc_fault();
  alloc_fault(const alloc_fault&) = delete;
  alloc_fault& operator=(const alloc_fault&) = delete;
  bool fired() const noexcept;
};

} // namespace troupe::sim
