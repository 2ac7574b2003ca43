// SPDX-License-Identifier: Apache-2.0
// Multiplication by the formats whose blocks stay as they are, for AVX2 with FMA and F16C.
#include "plugins/gguf_blocks/lanes_avx2.hpp"
#include "plugins/gguf_blocks/tile_driver.hpp"

namespace troupe::gguf_blocks {

constexpr tile_mm_functions tile_mm_avx2 = tile_functions<avx2::lanes>(tiled_formats{});

} // namespace troupe::gguf_blocks
