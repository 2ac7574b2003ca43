// SPDX-License-Identifier: Apache-2.0
// A model's forward pass as data: typed ops over named buffers, in the order the model reads.
#pragma once

#include "kernels/kv_groups.hpp"
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

/// Which elements of a head turn together.
enum class rope_pairs : std::uint8_t {
  adjacent, ///< (2i, 2i + 1), as GGUF stores `llama`
  halves,   ///< (i, i + dims / 2), as Hugging Face stores every model ("NEOX")
};

/// Rotary embedding (Su et al. 2021, RoFormer, eq. 34).
struct rope {
  std::uint32_t dims = 0;               ///< rotated elements of each head, even, <= head_dim
  std::vector<float> inverse_frequency; ///< [dims / 2], radians per position
  float attention_factor = 1.0F;        ///< multiplies sine and cosine
  rope_pairs pairs = rope_pairs::adjacent;
  /// LongRoPE (Ding et al. 2024): what takes the place of inverse_frequency, at all positions, in a sequence
  /// whose step_sequence::reach exceeds `original_context`; [dims / 2], or empty: there is one set only.
  std::vector<float> long_inverse_frequency;
  std::uint32_t original_context = 0;
};

/// Element type of the keys and values in the cache. `f32` is the reference path.
enum class kv_type : std::uint8_t { f32, f16, bf16 };

/// The shape of a KV block: its positions in the layers of one group (kv_groups.hpp). Every layer has the
/// same.
struct kv_layout {
  std::uint32_t block_tokens = 32; ///< positions in one block
  std::uint32_t layers = 0;        ///< of one group; the model may have fewer in some
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  kv_type type = kv_type::f16;
  std::vector<std::uint32_t> windows{0}; ///< of each group: what its layers read at most; 0 = all

  kv_groups groups() const { return kv_groups(block_tokens, windows); }
  /// Bytes of one block over the layers of a group, keys and values. Per (layer, kv head): K
  /// [head_dim][block_tokens] then V [block_tokens][head_dim].
  std::uint64_t bytes_per_block() const noexcept {
    const std::uint64_t element = type == kv_type::f32 ? 4 : 2;
    return element * 2 * block_tokens * head_dim * kv_heads * layers;
  }
};

/// out[row] = table[token of the row] * scale. table: [vocab, width].
struct embed_op {
  std::shared_ptr<const packed_weight> table;
  buffer_id out;
  float scale = 1.0F; ///< sqrt(hidden) of Gemma, embedding_multiplier of Granite
};

/// out = in / sqrt(mean(in^2) + epsilon) * weight (Zhang & Sennrich 2019, eq. 4).
struct rms_norm_op {
  buffer_id in;
  std::vector<float> weight; ///< [width]
  float epsilon;
  buffer_id out;
};

/// q | k | v = in @ W^T + bias, normalise each head of q and k, rotate them at the row's position, write k
/// and v to the row's place in the cache.
struct qkv_op {
  buffer_id in;                                              ///< [rows, hidden]
  std::vector<std::shared_ptr<const packed_weight>> weights; ///< one merged [q + k + v, hidden], or three
  std::uint32_t heads, kv_heads, head_dim;
  std::shared_ptr<const rope> rotary; ///< null: no rotation (NoPE)
  std::uint32_t layer;                ///< of the KV layout, counted in its group
  buffer_id q;                        ///< out: [rows, heads * head_dim], rotated
  std::vector<float> bias;            ///< [(heads + 2 kv_heads) * head_dim] in the order q, k, v; or empty
  std::vector<float> q_norm, k_norm;  ///< [head_dim], as rms_norm_op; or empty
  float norm_epsilon = 0;
  std::uint32_t group = 0; ///< of the KV layout
};

/// The end of qkv_op for rows that linear_op has made, where q and k are normalised over all their heads
/// together (OLMo 2): normalise, rotate, write k and v to the cache. Changes `qkv` in place.
struct place_op {
  buffer_id qkv; ///< [rows, (heads + 2 kv_heads) * head_dim], q, k, v
  std::uint32_t heads, kv_heads, head_dim;
  std::shared_ptr<const rope> rotary; ///< null: no rotation
  std::uint32_t layer;
  buffer_id q;               ///< out: [rows, heads * head_dim], rotated
  std::vector<float> q_norm; ///< [heads * head_dim], one norm over them all; or empty
  std::vector<float> k_norm; ///< [kv_heads * head_dim], likewise
  float norm_epsilon = 0;
  std::uint32_t group = 0; ///< of the KV layout
};

/// Causal attention of each row over positions [0, its position] of its sequence, or the last `window` of
/// them (grouped queries share a KV head). KV is walked in tiles at fixed absolute block boundaries, merged
/// left to right with a running maximum and sum (Milakov & Gimelshein 2018; Dao et al. 2022, section 3.1), so
/// that the result is the same whatever the batch.
struct attention_op {
  buffer_id q; ///< [rows, heads * head_dim]
  std::uint32_t heads, kv_heads, head_dim;
  float scale; ///< multiplies every score
  std::uint32_t layer;
  buffer_id out;            ///< [rows, heads * head_dim]
  std::uint32_t window = 0; ///< the row at p reads positions (p - window, p]; 0 = all
  float softcap = 0;        ///< scores become cap * tanh(score / cap); 0 = as they are
  std::uint32_t group = 0;  ///< of the KV layout; it keeps what `window` asks for
};

