// SPDX-License-Identifier: Apache-2.0
// What one tile of each op does.
#include "kernels/cpu_step.hpp"

#include "kernels/rope.hpp"
#include "runtime/base/checked.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::kernels {

void cpu_step::multiply(
    const packed_weight& weight, const float* in, std::size_t in_stride, std::uint32_t rows,
    std::uint32_t begin, std::uint32_t end, float* out, std::size_t out_stride, std::uint32_t worker) {
  const troupe_mm_kernel* kernel = find_mm_kernel(*weight.scheme, rows, static_cast<std::uint32_t>(level_));
  std::int32_t status = TROUPE_UNSUPPORTED;
  if (kernel != nullptr) {
    const troupe_mm_call call{
        sizeof(troupe_mm_call),        rows, begin, end, weight.data.data(), in, in_stride, out, out_stride,
        workers_[worker].kernel.data()};
    status = kernel->run(&weight.shape, &call);
  }
  note(status, weight, "multiplication", worker);
}

const float* cpu_step::angles(const rope* rotary, std::uint32_t row) const noexcept {
  const std::size_t index = std::find(ropes_.begin(), ropes_.end(), rotary) - ropes_.begin();
  return reinterpret_cast<const float*>(scratch_.data() + angles_offset_[index]) +
         std::size_t{row} * 2 * rotary->dims;
}

void cpu_step::run_angles(const planned&, std::uint32_t tile, std::uint32_t) {
  const row_range range(tile, small_rows, static_cast<std::uint32_t>(input_->rows.size()));
  for (std::size_t r = 0; r < ropes_.size(); ++r) {
    const rope& rotary = *ropes_[r];
    auto* table = reinterpret_cast<float*>(scratch_.data() + angles_offset_[r]);
    for (std::uint32_t row = range.first; row < range.last; ++row) {
      float* cosine = table + std::size_t{row} * 2 * rotary.dims;
      const step_row& at = input_->rows[row];
      rope_angles(rotary, at.position, cosine, cosine + rotary.dims, input_->sequences[at.sequence].reach);
    }
  }
}

void cpu_step::run_embed(const planned& phase, std::uint32_t tile, std::uint32_t worker) {
  const auto& o = op_of<embed_op>(phase);
  const packed_weight& table = *o.table;
  const std::uint32_t width = width_of(o.out);
  const row_range range(tile, small_rows, static_cast<std::uint32_t>(input_->rows.size()));
  for (std::uint32_t row = range.first; row < range.last; ++row) {
    const auto token = static_cast<std::uint32_t>(input_->rows[row].token);
    float* out = rows_of(o.out) + std::size_t{row} * width;
    const std::int32_t status =
        table.scheme->dequantise(&table.shape, table.data.data(), token, token + 1, out, width);
    note(status, table, "reading back", worker);
    if (o.scale != 1.0F) kernels_.scale_cap(o.scale, 0, width, out);
  }
}

void cpu_step::run_norm(const planned& phase, std::uint32_t tile, std::uint32_t) {
  const auto& o = op_of<rms_norm_op>(phase);
  const std::uint32_t width = width_of(o.out);
  const row_range range(tile, small_rows, row_count(o.out));
  for (std::uint32_t row = range.first; row < range.last; ++row) {
    const std::size_t at = std::size_t{row} * width;
    kernels_.rms_norm(rows_of(o.in) + at, o.weight.data(), o.epsilon, width, rows_of(o.out) + at);
  }
}

template<class Op>
void cpu_step::place_head(const Op& o, std::uint32_t head, std::uint32_t row, float* x) {
  const step_row& at = input_->rows[row];
  if (head < o.heads + o.kv_heads && o.rotary != nullptr) {
    const rope& rotary = *o.rotary;
    const float* cosine = angles(&rotary, row);
    const auto rotate = rotary.pairs == rope_pairs::halves ? kernels_.rotate_halves : kernels_.rotate;
    rotate(x, cosine, cosine + rotary.dims, 1, o.head_dim, rotary.dims);
  }
  if (head < o.heads) {
    float* q = rows_of(o.q) + std::size_t{row} * width_of(o.q) + std::size_t{head} * o.head_dim;
    std::memcpy(q, x, o.head_dim * sizeof(float));
    return;
  }
  const bool key = head < o.heads + o.kv_heads;
  const std::uint32_t kv_head = (head - o.heads) % o.kv_heads;
  const std::uint32_t block =
      input_->sequences[at.sequence].blocks[at.position / kv_tile_tokens * groups_ + o.group];
  std::byte* place = pool_->tiles(o.layer, kv_head) + block * pool_->tile_stride();
  const kv_functions& cache = kernels_.attention->of[static_cast<std::size_t>(pool_->layout.type)];
  (key ? cache.write_key : cache.write_value)(x, o.head_dim, at.position % kv_tile_tokens, place);
}

