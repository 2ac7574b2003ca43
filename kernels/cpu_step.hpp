// SPDX-License-Identifier: Apache-2.0
// One step on the CPU: a step_program and its rows turned into phases of independent tiles.
#pragma once

#include "kernels/backend.hpp"
#include "kernels/kernel_table.hpp"
#include "kernels/sampler.hpp"
#include "runtime/base/aligned_buffer.hpp"
#include "runtime/compute_pool.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe::kernels {

/// The KV pool as kernels see it: element [layer][block][kv head], each a tile of attention.hpp.
struct kv_pool {
  kv_layout layout;
  std::uint32_t blocks = 0;
  aligned_buffer data;

  std::size_t tile_bytes() const noexcept {
    return std::size_t{2} * layout.block_tokens * layout.head_dim * (layout.type == kv_type::f32 ? 4 : 2);
  }
  std::size_t tile_stride() const noexcept { return tile_bytes() * layout.kv_heads; }
  /// The tile of block 0.
  std::byte* tiles(std::uint32_t layer, std::uint32_t kv_head) noexcept {
    return data.data() + std::size_t{layer} * blocks * tile_stride() + kv_head * tile_bytes();
  }
  /// The tiles of one block in one layer, `tile_stride` bytes.
  std::byte* block(std::uint32_t layer, std::uint32_t number) noexcept {
    return data.data() + (std::size_t{layer} * blocks + number) * tile_stride();
  }
  const std::byte* block(std::uint32_t layer, std::uint32_t number) const noexcept {
    return data.data() + (std::size_t{layer} * blocks + number) * tile_stride();
  }
};

/// Plans and computes steps, one at a time. Memory grows in `plan` and `reserve` only.
/// Thread: `plan` and `take_result` one thread; the phases' tiles any worker, each with its own slot.
class cpu_step {
 public:
  cpu_step(isa level, unsigned workers);

  /// Checks the rows, sizes the buffers and lists the phases. Errors: internal for rows that break the
  /// contract of backend.hpp, unsupported for a weight that no kernel multiplies, no_memory.
  result<void> plan(const step_program& program, const step_input& input, kv_pool& pool);

  /// Takes and touches what `plan` needs for steps within these bounds. Errors: no_memory.
  result<void>
  reserve(const step_program& program, std::uint32_t rows, std::uint32_t outputs, std::uint32_t positions);

  /// To be run in order with this object as context; valid until the next `plan`.
  std::span<const runtime::phase> phases() const noexcept { return phases_; }

  /// After the last phase. Errors: internal when a weight format refused a call, naming both.
  result<std::vector<row_result>> take_result();

  /// Bytes held by now, for the largest step so far; the samplers' aside.
  std::uint64_t held_bytes() const noexcept;

  /// What `plan` would hold for such a step, in bytes, or a little more.
  static std::uint64_t scratch_bytes(
      const step_program& program, std::uint32_t rows, std::uint32_t outputs, std::uint32_t positions,
      unsigned workers);

 private:
  static constexpr std::uint32_t row_block =
      192; // rows multiplied at a time: their products stay in the caches
  static constexpr std::uint32_t small_rows = 8; // rows per tile of the phases that only touch memory

  /// What a phase's tiles look at: runtime::phase::op points here.
  struct planned {
    const void* of = nullptr;        ///< the op
    std::uint32_t tile_channels = 0; ///< of a multiplication
  };
  template<class Op>
  static const Op& op_of(const planned& phase) noexcept {
    return *static_cast<const Op*>(phase.of);
  }
  /// Rows [first, last) of tile `tile` when each has `per_tile`.
  struct row_range {
    std::uint32_t first, last;
    row_range(std::uint32_t tile, std::uint32_t per_tile, std::uint32_t rows) noexcept :
        first(tile * per_tile), last(rows < first + per_tile ? rows : first + per_tile) {}
  };
  using tile_fn = void (cpu_step::*)(const planned& phase, std::uint32_t tile, std::uint32_t worker);

