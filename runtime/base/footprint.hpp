// SPDX-License-Identifier: Apache-2.0
// What memory costs once it is used, which may be more than what was asked for.
#pragma once

#include "runtime/base/aligned_buffer.hpp"

#include <cstdint>

namespace troupe {

/// Bytes that an aligned_buffer of that size occupies once it is touched: its last huge page is taken whole.
constexpr std::uint64_t footprint(std::uint64_t bytes) noexcept {
  const std::uint64_t unit =
      bytes >= aligned_buffer::huge_page_bytes ? aligned_buffer::huge_page_bytes : aligned_buffer::alignment;
  return (bytes + unit - 1) / unit * unit;
}

} // namespace troupe