void cpu_step::finish_heads(
    const qkv_op& o, std::uint32_t channel, std::uint32_t channels, std::uint32_t row, float* x) {
  if (!o.bias.empty()) kernels_.add(o.bias.data() + channel, channels, x);
  for (std::uint32_t c = 0; c < channels; c += o.head_dim) {
    const std::uint32_t head = (channel + c) / o.head_dim;
    const auto& norm = head < o.heads ? o.q_norm : o.k_norm;
    if (head < o.heads + o.kv_heads && !norm.empty())
      kernels_.rms_norm(x + c, norm.data(), o.norm_epsilon, o.head_dim, x + c);
    place_head(o, head, row, x + c);
  }
}

void cpu_step::run_qkv(const planned& phase, std::uint32_t tile, std::uint32_t worker) {
  const auto& o = op_of<qkv_op>(phase);
  // Tiles count through the matrices in order; `before` channels stand in the matrices passed.
  std::uint32_t before = 0;
  std::size_t w = 0;
  for (std::uint32_t tiles; tile >= (tiles = div_up(o.weights[w]->shape.n, phase.tile_channels)); ++w) {
    tile -= tiles;
    before += o.weights[w]->shape.n;
  }
  const packed_weight& weight = *o.weights[w];
  const std::uint32_t begin = tile * phase.tile_channels;
  const std::uint32_t end = std::min(weight.shape.n, begin + phase.tile_channels);
  const std::uint32_t channels = end - begin, hidden = width_of(o.in);
  const auto rows = static_cast<std::uint32_t>(input_->rows.size());
  auto* products = reinterpret_cast<float*>(workers_[worker].products.data());
  for (std::uint32_t first = 0; first < rows; first += row_block) {
    const std::uint32_t count = std::min(row_block, rows - first);
    const float* in = rows_of(o.in) + std::size_t{first} * hidden;
    multiply(weight, in, hidden, count, begin, end, products, channels, worker);
    for (std::uint32_t row = 0; row < count; ++row)
      finish_heads(o, before + begin, channels, first + row, products + std::size_t{row} * channels);
  }
}

void cpu_step::run_place(const planned& phase, std::uint32_t tile, std::uint32_t) {
  const auto& o = op_of<place_op>(phase);
  const std::uint32_t q = o.heads * o.head_dim, kv = o.kv_heads * o.head_dim;
  const row_range range(tile, small_rows, static_cast<std::uint32_t>(input_->rows.size()));
  for (std::uint32_t row = range.first; row < range.last; ++row) {
    float* x = rows_of(o.qkv) + std::size_t{row} * width_of(o.qkv);
    if (!o.q_norm.empty()) kernels_.rms_norm(x, o.q_norm.data(), o.norm_epsilon, q, x);
    if (!o.k_norm.empty()) kernels_.rms_norm(x + q, o.k_norm.data(), o.norm_epsilon, kv, x + q);
    for (std::uint32_t head = 0; head < o.heads + 2 * o.kv_heads; ++head)
      place_head(o, head, row, x + std::size_t{head} * o.head_dim);
  }
}

void cpu_step::run_attention(const planned& phase, std::uint32_t tile, std::uint32_t worker) {
  const auto& o = op_of<attention_op>(phase);
  const attention_task& task = tasks_[tile];
  const run& of = runs_[task.run];
  const std::uint32_t group = o.heads / o.kv_heads, width = width_of(o.q), out_width = width_of(o.out);
  const std::size_t row = of.first_row + task.first, head = std::size_t{task.kv_head} * group * o.head_dim;
  const std::byte* after = nullptr; // the task in the next place is probably this worker's too
  if (tile + 1 < tasks_.size()) {
    const attention_task& next = tasks_[tile + 1];
    const run& its = runs_[next.run];
    const std::uint32_t first = first_read(its.first_position + next.first, o.window);
    const std::uint32_t block =
        input_->sequences[its.sequence].blocks[first / kv_tile_tokens * groups_ + o.group];
    after = pool_->tiles(o.layer, next.kv_head) + block * pool_->tile_stride();
  }
  const attention_call call{
      rows_of(o.q) + row * width + head,
      width,
      rows_of(o.out) + row * out_width + head,
      out_width,
      task.rows,
      of.first_position + task.first,
      group,
      o.head_dim,
      o.scale,
      pool_->tiles(o.layer, task.kv_head),
      pool_->tile_stride(),
      input_->sequences[of.sequence].blocks.data() + o.group,
      workers_[worker].attention.data(),
      after,
      o.window,
      o.softcap,
      groups_};
  kernels_.attention->of[static_cast<std::size_t>(pool_->layout.type)].attention(call);
}

