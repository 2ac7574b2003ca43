// SPDX-License-Identifier: Apache-2.0
// The tables of the plugin.
#include "plugins/gguf_blocks/gguf_blocks.h"

#include "plugins/gguf_blocks/pack.hpp"
#include "plugins/gguf_blocks/packed_layout.hpp"
#include "plugins/gguf_blocks/tile_codec.hpp"
#include "plugins/gguf_blocks/tile_layout.hpp"

namespace troupe::gguf_blocks {

namespace {

std::uint64_t scratch(const troupe_weight_shape*) {
  return scratch_bytes;
}

#if defined(__x86_64__)
constexpr std::uint32_t kernels_each = 3;
#else
constexpr std::uint32_t kernels_each = 1;
#endif

/// Every kernel serves every row count and, but for the reference, gives the same bits.
struct kernel_set {
  troupe_mm_kernel of[kernels_each];
};

constexpr troupe_mm_kernel kernel(std::uint32_t isa, mm_function run) {
  return {sizeof(troupe_mm_kernel), isa, 1, UINT32_MAX, scratch, run};
}

#if defined(__x86_64__)
kernel_set panel_kernels(mm_function mm_functions::*layout) {
  return {
      {kernel(TROUPE_ISA_REF, mm_ref.*layout), kernel(TROUPE_ISA_AVX2, mm_avx2.*layout),
       kernel(TROUPE_ISA_AVX512, mm_avx512.*layout)}};
}

kernel_set tile_kernels(std::uint32_t format) {
  return {
      {kernel(TROUPE_ISA_REF, tile_mm_ref[format]), kernel(TROUPE_ISA_AVX2, tile_mm_avx2[format]),
       kernel(TROUPE_ISA_AVX512, tile_mm_avx512[format])}};
}
#else
kernel_set panel_kernels(mm_function mm_functions::*layout) {
  return {{kernel(TROUPE_ISA_REF, mm_ref.*layout)}};
}

kernel_set tile_kernels(std::uint32_t format) {
  return {{kernel(TROUPE_ISA_REF, tile_mm_ref[format])}};
}
#endif

/// Every table of the plugin, built at the first question.
class scheme_list {
 public:
  static constexpr std::uint32_t count = 5 + tiled_formats::count;

  scheme_list() {
    add_panels<block_type::q4_0>("gguf.q4_0", &mm_functions::nibble);
    add_panels<block_type::q4_1>("gguf.q4_1", &mm_functions::nibble_min);
    add_panels<block_type::q5_0>("gguf.q5_0", &mm_functions::byte);
    add_panels<block_type::q5_1>("gguf.q5_1", &mm_functions::byte_min);
    add_panels<block_type::q8_0>("gguf.q8_0", &mm_functions::byte);
    for (std::uint32_t format = 0; format < tiled_formats::count; ++format)
      add(tile_codecs[format], tile_kernels(format));
  }
  scheme_list(const scheme_list&) = delete; // the pointers are into this one
  scheme_list& operator=(const scheme_list&) = delete;

  const troupe_quant_scheme* const* pointers() const { return pointers_; }

 private:
  template<block_type Type>
  void add_panels(const char* id, mm_function mm_functions::*layout) {
    using of = codec<Type>;
    add({id, group, of::source_block_bytes, of::check, of::packed_size, of::pack, of::dequantise},
        panel_kernels(layout));
  }

  void add(const scheme_codec& codec, const kernel_set& set) {
    const std::uint32_t at = used_++;
    kernels_[at] = set;
    for (std::uint32_t i = 0; i < kernels_each; ++i) kernel_pointers_[at][i] = &kernels_[at].of[i];
    schemes_[at] = {
        sizeof(troupe_quant_scheme),
        1,
        codec.id,
        codec.elements,
        codec.elements,
        codec.bytes,
        0,
        codec.check,
        codec.packed_size,
        codec.pack,
        codec.dequantise,
        kernels_each,
        0,
        kernel_pointers_[at]};
    pointers_[at] = &schemes_[at];
  }

  std::uint32_t used_ = 0;
  kernel_set kernels_[count];
  const troupe_mm_kernel* kernel_pointers_[count][kernels_each];
  troupe_quant_scheme schemes_[count];
  const troupe_quant_scheme* pointers_[count];
};

} // namespace

} // namespace troupe::gguf_blocks

const troupe_quant_scheme* const* troupe_gguf_blocks_schemes(uint32_t* count) {
  static const troupe::gguf_blocks::scheme_list list;
  *count = troupe::gguf_blocks::scheme_list::count;
  return list.pointers();
}
