// SPDX-License-Identifier: Apache-2.0
// Multiplication by the formats whose blocks stay as they are, for AVX-512 (F, BW, DQ, VL).
#include "plugins/gguf_blocks/lanes_avx512.hpp"
#include "plugins/gguf_blocks/tile_driver.hpp"

namespace troupe::gguf_blocks {

constexpr tile_mm_functions tile_mm_avx512 = tile_functions<avx512::lanes>(tiled_formats{});

} // namespace troupe::gguf_blocks
