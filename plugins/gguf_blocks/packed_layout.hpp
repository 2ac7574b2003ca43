// SPDX-License-Identifier: Apache-2.0
// The packed form that pack writes, dequantise reads and every kernel multiplies by.
#pragma once

#include "troupe/ext/quant_scheme.h"

#include <cstddef>
#include <cstdint>

// Instruction-set files include this header: it holds constants and templates only, so that no function
// compiled for AVX-512 can be the one that other files link.
namespace troupe::gguf_blocks {

constexpr std::uint32_t panel = TROUPE_PANEL_CHANNELS; // channels side by side
constexpr std::uint32_t group = 32;                    // inputs that share one scale, as in the file

/// How the codes of a format are stored and turned into numbers: scale * (code - zero) + minimum.
/// A matrix is a row of panels of 32 channels; a panel is a row of groups of 32 inputs; one group is
///     f16 scale[32] | f16 minimum[32] if Minimum | codes
/// with `Nibbles`: u32 codes[4][32], word [o][c] holds inputs 8o..8o+7 of channel c, lowest nibble first;
/// else:           i8 codes[32][32], byte [i][c] is input i of channel c, its zero already taken off.
/// Channels beyond n in the last panel are all zero bits.
template<bool Nibbles, bool Minimum>
struct packed_layout {
  static constexpr std::uint32_t inputs = group;
  static constexpr bool nibbles = Nibbles;
  static constexpr bool minimum = Minimum;
  static constexpr int zero = Nibbles && !Minimum ? 8 : 0;
  static constexpr std::size_t scale_offset = 0;
  static constexpr std::size_t minimum_offset = panel * 2;
  static constexpr std::size_t code_offset = panel * (Minimum ? 4 : 2);
  static constexpr std::size_t group_bytes = code_offset + panel * group / (Nibbles ? 2 : 1);
};

using nibble_layout = packed_layout<true, false>;    // q4_0
using nibble_min_layout = packed_layout<true, true>; // q4_1
using byte_layout = packed_layout<false, false>;     // q5_0, q8_0
using byte_min_layout = packed_layout<false, true>;  // q5_1

/// Inputs dequantised at a time by the kernels for many rows: 32 channels of them are 96 KiB of scratch,
/// which with a tile of activations stays in any level-2 cache.
constexpr std::uint32_t k_block = 768;
constexpr std::uint64_t scratch_bytes = std::uint64_t{panel} * k_block * sizeof(float);

/// One multiplication kernel per layout. They live in their own files, compiled for their own machine.
using mm_function = std::int32_t (*)(const troupe_weight_shape* shape, const troupe_mm_call* call);
struct mm_functions {
  mm_function nibble, nibble_min, byte, byte_min;
};
extern const mm_functions mm_ref;
// On x86-64 only.
extern const mm_functions mm_avx2;
extern const mm_functions mm_avx512;

} // namespace troupe::gguf_blocks