void cpu_step::run_linear(const planned& phase, std::uint32_t tile, std::uint32_t worker) {
  const auto& o = op_of<linear_op>(phase);
  const std::uint32_t begin = tile * phase.tile_channels;
  const std::uint32_t end = std::min(o.weight->shape.n, begin + phase.tile_channels);
  const std::uint32_t in_width = width_of(o.in), width = width_of(o.out), rows = row_count(o.out);
  for (std::uint32_t first = 0; first < rows; first += row_block) {
    const std::uint32_t count = std::min(row_block, rows - first);
    float* out = rows_of(o.out) + std::size_t{first} * width + o.first + begin;
    multiply(
        *o.weight, rows_of(o.in) + std::size_t{first} * in_width, in_width, count, begin, end, out, width,
        worker);
    if (o.bias.empty()) continue;
    for (std::uint32_t row = 0; row < count; ++row)
      kernels_.add(o.bias.data() + begin, end - begin, out + std::size_t{row} * width);
  }
}

void cpu_step::run_add(const planned& phase, std::uint32_t tile, std::uint32_t) {
  const auto& o = op_of<add_op>(phase);
  const std::uint32_t width = width_of(o.residual);
  const row_range range(tile, small_rows, row_count(o.residual));
  for (std::uint32_t row = range.first; row < range.last; ++row) {
    const std::size_t at = std::size_t{row} * width;
    add_to_residual(rows_of(o.in) + at, o.scale, width, rows_of(o.residual) + at);
  }
}

void cpu_step::run_linear_add(const planned& phase, std::uint32_t tile, std::uint32_t worker) {
  const auto& o = op_of<linear_add_op>(phase);
  const std::uint32_t begin = tile * phase.tile_channels;
  const std::uint32_t end = std::min(o.weight->shape.n, begin + phase.tile_channels), channels = end - begin;
  const std::uint32_t in_width = width_of(o.in), width = width_of(o.residual);
  const std::uint32_t rows = row_count(o.residual);
  auto* products = reinterpret_cast<float*>(workers_[worker].products.data());
  for (std::uint32_t first = 0; first < rows; first += row_block) {
    const std::uint32_t count = std::min(row_block, rows - first);
    const float* in = rows_of(o.in) + std::size_t{first} * in_width;
    multiply(*o.weight, in, in_width, count, begin, end, products, channels, worker);
    for (std::uint32_t row = 0; row < count; ++row) {
      float* product = products + std::size_t{row} * channels;
      if (!o.bias.empty()) kernels_.add(o.bias.data() + begin, channels, product);
      add_to_residual(
          product, o.scale, channels, rows_of(o.residual) + std::size_t{first + row} * width + begin);
    }
  }
}

void cpu_step::run_gate_up(const planned& phase, std::uint32_t tile, std::uint32_t worker) {
  const auto& o = op_of<gate_up_op>(phase);
  const std::uint32_t begin = tile * phase.tile_channels;
  const std::uint32_t end = std::min(o.gate->shape.n, begin + phase.tile_channels), channels = end - begin;
  const std::uint32_t in_width = width_of(o.in), width = width_of(o.out), rows = row_count(o.out);
  auto* gates = reinterpret_cast<float*>(workers_[worker].products.data());
  float* up = gates + std::size_t{std::min(row_block, rows)} * channels;
  for (std::uint32_t first = 0; first < rows; first += row_block) {
    const std::uint32_t count = std::min(row_block, rows - first);
    const float* in = rows_of(o.in) + std::size_t{first} * in_width;
    multiply(*o.gate, in, in_width, count, begin, end, gates, channels, worker);
    multiply(*o.up, in, in_width, count, begin, end, up, channels, worker);
    for (std::uint32_t row = 0; row < count; ++row) {
      const std::size_t at = std::size_t{row} * channels;
      if (!o.gate_bias.empty()) kernels_.add(o.gate_bias.data() + begin, channels, gates + at);
      if (!o.up_bias.empty()) kernels_.add(o.up_bias.data() + begin, channels, up + at);
      apply_gate(
          o.activation, gates + at, up + at, channels,
          rows_of(o.out) + std::size_t{first + row} * width + begin);
    }
  }
}

