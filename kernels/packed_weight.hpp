// SPDX-License-Identifier: Apache-2.0
// A weight matrix packed for this machine by the scheme that will multiply it.
#pragma once

#include "runtime/base/aligned_buffer.hpp"
#include "troupe/ext/quant_scheme.h"

#include <cstdint>

namespace troupe {

/// One matrix W[n][k] after `scheme->pack`. Immutable once loaded.
/// Owns: `data`, scheme->packed_size bytes; `scheme` is static or outlives every weight (its plugin stays
/// mapped). Thread: any reader.
struct packed_weight {
  const troupe_quant_scheme* scheme = nullptr;
  troupe_weight_shape shape{sizeof(troupe_weight_shape), 0, 0};
  aligned_buffer data;
};

/// The best kernel of a scheme for `m` rows that needs no more than `isa` (TROUPE_ISA_*), or null when the
/// scheme serves that row count on no such instruction set. Among equals the first in the table wins.
inline const troupe_mm_kernel*
find_mm_kernel(const troupe_quant_scheme& scheme, std::uint32_t m, std::uint32_t isa) noexcept {
  const troupe_mm_kernel* best = nullptr;
  for (std::uint32_t i = 0; i < scheme.mm_count; ++i) {
    const troupe_mm_kernel& kernel = *scheme.mm[i];
    if (kernel.isa > isa || m < kernel.m_min || m > kernel.m_max) continue;
    if (best == nullptr || kernel.isa > best->isa) best = &kernel;
  }
  return best;
}

} // namespace troupe
