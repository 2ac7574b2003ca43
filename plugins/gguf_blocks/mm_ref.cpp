// SPDX-License-Identifier: Apache-2.0
// The reference multiplication: the plainest code that any machine runs, the oracle of the others.
// One product and one sum per input, each rounded, inputs in ascending order. The other kernels fuse the two;
// they agree with each other bit for bit, and with this one within the rounding of the products.
#include "plugins/gguf_blocks/half.hpp"
#include "plugins/gguf_blocks/packed_layout.hpp"

#include <cstring>

namespace troupe::gguf_blocks {

namespace {

/// Weights [group][panel] of one group as floats.
template<class Layout>
void read_group(const std::uint8_t* from, float* weights) {
  std::uint16_t half[panel];
  float scale[panel], minimum[panel];
  std::memcpy(half, from + Layout::scale_offset, sizeof half);
  for (std::uint32_t c = 0; c < panel; ++c) scale[c] = half_to_float(half[c]);
  if constexpr (Layout::minimum) {
    std::memcpy(half, from + Layout::minimum_offset, sizeof half);
    for (std::uint32_t c = 0; c < panel; ++c) minimum[c] = half_to_float(half[c]);
  }
  const std::uint8_t* codes = from + Layout::code_offset;
  for (std::uint32_t i = 0; i < group; ++i) {
    std::uint32_t words[panel];
    if constexpr (Layout::nibbles)
      std::memcpy(words, codes + std::size_t{i / 8} * sizeof words, sizeof words);
    for (std::uint32_t c = 0; c < panel; ++c) {
      int code;
      if constexpr (Layout::nibbles)
        code = static_cast<int>(words[c] >> i % 8 * 4 & 15u) - Layout::zero;
      else
        code = static_cast<std::int8_t>(codes[std::size_t{i} * panel + c]);
      const float product = scale[c] * static_cast<float>(code);
      weights[i * panel + c] = Layout::minimum ? product + minimum[c] : product;
    }
  }
}

/// One row times one block of inputs; `sums` [panel] carries the partial sums of the earlier blocks.
void add_row(const float* a, const float* weights, std::uint32_t inputs, float* sums) {
  float sum[panel];
  std::memcpy(sum, sums, sizeof sum);
  for (std::uint32_t i = 0; i < inputs; ++i)
    for (std::uint32_t c = 0; c < panel; ++c) sum[c] += a[i] * weights[i * panel + c];
  std::memcpy(sums, sum, sizeof sum);
}

template<class Layout>
std::int32_t run(const troupe_weight_shape* shape, const troupe_mm_call* call) {
  const std::size_t stride = std::size_t{shape->k / group} * Layout::group_bytes;
  auto* weights = static_cast<float*>(call->scratch);
  for (std::uint32_t n = call->n_begin; n < call->n_end; n += panel) {
    const std::uint8_t* from = static_cast<const std::uint8_t*>(call->packed) + n / panel * stride;
    const std::uint32_t columns = call->n_end - n < panel ? call->n_end - n : panel;
    for (std::uint32_t k = 0; k < shape->k; k += k_block) {
      const std::uint32_t inputs = shape->k - k < k_block ? shape->k - k : k_block;
      for (std::uint32_t i = 0; i < inputs; i += group, from += Layout::group_bytes)
        read_group<Layout>(from, weights + std::size_t{i} * panel);
      for (std::uint32_t row = 0; row < call->m; ++row) {
        float* c = call->c + row * call->c_stride + (n - call->n_begin);
        float sums[panel] = {};
        if (k != 0) std::memcpy(sums, c, columns * sizeof(float));
        add_row(call->a + row * call->a_stride + k, weights, inputs, sums);
        std::memcpy(c, sums, columns * sizeof(float));
      }
    }
  }
  return TROUPE_OK;
}

} // namespace

const mm_functions mm_ref{run<nibble_layout>, run<nibble_min_layout>, run<byte_layout>, run<byte_min_layout>};

} // namespace troupe::gguf_blocks
