// SPDX-License-Identifier: Apache-2.0
// The first phase of a step: positions that a sequence shares with another come into its own block.
#include "kernels/cpu_step.hpp"

#include "kernels/attention.hpp"
#include "kernels/kv_copy.hpp"

#include <string>

namespace troupe::kernels {

/// Errors: internal for copies that break the contract of backend.hpp.
result<void> cpu_step::check_copies(std::span<const kv_copy> copies, const kv_pool& pool) {
  const auto broken = [](const kv_copy& copy, const char* how) {
    return error{
        errc::internal,
        "step: the copy from block " + std::to_string(copy.from) + " to " + std::to_string(copy.to) + ' ' +
            how,
        {},
        0};
  };
  for (const kv_copy& copy : copies) {
    if (copy.from >= pool.blocks || copy.to >= pool.blocks) return broken(copy, "leaves the pool");
    if (copy.positions == 0 || copy.positions > pool.layout.block_tokens)
      return broken(copy, "has positions that no block has");
    for (const kv_copy& other : copies)
      if (copy.to == other.from || (copy.to == other.to && &copy != &other))
        return broken(copy, "writes where another one reads or writes");
  }
  return {};
}

/// A tile is one copy in one layer.
void cpu_step::run_copy(const planned&, std::uint32_t tile, std::uint32_t) {
  const std::uint32_t layers = pool_->layout.layers, layer = tile % layers;
  const kv_copy& copy = input_->copies[tile / layers];
  const std::size_t element = pool_->layout.type == kv_type::f32 ? sizeof(float) : sizeof(std::uint16_t);
  const std::byte* from = pool_->block(layer, copy.from);
  std::byte* to = pool_->block(layer, copy.to);
  for (std::uint32_t head = 0; head < pool_->layout.kv_heads; ++head)
    copy_positions(
        from + head * pool_->tile_bytes(), to + head * pool_->tile_bytes(), copy.positions,
        pool_->layout.head_dim, element);
}

} // namespace troupe::kernels
