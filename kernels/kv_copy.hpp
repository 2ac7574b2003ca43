// SPDX-License-Identifier: Apache-2.0
// Copies the first positions of one KV tile to another.
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::kernels {

/// Slots [0, positions) of K [head_dim][32] and V [32][head_dim] of `from` become those of `to`, bit for bit;
/// the other slots of `to` stay as they are, and those of `from` are not read. `positions`: 0 to 32;
/// `element_bytes`: of the cache's type; the tiles do not overlap. Thread: any, also beside one that reads
/// `from`; no allocation. One function for every instruction set: there is nothing to compute.
void copy_positions(
    const std::byte* from, std::byte* to, std::uint32_t positions, std::uint32_t head_dim,
    std::size_t element_bytes) noexcept;

} // namespace troupe::kernels