/// out[first ..] = in @ W^T + bias.
struct linear_op {
  buffer_id in;
  std::shared_ptr<const packed_weight> weight; ///< [n, in width]
  buffer_id out;                               ///< [rows, >= first + n]; other elements stay as they are
  std::uint32_t first = 0;                     ///< element of `out` that the first channel goes to
  std::vector<float> bias;                     ///< [n], or empty
};

/// residual += scale * (in @ W^T + bias).
struct linear_add_op {
  buffer_id in;
  std::shared_ptr<const packed_weight> weight; ///< [hidden, in width]
  buffer_id residual;                          ///< [rows, hidden], in place
  std::vector<float> bias;                     ///< [hidden], or empty
  float scale = 1.0F;                          ///< residual_multiplier of Granite
};

/// residual += scale * in. For what is normalised before it is added (Gemma 2 and 3, OLMo 2).
struct add_op {
  buffer_id in;
  buffer_id residual; ///< as wide as `in`, in place
  float scale = 1.0F;
};

/// The function of a gated layer.
enum class gate_activation : std::uint8_t {
  silu,      ///< x / (1 + exp(-x))
  gelu_tanh, ///< x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) (Hendrycks & Gimpel 2016)
};

/// out = activation(in @ Wg^T + bg) * (in @ Wu^T + bu) (Shazeer 2020, SwiGLU and GEGLU).
struct gate_up_op {
  buffer_id in;
  std::shared_ptr<const packed_weight> gate; ///< [intermediate, hidden]
  std::shared_ptr<const packed_weight> up;   ///< [intermediate, hidden]
  buffer_id out;                             ///< [rows, intermediate]
  gate_activation activation = gate_activation::silu;
  std::vector<float> gate_bias, up_bias; ///< [intermediate], or empty
};

/// A mixture of experts in the place of the gated layer (Shazeer et al. 2017; Fedus et al. 2022):
///   p = softmax(in @ Wr^T) over all experts; the `chosen` largest of a row, of equal ones the lower index;
///   w = their p, with `normalise` divided by their sum (which is the softmax over them alone);
///   residual += w_e * (activation(in @ Wg_e^T) * (in @ Wu_e^T)) @ Wd_e^T for each chosen e, in order of e.
/// The rows that chose an expert are multiplied together; neither that nor the order of the sum depends on
/// the batch. A row whose router scores are not finite becomes NaN.
struct moe_op {
  using matrices = std::vector<std::shared_ptr<const packed_weight>>;

  buffer_id in;                                ///< [rows, hidden]
  std::shared_ptr<const packed_weight> router; ///< [experts, hidden]
  /// Matrix i of a list holds experts [i * s, (i + 1) * s), s = experts / size of the list, one after the
  /// other along the output channels: one matrix for all, or one each. With s > 1 the channels of an expert
  /// must be a multiple of TROUPE_PANEL_CHANNELS.
  matrices gate, up;             ///< each expert [intermediate, hidden]
  matrices down;                 ///< each expert [hidden, intermediate]
  std::uint32_t experts, chosen; ///< 1 <= chosen <= experts
  std::uint32_t intermediate;    ///< of one expert
  buffer_id scores;              ///< scratch: [rows, experts]
  buffer_id gathered;            ///< scratch: [rows, chosen * hidden]
  buffer_id gated;               ///< scratch: [rows, chosen * intermediate]
  buffer_id residual;            ///< [rows, hidden], in place
  bool normalise = true;
  gate_activation activation = gate_activation::silu;
};

/// Copies the rows that want an output. Everything after it runs on those rows only.
struct select_rows_op {
  buffer_id in;
  buffer_id out; ///< output_rows
};

/// logits = in @ W^T * scale, capped.
struct head_op {
  buffer_id in;                                ///< output_rows, [.., hidden]
  std::shared_ptr<const packed_weight> weight; ///< [vocab, hidden]
  buffer_id logits;                            ///< output_rows, [.., vocab]
  float scale = 1.0F;                          ///< > 0; 1 / logits_scaling of Granite
  float softcap = 0;                           ///< logits become cap * tanh(logit / cap); 0 = as they are
};

/// Draws one token per output row that wants one, as its sequence's sampling_params say.
struct sample_op {
  buffer_id logits;
};

using op = std::variant<
    embed_op, rms_norm_op, qkv_op, place_op, attention_op, linear_op, linear_add_op, add_op, gate_up_op,
    moe_op, select_rows_op, head_op, sample_op>;

/// Calls `f` with each matrix that the op multiplies by, in the order of their channels.
template<class F>
void for_weights(const op& any, F f) {
  if (const auto* qkv = std::get_if<qkv_op>(&any))
    for (const auto& weight : qkv->weights) f(*weight);
  if (const auto* linear = std::get_if<linear_op>(&any)) f(*linear->weight);
  if (const auto* linear = std::get_if<linear_add_op>(&any)) f(*linear->weight);
  if (const auto* gate_up = std::get_if<gate_up_op>(&any)) {
    f(*gate_up->gate);
    f(*gate_up->up);
  }
  if (const auto* moe = std::get_if<moe_op>(&any)) {
    f(*moe->router);
    for (const auto* list : {&moe->gate, &moe->up, &moe->down})
      for (const auto& weight : *list) f(*weight);
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

  /// Sequences whose step_sequence::reach exceeds it compute other keys and values than the others do; 0: all
  /// compute the same.
  std::uint32_t reach_border() const noexcept {
    std::uint32_t border = 0;
    for (const op& one : ops)
      std::visit(
          [&](const auto& o) {
            if constexpr (requires { o.rotary; })
              if (o.rotary && !o.rotary->long_inverse_frequency.empty()) border = o.rotary->original_context;
          },
          one);
    return border;
  }
};

} // namespace troupe::kernels
