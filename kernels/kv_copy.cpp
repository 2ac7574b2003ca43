// SPDX-License-Identifier: Apache-2.0
#include "kernels/kv_copy.hpp"

#include "kernels/attention.hpp"

#include <cstring>

namespace troupe::kernels {

void copy_positions(
    const std::byte* from, std::byte* to, std::uint32_t positions, std::uint32_t head_dim,
    std::size_t element_bytes) noexcept {
  const std::size_t inputs = kv_tile_tokens * element_bytes; // one input of the keys of all positions
  for (std::uint32_t d = 0; d < head_dim; ++d)
    std::memcpy(to + d * inputs, from + d * inputs, positions * element_bytes);
  const std::size_t keys = head_dim * inputs;
  std::memcpy(to + keys, from + keys, std::size_t{positions} * head_dim * element_bytes);
}

} // namespace troupe::kernels
