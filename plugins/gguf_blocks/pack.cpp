// SPDX-License-Identifier: Apache-2.0
// Packing and reading back of the five GGUF block types.
#include "plugins/gguf_blocks/pack.hpp"

#include "plugins/gguf_blocks/half.hpp"
#include "plugins/gguf_blocks/packed_layout.hpp"

#include <cmath>
#include <cstdio>
#include <cstring>

namespace troupe::gguf_blocks {

namespace {

/// Source: ggml, docs/gguf.md and ggml-common.h. A block is f16 scale, [f16 minimum], [u32 fifth bits],
/// codes.
template<block_type Type>
struct block_traits;
template<>
struct block_traits<block_type::q4_0> {
  using layout = nibble_layout;
  static constexpr int bits = 4;
};
template<>
struct block_traits<block_type::q4_1> {
  using layout = nibble_min_layout;
  static constexpr int bits = 4;
};
template<>
struct block_traits<block_type::q5_0> {
  using layout = byte_layout;
  static constexpr int bits = 5, zero = 16;
};
template<>
struct block_traits<block_type::q5_1> {
  using layout = byte_min_layout;
  static constexpr int bits = 5, zero = 0;
};
template<>
struct block_traits<block_type::q8_0> {
  using layout = byte_layout;
  static constexpr int bits = 8;
};

template<block_type Type>
constexpr std::size_t header_bytes = block_traits<Type>::layout::minimum ? 4 : 2;
template<block_type Type>
constexpr std::size_t block_bytes = header_bytes<Type> + (block_traits<Type>::bits == 8   ? 32
                                                          : block_traits<Type>::bits == 5 ? 20
                                                                                          : 16);

template<class Layout>
constexpr std::size_t panel_bytes(std::uint32_t k) {
  return std::size_t{k / group} * Layout::group_bytes;
}

bool is_finite_half(std::uint16_t half) {
  return (half & 0x7c00u) != 0x7c00u;
}

std::uint16_t load_u16(const std::uint8_t* from) {
  std::uint16_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// Low nibbles of 8 bytes as one word, first byte lowest.
std::uint32_t gather_nibbles(std::uint64_t bytes) {
  bytes &= 0x0f0f0f0f0f0f0f0fULL;
  bytes = (bytes | bytes >> 4) & 0x00ff00ff00ff00ffULL;
  bytes = (bytes | bytes >> 8) & 0x0000ffff0000ffffULL;
  return static_cast<std::uint32_t>(bytes | bytes >> 16);
}

/// Elements 0..15 are the low nibbles of the 16 bytes, 16..31 the high ones.
void put_nibbles(const std::uint8_t* codes, std::uint8_t* to, std::uint32_t channel) {
  for (std::uint32_t octet = 0; octet < group / 8; ++octet) {
    std::uint64_t bytes;
    std::memcpy(&bytes, codes + octet % 2 * 8, sizeof bytes);
    const std::uint32_t word = gather_nibbles(octet < 2 ? bytes : bytes >> 4);
    std::memcpy(to + (std::size_t{octet} * panel + channel) * sizeof word, &word, sizeof word);
  }
}

template<block_type Type>
void put_bytes(const std::uint8_t* codes, std::uint8_t* to, std::uint32_t channel) {
  using traits = block_traits<Type>;
  if constexpr (traits::bits == 8) {
    for (std::uint32_t i = 0; i < group; ++i) to[std::size_t{i} * panel + channel] = codes[i];
  } else {
    std::uint32_t fifth;
    std::memcpy(&fifth, codes, sizeof fifth);
    const std::uint8_t* nibbles = codes + sizeof fifth;
    for (std::uint32_t i = 0; i < group; ++i) {
      const std::uint32_t low = i < 16 ? nibbles[i] & 15u : nibbles[i - 16] >> 4;
      const int code = static_cast<int>(low | (fifth >> i & 1u) << 4) - traits::zero;
      to[std::size_t{i} * panel + channel] = static_cast<std::uint8_t>(code);
    }
  }
}

} // namespace

template<block_type Type>
const std::uint32_t codec<Type>::source_block_bytes = block_bytes<Type>;

template<block_type Type>
std::int32_t codec<Type>::check(const troupe_weight_shape* shape, troupe_text why) {
  if (shape == nullptr || shape->struct_size < sizeof *shape) return TROUPE_BAD_ARG;
  if (shape->n == 0 || shape->k == 0 || shape->k % group != 0) {
    if (why.data != nullptr && why.size > 0)
      std::snprintf(
          why.data, why.size, "shape n=%u, k=%u: n must be at least 1 and k a multiple of %u", shape->n,
          shape->k, group);
    return TROUPE_UNSUPPORTED;
  }
  return TROUPE_OK;
}

template<block_type Type>
std::int32_t codec<Type>::packed_size(const troupe_weight_shape* shape, troupe_packed_size* out) {
  if (out == nullptr || out->struct_size < sizeof *out) return TROUPE_BAD_ARG;
  if (const std::int32_t status = check(shape, {nullptr, 0}); status != TROUPE_OK) return status;
  const std::uint64_t panels = (std::uint64_t{shape->n} + panel - 1) / panel;
  // At most 2^27 panels of 2^27 groups of 1152 bytes: only the last product can leave 64 bits.
  if (__builtin_mul_overflow(panels, panel_bytes<typename block_traits<Type>::layout>(shape->k), &out->bytes))
    return TROUPE_UNSUPPORTED;
  return TROUPE_OK;
}

template<block_type Type>
std::int32_t codec<Type>::pack(
    const troupe_weight_shape* shape, const void* source, std::uint32_t n_begin, std::uint32_t n_end,
    void* packed, troupe_text why) {
  using traits = block_traits<Type>;
  using layout = typename traits::layout;
  if (const std::int32_t status = check(shape, why); status != TROUPE_OK) return status;
  const bool whole_panels = n_begin % panel == 0 && (n_end % panel == 0 || n_end == shape->n);
  if (source == nullptr || packed == nullptr || n_begin > n_end || n_end > shape->n || !whole_panels)
    return TROUPE_BAD_ARG;

  const std::uint32_t groups = shape->k / group;
  const std::size_t row_bytes = std::size_t{groups} * block_bytes<Type>;
  const std::size_t stride = panel_bytes<layout>(shape->k);
  const auto* rows = static_cast<const std::uint8_t*>(source);
  auto* panels = static_cast<std::uint8_t*>(packed);
  if (n_end == shape->n && n_end % panel != 0) std::memset(panels + n_end / panel * stride, 0, stride);

  for (std::uint32_t n = n_begin; n < n_end; ++n) {
    const std::uint32_t channel = n % panel;
    const std::uint8_t* block = rows + n * row_bytes;
    std::uint8_t* to = panels + n / panel * stride;
    for (std::uint32_t g = 0; g < groups; ++g, block += block_bytes<Type>, to += layout::group_bytes) {
      const bool finite =
          is_finite_half(load_u16(block)) && (!layout::minimum || is_finite_half(load_u16(block + 2)));
      if (!finite) {
        if (why.data != nullptr && why.size > 0)
          std::snprintf(
              why.data, why.size, "channel %u, inputs %u..%u: the block's scale is NaN or infinite", n,
              g * group, g * group + group - 1);
        return TROUPE_BAD_DATA;
      }
      std::memcpy(to + layout::scale_offset + channel * 2, block, 2);
      if constexpr (layout::minimum) std::memcpy(to + layout::minimum_offset + channel * 2, block + 2, 2);
      if constexpr (layout::nibbles)
        put_nibbles(block + header_bytes<Type>, to + layout::code_offset, channel);
      else
        put_bytes<Type>(block + header_bytes<Type>, to + layout::code_offset, channel);
    }
  }
  return TROUPE_OK;
}

template<block_type Type>
std::int32_t codec<Type>::dequantise(
    const troupe_weight_shape* shape, const void* packed, std::uint32_t n_begin, std::uint32_t n_end,
    float* out, std::uint64_t out_stride) {
  using layout = typename block_traits<Type>::layout;
  if (const std::int32_t status = check(shape, {nullptr, 0}); status != TROUPE_OK) return status;
  if (packed == nullptr || out == nullptr || n_begin > n_end || n_end > shape->n) return TROUPE_BAD_ARG;

  const std::size_t stride = panel_bytes<layout>(shape->k);
  for (std::uint32_t n = n_begin; n < n_end; ++n) {
    const std::uint32_t channel = n % panel;
    const std::uint8_t* from = static_cast<const std::uint8_t*>(packed) + n / panel * stride;
    float* row = out + (n - n_begin) * out_stride;
    for (std::uint32_t k = 0; k < shape->k; k += group, from += layout::group_bytes) {
      const float scale = half_to_float(load_u16(from + layout::scale_offset + channel * 2));
      float minimum = 0.0f;
      if constexpr (layout::minimum)
        minimum = half_to_float(load_u16(from + layout::minimum_offset + channel * 2));
      const std::uint8_t* codes = from + layout::code_offset;
      for (std::uint32_t i = 0; i < group; ++i) {
        int code;
        if constexpr (layout::nibbles) {
          std::uint32_t word;
          std::memcpy(&word, codes + (std::size_t{i / 8} * panel + channel) * sizeof word, sizeof word);
          code = static_cast<int>(word >> i % 8 * 4 & 15u) - layout::zero;
        } else {
          code = static_cast<std::int8_t>(codes[std::size_t{i} * panel + channel]);
        }
        // The product has at most 19 bits, so it is exact and the sum rounds once, as a fused multiply-add
        // does.
        const float product = scale * static_cast<float>(code);
        row[k + i] = layout::minimum ? product + minimum : product;
      }
    }
  }
  return TROUPE_OK;
}

template struct codec<block_type::q4_0>;
template struct codec<block_type::q4_1>;
template struct codec<block_type::q5_0>;
template struct codec<block_type::q5_1>;
template struct codec<block_type::q8_0>;

} // namespace troupe::gguf_blocks