  /// Rows of one sequence that stand together.
  struct run {
    std::uint32_t first_row, rows, sequence, first_position;
  };
  /// A piece of attention, the same in every layer.
  struct attention_task {
    std::uint32_t run, first, rows, kv_head;
    std::uint64_t cost; // positions read, of all rows
  };
  /// Which rows go to which experts, of the mixture that runs.
  struct expert_routing {
    std::vector<std::uint32_t> expert; // [rows][chosen], ascending within a row
    std::vector<float> weight;         // [rows][chosen]
    std::vector<std::uint32_t> place;  // [rows][chosen] row of moe_op::gathered
    std::vector<std::uint32_t> first;  // [experts + 1] first row of moe_op::gathered, by expert
    std::vector<std::uint32_t> active; // [active_count] experts that have rows, ascending
    std::uint32_t active_count = 0;

    void grow(std::uint32_t experts, std::size_t entries);
    std::uint64_t bytes() const noexcept {
      return sizeof(float) * (3 * expert.size() + first.size() + active.size());
    }
  };
  struct worker_memory {
    aligned_buffer products;  // [row_block][2 * tile channels] f32
    aligned_buffer kernel;    // scratch of the multiplication
    aligned_buffer attention; // scratch of attention
    sampler_scratch sampler;
  };

  /// A function of a weight format that did not do what it was asked to.
  struct refusal {
    std::int32_t status = TROUPE_OK;
    const char* scheme = "";
    const char* doing = "";
  };

  result<void> check_rows(const step_program& program, const step_input& input, const kv_pool& pool);
  static result<void> check_copies(std::span<const kv_copy> copies, const kv_pool& pool);
  /// Whether the scheme of every matrix has a kernel for the rows that will meet it.
  result<void> check_kernels(const step_program& program) const;
  result<void> size_memory(const step_program& program);
  /// Bounds of what `size_memory` asks for, in bytes.
  struct sizes {
    std::uint64_t scratch = 0;
    std::uint32_t experts = 0, entries = 0;                // of expert_routing
    std::uint64_t products = 0, kernel = 0, attention = 0; // of each worker
  };
  static sizes sizes_of(
      const step_program& program, std::uint32_t rows, std::uint32_t outputs, std::uint32_t positions,
      unsigned workers, isa level);
  void list_phases(const step_program& program);
  void list_attention_tasks(const attention_op& attention);
  void list_expert_phases(const moe_op& o);
  /// Output channels of a tile, of `n` in all with `k` inputs each, for `rows` rows; a multiple of `unit`.
  std::uint32_t
  channels_per_tile(std::uint32_t n, std::uint32_t k, std::uint32_t rows, std::uint32_t unit) const;
  std::uint32_t channels_per_tile(const packed_weight& weight, std::uint32_t rows, std::uint32_t unit) const {
    return channels_per_tile(weight.shape.n, weight.shape.k, rows, unit);
  }
  template<tile_fn Tile>
  void
  add(const char* name, std::uint32_t tiles, std::uint32_t claim, const void* of,
      std::uint32_t tile_channels = 0);
  float* rows_of(buffer_id id) noexcept;
  std::uint32_t row_count(buffer_id id) const noexcept;
  std::uint32_t width_of(buffer_id id) const noexcept { return program_->buffers[id].width; }
  void multiply(
      const packed_weight& weight, const float* in, std::size_t in_stride, std::uint32_t rows,
      std::uint32_t begin, std::uint32_t end, float* out, std::size_t out_stride, std::uint32_t worker);

  /// Remembers a status that is not OK, the first one of the worker.
  void
  note(std::int32_t status, const packed_weight& weight, const char* doing, std::uint32_t worker) noexcept {
    if (status != TROUPE_OK && refusals_[worker].status == TROUPE_OK)
      refusals_[worker] = {status, weight.scheme->id, doing};
  }

