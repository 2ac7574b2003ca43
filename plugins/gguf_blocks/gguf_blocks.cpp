// SPDX-License-Identifier: Apache-2.0
// The tables of the plugin.
#include "plugins/gguf_blocks/gguf_blocks.h"

#include "plugins/gguf_blocks/pack.hpp"
#include "plugins/gguf_blocks/packed_layout.hpp"

namespace troupe::gguf_blocks {

namespace {

std::uint64_t scratch(const troupe_weight_shape*) {
  return scratch_bytes;
}

constexpr troupe_mm_kernel kernel(std::uint32_t isa, mm_function run) {
  return {sizeof(troupe_mm_kernel), isa, 1, UINT32_MAX, scratch, run};
}

/// Every kernel serves every row count and, but for the reference, gives the same bits.
struct kernel_table {
#if defined(__x86_64__)
  static constexpr std::uint32_t count = 3;
#else
  static constexpr std::uint32_t count = 1;
#endif
  troupe_mm_kernel kernels[count];
  const troupe_mm_kernel* pointers[count];

  explicit kernel_table(mm_function mm_functions::*layout) : kernels {
    kernel(TROUPE_ISA_REF, mm_ref.*layout),
#if defined(__x86_64__)
        kernel(TROUPE_ISA_AVX2, mm_avx2.*layout), kernel(TROUPE_ISA_AVX512, mm_avx512.*layout),
#endif
  }
  {
    for (std::uint32_t i = 0; i < count; ++i) pointers[i] = &kernels[i];
  }
  kernel_table(const kernel_table&) = delete; // the pointers are into this one
  kernel_table& operator=(const kernel_table&) = delete;
};

template<block_type Type>
troupe_quant_scheme scheme(const char* id, const kernel_table& table) {
  using functions = codec<Type>;
  return {
      sizeof(troupe_quant_scheme),
      1,
      id,
      group,
      group,
      functions::source_block_bytes,
      0,
      functions::check,
      functions::packed_size,
      functions::pack,
      functions::dequantise,
      kernel_table::count,
      0,
      table.pointers};
}

} // namespace

} // namespace troupe::gguf_blocks

const troupe_quant_scheme* const* troupe_gguf_blocks_schemes(uint32_t* count) {
  using namespace troupe::gguf_blocks;
  static const kernel_table nibble(&mm_functions::nibble), nibble_min(&mm_functions::nibble_min),
      byte(&mm_functions::byte), byte_min(&mm_functions::byte_min);
  static const troupe_quant_scheme schemes[] = {
      scheme<block_type::q4_0>("gguf.q4_0", nibble), scheme<block_type::q4_1>("gguf.q4_1", nibble_min),
      scheme<block_type::q5_0>("gguf.q5_0", byte), scheme<block_type::q5_1>("gguf.q5_1", byte_min),
      scheme<block_type::q8_0>("gguf.q8_0", byte)};
  static const troupe_quant_scheme* const pointers[] = {
      &schemes[0], &schemes[1], &schemes[2], &schemes[3], &schemes[4]};
  *count = 5;
  return pointers;
}
