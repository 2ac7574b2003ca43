// SPDX-License-Identifier: Apache-2.0
// Paged causal attention of some rows of one sequence with one KV head, and the writing of that cache.
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::kernels {

/// Positions in one KV block, which is also the tile that attention merges at.
constexpr std::uint32_t kv_tile_tokens = 32;

/// One piece of work. A tile (block of one layer and KV head) is
///     K [head_dim][32] then V [32][head_dim], elements of the cache's type, 64-byte aligned.
struct attention_call {
  const float* q;       ///< [rows][group][head_dim]: query heads that share the KV head, rotated
  std::size_t q_stride; ///< elements between rows
  float* out;           ///< like q
  std::size_t out_stride;
  std::uint32_t rows; ///< consecutive positions
  std::uint32_t first_position;
  std::uint32_t group; ///< query heads per KV head
  std::uint32_t head_dim;
  float scale;                 ///< multiplies every score
  const std::byte* tiles;      ///< the tile of block 0
  std::size_t tile_stride;     ///< bytes from one block's tile to the next block's
  const std::uint32_t* blocks; ///< [ceil((first_position + rows) / 32) * block_step], every block_step-th
  void* scratch;               ///< attention_scratch_bytes(), 64-byte aligned
  const std::byte* after =
      nullptr;              ///< a tile that the thread will probably read next, fetched meanwhile; or null
  std::uint32_t window = 0; ///< a row reads its last `window` positions, its own included; 0 = all
  float softcap = 0;        ///< a score s becomes cap * tanh(s / cap), Inf becomes NaN; 0 = none
  std::uint32_t block_step = 1; ///< entries of `blocks` from one tile's block to the next one's
};

/// The first position that the row at `position` reads. (Internal linkage: no function that is compiled for
/// one instruction set may be the one that other files link.)
static constexpr std::uint32_t first_read(std::uint32_t position, std::uint32_t window) {
  return window == 0 || position < window ? 0 : position + 1 - window;
}

/// The tile of the 32 positions from 32 * index on. (Internal linkage, as above.)
static constexpr const std::byte* tile_at(const attention_call& call, std::uint32_t index) {
  return call.tiles + call.blocks[std::size_t{index} * call.block_step] * call.tile_stride;
}

/// out[row][head] = softmax(scale * q . K[first..position]) . V[first..position], first = 0 without a window.
/// The row at position p reads positions first..p only: what else stands in its first and last block (stale,
/// of another row, NaN) does not reach it, and blocks before them are not read. For one (row, head) the
/// operations and their order depend on p and the instruction set alone: scores are one chain over head_dim;
/// tiles merge left to right with a running maximum and sum (the reference makes two plain passes instead);
/// each output is one chain over the positions of a tile. A NaN or Inf among the read keys or values makes
/// the outputs it meets NaN or Inf. Thread: any; no allocation. Source: Milakov & Gimelshein 2018, algorithm
/// 3; Dao et al. 2022, section 3.1.
using attention_fn = void(const attention_call& call);

/// Enough for every kernel. `positions`: the longest sequence (first_position + rows).
constexpr std::size_t attention_scratch_bytes(
    std::uint32_t rows, std::uint32_t group, std::uint32_t head_dim, std::uint32_t positions) {
  const std::size_t queries = std::size_t{rows} * group, padded_dim = (std::size_t{head_dim} + 15) / 16 * 16;
  // Vector kernels: one tile of K and V widened, queries by input, sums [queries][head_dim], maxima and
  // totals, and the weights of a tile. Reference: the scores of one query.
  const std::size_t vector =
      2 * kv_tile_tokens * padded_dim + (queries + 8) * (2 * padded_dim + kv_tile_tokens + 2);
  const std::size_t plain = positions;
  return ((vector > plain ? vector : plain) * sizeof(float) + 63) / 64 * 64 + 64;
}

/// Writes one position's key and value of one head into slot 0..31 of its tile.
/// Inf, and a magnitude that becomes Inf in the cache's type, is stored as NaN, so that every row that reads
/// it is found out. Shapes: x [head_dim] f32; `tile`: the tile's first byte.
using kv_write_fn = void(const float* x, std::uint32_t head_dim, std::uint32_t slot, std::byte* tile);

/// The functions for one element type of the cache.
struct kv_functions {
  attention_fn* attention;
  kv_write_fn* write_key;
  kv_write_fn* write_value;
};

/// One set of functions per kv_type, in its order: f32, f16, bf16.
struct attention_table {
  kv_functions of[3];
};

extern const attention_table attention_ref, attention_avx2, attention_avx512;

} // namespace troupe::kernels