  void run_copy(const planned& phase, std::uint32_t tile, std::uint32_t worker);
  void run_angles(const planned& phase, std::uint32_t tile, std::uint32_t worker);
  void run_embed(const planned& phase, std::uint32_t tile, std::uint32_t worker);
  void run_norm(const planned& phase, std::uint32_t tile, std::uint32_t worker);
  void run_qkv(const planned& phase, std::uint32_t tile, std::uint32_t worker);
  void run_place(const planned& phase, std::uint32_t tile, std::uint32_t worker);
  void run_attention(const planned& phase, std::uint32_t tile, std::uint32_t worker);
  void run_linear(const planned& phase, std::uint32_t tile, std::uint32_t worker);
  void run_linear_add(const planned& phase, std::uint32_t tile, std::uint32_t worker);
  void run_add(const planned& phase, std::uint32_t tile, std::uint32_t worker);
  void run_gate_up(const planned& phase, std::uint32_t tile, std::uint32_t worker);
  void run_router(const planned& phase, std::uint32_t tile, std::uint32_t worker);
  void run_choice(const planned& phase, std::uint32_t tile, std::uint32_t worker);
  void run_grouping(const planned& phase, std::uint32_t tile, std::uint32_t worker);
  void run_gather(const planned& phase, std::uint32_t tile, std::uint32_t worker);
  void run_expert_gate_up(const planned& phase, std::uint32_t tile, std::uint32_t worker);
  void run_expert_down(const planned& phase, std::uint32_t tile, std::uint32_t worker);
  void run_expert_sum(const planned& phase, std::uint32_t tile, std::uint32_t worker);
  void run_select(const planned& phase, std::uint32_t tile, std::uint32_t worker);
  void run_head(const planned& phase, std::uint32_t tile, std::uint32_t worker);
  void run_sample(const planned& phase, std::uint32_t tile, std::uint32_t worker);
  /// Rotates head `head` of q | k | v at x and puts it where it belongs. `Op`: qkv_op or place_op.
  template<class Op>
  void place_head(const Op& o, std::uint32_t head, std::uint32_t row, float* x);
  /// The products [channel, channel + channels) of q | k | v in one row: bias, norms, then place_head.
  void
  finish_heads(const qkv_op& o, std::uint32_t channel, std::uint32_t channels, std::uint32_t row, float* x);
  void add_to_residual(const float* from, float scale, std::uint32_t count, float* to) {
    if (scale == 1.0F)
      kernels_.add(from, count, to);
    else
      kernels_.add_scaled(from, scale, count, to);
  }
  void apply_gate(
      gate_activation activation, const float* gate, const float* up, std::uint32_t count, float* out) {
    (activation == gate_activation::silu ? kernels_.silu_mul : kernels_.gelu_mul)(gate, up, count, out);
  }
  const float* angles(const rope* rotary, std::uint32_t row) const noexcept;
  void answer(std::uint32_t output, const logit_peak& peak, sampler_scratch& scratch);
  /// The log probability of answer.token, and the most likely tokens: of the logits as the model gave them.
  void
  score(std::span<const float> logits, std::uint32_t top, row_result& answer, sampler_scratch& scratch) const;

  const kernel_table& kernels_;
  const isa level_;
  const step_program* program_ = nullptr;
  const step_input* input_ = nullptr;
  kv_pool* pool_ = nullptr;
  std::uint32_t groups_ = 1; // of the pool's layout

  std::vector<run> runs_;
  std::vector<std::uint32_t> output_rows_; // rows of the step that want an output
  bool keep_logits_ = false;               // some output row needs more than the largest logit
  std::vector<attention_task> tasks_;
  std::vector<planned> planned_;
  std::vector<runtime::phase> phases_;
  std::vector<row_result> results_;
  expert_routing routing_;

  aligned_buffer scratch_;
  buffer_id logits_ = 0;                   // the head's buffer; it has no rows unless keep_logits_
  std::vector<std::size_t> buffer_offset_; // bytes into scratch_, by buffer_id
  std::vector<const rope*> ropes_;         // the program's distinct rotations
  std::vector<std::size_t> angles_offset_; // of each: [rows][2][dims] cosine, sine
  std::size_t peaks_offset_ = 0;           // [outputs][head tiles] logit_peak
  std::uint32_t head_tiles_ = 0;
  std::vector<worker_memory> workers_;
  std::vector<refusal> refusals_; // the first of each worker
};

} // namespace troupe::kernels
