// SPDX-License-Identifier: Apache-2.0
// A model's forward pass as data: typed ops over named buffers, in the order the model reads.
#pragma once

#include "kernels/packed_weight.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace troupe::kernels {

/// Index into step_program::buffers.
using buffer_id = std::uint32_t;

/// Scratch rows of one step: [rows, width] f32, row-major.
struct buffer {
  std::string name;         ///< for dumps and messages
  std::uint32_t width = 0;  ///< elements
  bool output_rows = false; ///< one row per row that wants an output, instead of one per row of the step
};

/// Rotary embedding (Su et al. 2021, RoFormer, eq. 34). Pairs are adjacent elements (2i, 2i+1), as GGUF
/// stores `llama`.
struct rope {
  std::uint32_t dims = 0;               ///< rotated elements of each head, even, <= head_dim
  std::vector<float> inverse_frequency; ///< [dims / 2], radians per position
  float attention_factor = 1.0F;        ///< multiplies sine and cosine
};

/// Element type of the keys and values in the cache. `f32` is the reference path.
enum class kv_type : std::uint8_t { f32, f16, bf16 };

/// The shape of one layer's share of a KV block; every layer of a group has the same.
struct kv_layout {
  std::uint32_t block_tokens = 32; ///< positions in one block
  std::uint32_t layers = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  kv_type type = kv_type::f16;

  /// Bytes of one block over all layers, keys and values. Per (layer, kv head): K [head_dim][block_tokens]
  /// then V [block_tokens][head_dim].
  std::uint64_t bytes_per_block() const noexcept {
    const std::uint64_t element = type == kv_type::f32 ? 4 : 2;
    return element * 2 * block_tokens * head_dim * kv_heads * layers;
  }
};

/// out[row] = table[token of the row]. table: [vocab, width].
struct embed_op {
  std::shared_ptr<const packed_weight> table;
  buffer_id out;
};

/// out = in / sqrt(mean(in^2) + epsilon) * weight (Zhang & Sennrich 2019, eq. 4).
struct rms_norm_op {
  buffer_id in;
  std::vector<float> weight; ///< [width]
  float epsilon;
  buffer_id out;
};

/// q | k | v = in @ W^T, rotate q and k at the row's position, write k and v to the row's place in the cache.
struct qkv_op {
  buffer_id in;                                              ///< [rows, hidden]
  std::vector<std::shared_ptr<const packed_weight>> weights; ///< one merged [q + k + v, hidden], or three
  std::uint32_t heads, kv_heads, head_dim;
  std::shared_ptr<const rope> rotary;
  std::uint32_t layer; ///< of the KV layout
  buffer_id q;         ///< out: [rows, heads * head_dim], rotated
};

/// Causal attention of each row over positions [0, its position] of its sequence (grouped queries share a KV
/// head). KV is walked in tiles at fixed absolute block boundaries, merged left to right with a running
/// maximum and sum (Milakov & Gimelshein 2018; Dao et al. 2022, section 3.1), so that the result is the same
/// whatever the batch.
struct attention_op {
  buffer_id q; ///< [rows, heads * head_dim]
  std::uint32_t heads, kv_heads, head_dim;
  float scale; ///< multiplies every score
  std::uint32_t layer;
  buffer_id out; ///< [rows, heads * head_dim]
};

/// residual += in @ W^T.
struct linear_add_op {
  buffer_id in;
  std::shared_ptr<const packed_weight> weight; ///< [hidden, in width]
  buffer_id residual;                          ///< [rows, hidden], in place
};

/// out = silu(in @ Wg^T) * (in @ Wu^T) (Shazeer 2020, SwiGLU).
struct gate_up_op {
  buffer_id in;
  std::shared_ptr<const packed_weight> gate; ///< [intermediate, hidden]
  std::shared_ptr<const packed_weight> up;   ///< [intermediate, hidden]
  buffer_id out;                             ///< [rows, intermediate]
};

/// Copies the rows that want an output. Everything after it runs on those rows only.
struct select_rows_op {
  buffer_id in;
  buffer_id out; ///< output_rows
};

/// logits = in @ W^T.
struct head_op {
  buffer_id in;                                ///< output_rows, [.., hidden]
  std::shared_ptr<const packed_weight> weight; ///< [vocab, hidden]
  buffer_id logits;                            ///< output_rows, [.., vocab]
};

/// Draws one token per output row that wants one, as its sequence's sampling_params say.
struct sample_op {
  buffer_id logits;
};

using op = std::variant<
    embed_op, rms_norm_op, qkv_op, attention_op, linear_add_op, gate_up_op, select_rows_op, head_op,
    sample_op>;

/// Calls `f` with each matrix that the op multiplies by, in the order of their channels.
template<class F>
void for_weights(const op& any, F f) {
  if (const auto* qkv = std::get_if<qkv_op>(&any))
    for (const auto& weight : qkv->weights) f(*weight);
  if (const auto* linear = std::get_if<linear_add_op>(&any)) f(*linear->weight);
  if (const auto* gate_up = std::get_if<gate_up_op>(&any)) {
    f(*gate_up->gate);
    f(*gate_up->up);
  }
  if (const auto* head = std::get_if<head_op>(&any)) f(*head->weight);
}

/// Immutable once built. Shared by every step that runs under its plan.
struct step_program {
  std::vector<buffer> buffers;
  std::vector<op> ops;
  kv_layout kv;
  std::uint32_t vocab = 0;
  std::uint32_t context = 0; ///< positions the model is made for
};

} // namespace troupe::kernels