void cpu_step::run_select(const planned& phase, std::uint32_t tile, std::uint32_t) {
  const auto& o = op_of<select_rows_op>(phase);
  const std::uint32_t width = width_of(o.out);
  const row_range range(tile, small_rows, static_cast<std::uint32_t>(output_rows_.size()));
  for (std::uint32_t output = range.first; output < range.last; ++output)
    std::memcpy(
        rows_of(o.out) + std::size_t{output} * width,
        rows_of(o.in) + std::size_t{output_rows_[output]} * width, width * sizeof(float));
}

void cpu_step::run_head(const planned& phase, std::uint32_t tile, std::uint32_t worker) {
  const auto& o = op_of<head_op>(phase);
  const std::uint32_t begin = tile * phase.tile_channels;
  const std::uint32_t end = std::min(o.weight->shape.n, begin + phase.tile_channels), channels = end - begin;
  const std::uint32_t width = width_of(o.in), vocab = width_of(o.logits);
  const auto rows = static_cast<std::uint32_t>(output_rows_.size());
  auto* peaks = reinterpret_cast<logit_peak*>(scratch_.data() + peaks_offset_);
  for (std::uint32_t first = 0; first < rows; first += row_block) {
    const std::uint32_t count = std::min(row_block, rows - first);
    // Logits leave the tile only when something beyond their largest is asked for.
    float* out = keep_logits_ ? rows_of(o.logits) + std::size_t{first} * vocab + begin
                              : reinterpret_cast<float*>(workers_[worker].products.data());
    const std::size_t stride = keep_logits_ ? vocab : channels;
    multiply(
        *o.weight, rows_of(o.in) + std::size_t{first} * width, width, count, begin, end, out, stride, worker);
    for (std::uint32_t row = 0; row < count; ++row) {
      if (o.scale != 1.0F || o.softcap > 0)
        kernels_.scale_cap(o.scale, o.softcap, channels, out + row * stride);
      logit_peak peak = kernels_.find_peak(out + row * stride, channels);
      peak.index += begin;
      peaks[std::size_t{first + row} * head_tiles_ + tile] = peak;
    }
  }
}

void cpu_step::run_sample(const planned&, std::uint32_t output, std::uint32_t worker) {
  const auto* peaks = reinterpret_cast<const logit_peak*>(scratch_.data() + peaks_offset_) +
                      std::size_t{output} * head_tiles_;
  logit_peak peak = peaks[0];
  for (std::uint32_t tile = 1; tile < head_tiles_; ++tile) {
    peak.finite = peak.finite && peaks[tile].finite;
    if (peaks[tile].value > peak.value) {
      peak.value = peaks[tile].value;
      peak.index = peaks[tile].index;
    }
  }
  answer(output, peak, workers_[worker].sampler);
}

void cpu_step::answer(std::uint32_t output, const logit_peak& peak, sampler_scratch& scratch) {
  const std::uint32_t index = output_rows_[output];
  const step_row& row = input_->rows[index];
  const step_sequence& sequence = input_->sequences[row.sequence];
  row_result& answer = results_[output];
  answer.row = index;
  answer.token = peak.finite ? static_cast<std::int32_t>(peak.index) : -1;
  if (!peak.finite) answer.flags |= row_not_finite;
  if (!keep_logits_) return;

  const std::span<const float> logits(
      rows_of(logits_) + std::size_t{output} * program_->vocab, program_->vocab);
  if (row.want == row_output::logits) std::copy(logits.begin(), logits.end(), answer.logits.begin());
  if (!peak.finite) return;
  if (row.want == row_output::score)
    answer.token = row.target;
  else if (!sequence.takes_largest())
    answer.token = sample_token(
        kernels_, logits, sequence.sampling, sequence.history, sequence.prompt_tokens, row.position + 1,
        scratch, sequence.mask.get());
  if (row.want == row_output::score || sequence.logprobs || sequence.top_logprobs > 0)
    score(logits, std::min(sequence.top_logprobs, program_->vocab), answer, scratch);
}

void cpu_step::score(
    std::span<const float> logits, std::uint32_t top, row_result& answer, sampler_scratch& scratch) const {
  const float total = log_sum_exp(kernels_, logits);
  answer.logprob = logits[static_cast<std::size_t>(answer.token)] - total;
  largest_logits(kernels_, logits, top, scratch.peaks, scratch.order.data());
  for (std::uint32_t i = 0; i < top; ++i)
    answer.top.push_back({static_cast<std::int32_t>(scratch.order[i]), logits[scratch.order[i]] - total});
}

} // namespace troupe::kernels
