// SPDX-License-Identifier: Apache-2.0
// Packing, reading back and the reference multiplication of the formats whose blocks stay as they are.
#include "plugins/gguf_blocks/tile_codec.hpp"

#include "plugins/gguf_blocks/tile_layout.hpp"

#include <cstdio>
#include <cstring>

namespace troupe::gguf_blocks {

namespace {

template<class Format>
constexpr std::size_t tile_bytes = tile_layout<Format>::group_bytes;

template<class Format>
std::size_t panel_bytes(const troupe_weight_shape& shape) {
  return std::size_t{shape.k / Format::elements} * tile_bytes<Format>;
}

template<class Format>
std::int32_t check(const troupe_weight_shape* shape, troupe_text why) {
  if (shape == nullptr || shape->struct_size < sizeof *shape) return TROUPE_BAD_ARG;
  if (shape->n > 0 && shape->k > 0 && shape->k % Format::elements == 0) return TROUPE_OK;
  if (why.data != nullptr && why.size > 0)
    std::snprintf(
        why.data, why.size, "shape n=%u, k=%u: n must be at least 1 and k a multiple of %u", shape->n,
        shape->k, Format::elements);
  return TROUPE_UNSUPPORTED;
}

template<class Format>
std::int32_t packed_size(const troupe_weight_shape* shape, troupe_packed_size* out) {
  if (out == nullptr || out->struct_size < sizeof *out) return TROUPE_BAD_ARG;
  if (const std::int32_t status = check<Format>(shape, {nullptr, 0}); status != TROUPE_OK) return status;
  const std::uint64_t panels = (std::uint64_t{shape->n} + panel - 1) / panel;
  // A panel has at most 2^27 tiles of 6720 bytes: only this product can leave 64 bits.
  if (__builtin_mul_overflow(panels, panel_bytes<Format>(*shape), &out->bytes)) return TROUPE_UNSUPPORTED;
  return TROUPE_OK;
}

/// Exchanges rows and columns of 8 x 8 bytes: byte j of word i becomes byte i of word j.
void transpose(std::uint64_t (&words)[8]) {
  const auto exchange = [&](int distance, std::uint64_t low) {
    for (int i = 0; i < 8; ++i) {
      if ((i & distance) != 0) continue;
      const int shift = distance * 8;
      const std::uint64_t moved = (words[i] >> shift ^ words[i + distance]) & low;
      words[i] ^= moved << shift;
      words[i + distance] ^= moved;
    }
  };
  exchange(4, 0x00000000ffffffffULL);
  exchange(2, 0x0000ffff0000ffffULL);
  exchange(1, 0x00ff00ff00ff00ffULL);
}

/// Writes the blocks of up to 32 channels, `row_bytes` apart, as one tile.
template<class Format>
void put_tile(const std::uint8_t* blocks, std::size_t row_bytes, std::uint32_t channels, std::uint8_t* tile) {
  constexpr std::uint32_t last = Format::bytes - 8;
  for (std::uint32_t first = 0; first < panel; first += 8)
    for (std::uint32_t b = 0;; b = b + 8 < last ? b + 8 : last) { // the last eight may overlap those before
      std::uint64_t words[8] = {};
      for (std::uint32_t c = first; c < first + 8 && c < channels; ++c)
        std::memcpy(&words[c - first], blocks + c * row_bytes + b, 8);
      transpose(words);
      for (std::uint32_t i = 0; i < 8; ++i)
        std::memcpy(tile + std::size_t{b + i} * panel + first, &words[i], 8);
      if (b == last) break;
    }
}

/// Channel `channel`'s block out of a tile.
template<class Format>
void take_block(const std::uint8_t* tile, std::uint32_t channel, std::uint8_t* block) {
  for (std::uint32_t b = 0; b < Format::bytes; ++b) block[b] = tile[std::size_t{b} * panel + channel];
}

std::int32_t refuse_scale(std::uint32_t channel, std::uint32_t first, std::uint32_t count, troupe_text why) {
  if (why.data != nullptr && why.size > 0)
    std::snprintf(
        why.data, why.size, "channel %u, inputs %u..%u: the block's scale is NaN or infinite", channel, first,
        first + count - 1);
  return TROUPE_BAD_DATA;
}

template<class Format>
std::int32_t pack(
    const troupe_weight_shape* shape, const void* source, std::uint32_t n_begin, std::uint32_t n_end,
    void* packed, troupe_text why) {
  if (const std::int32_t status = check<Format>(shape, why); status != TROUPE_OK) return status;
  const bool whole_panels = n_begin % panel == 0 && (n_end % panel == 0 || n_end == shape->n);
  if (source == nullptr || packed == nullptr || n_begin > n_end || n_end > shape->n || !whole_panels)
    return TROUPE_BAD_ARG;

  const std::uint32_t blocks = shape->k / Format::elements;
  const std::size_t row_bytes = std::size_t{blocks} * Format::bytes;
  for (std::uint32_t n = n_begin; n < n_end; n += panel) {
    const std::uint32_t channels = n_end - n < panel ? n_end - n : panel;
    const auto* rows = static_cast<const std::uint8_t*>(source) + n * row_bytes;
    for (std::uint32_t c = 0; c < channels; ++c)
      for (std::uint32_t b = 0; b < blocks; ++b)
        if (!Format::is_finite(rows + c * row_bytes + std::size_t{b} * Format::bytes))
          return refuse_scale(n + c, b * Format::elements, Format::elements, why);
    auto* tile = static_cast<std::uint8_t*>(packed) + n / panel * panel_bytes<Format>(*shape);
    for (std::uint32_t b = 0; b < blocks; ++b, rows += Format::bytes, tile += tile_bytes<Format>)
      put_tile<Format>(rows, row_bytes, channels, tile);
  }
  return TROUPE_OK;
}

template<class Format>
std::int32_t dequantise(
    const troupe_weight_shape* shape, const void* packed, std::uint32_t n_begin, std::uint32_t n_end,
    float* out, std::uint64_t out_stride) {
  if (const std::int32_t status = check<Format>(shape, {nullptr, 0}); status != TROUPE_OK) return status;
  if (packed == nullptr || out == nullptr || n_begin > n_end || n_end > shape->n) return TROUPE_BAD_ARG;
  for (std::uint32_t n = n_begin; n < n_end; ++n) {
    const auto* tile = static_cast<const std::uint8_t*>(packed) + n / panel * panel_bytes<Format>(*shape);
    float* row = out + (n - n_begin) * out_stride;
    for (std::uint32_t k = 0; k < shape->k; k += Format::elements, tile += tile_bytes<Format>) {
      std::uint8_t block[Format::bytes];
      take_block<Format>(tile, n % panel, block);
      Format::decode(block, row + k);
    }
  }
  return TROUPE_OK;
}

/// Weights [inputs][panel] of one tile.
template<class Format>
void read_tile(const std::uint8_t* tile, float* weights) {
  for (std::uint32_t c = 0; c < panel; ++c) {
    std::uint8_t block[Format::bytes];
    float numbers[Format::elements];
    take_block<Format>(tile, c, block);
    Format::decode(block, numbers);
    for (std::uint32_t i = 0; i < Format::elements; ++i) weights[std::size_t{i} * panel + c] = numbers[i];
  }
}

/// One product and one sum per input, each rounded, inputs in ascending order: see mm_ref.cpp.
template<class Format>
std::int32_t multiply(const troupe_weight_shape* shape, const troupe_mm_call* call) {
  auto* weights = static_cast<float*>(call->scratch);
  for (std::uint32_t n = call->n_begin; n < call->n_end; n += panel) {
    const auto* tile =
        static_cast<const std::uint8_t*>(call->packed) + n / panel * panel_bytes<Format>(*shape);
    const std::uint32_t columns = call->n_end - n < panel ? call->n_end - n : panel;
    for (std::uint32_t k = 0; k < shape->k; k += Format::elements, tile += tile_bytes<Format>) {
      read_tile<Format>(tile, weights);
      for (std::uint32_t row = 0; row < call->m; ++row) {
        const float* a = call->a + row * call->a_stride + k;
        float* c = call->c + row * call->c_stride + (n - call->n_begin);
        float sums[panel] = {};
        if (k != 0) std::memcpy(sums, c, columns * sizeof(float));
        for (std::uint32_t i = 0; i < Format::elements; ++i)
          for (std::uint32_t j = 0; j < panel; ++j) sums[j] += a[i] * weights[std::size_t{i} * panel + j];
        std::memcpy(c, sums, columns * sizeof(float));
      }
    }
  }
  return TROUPE_OK;
}

template<class... Formats>
constexpr std::array<scheme_codec, tiled_formats::count> codecs_of(format_list<Formats...>) {
  return {scheme_codec{
      Formats::id, Formats::elements, Formats::bytes, check<Formats>, packed_size<Formats>, pack<Formats>,
      dequantise<Formats>}...};
}

template<class... Formats>
constexpr tile_mm_functions functions_of(format_list<Formats...>) {
  return {multiply<Formats>...};
}

} // namespace

const std::array<scheme_codec, tiled_formats::count> tile_codecs = codecs_of(tiled_formats{});
const tile_mm_functions tile_mm_ref = functions_of(tiled_formats{});

} // namespace troupe::gguf_blocks
