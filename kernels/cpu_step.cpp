// SPDX-License-Identifier: Apache-2.0
// Planning of a step: its rows are checked, its memory sized, its phases listed.
#include "kernels/cpu_step.hpp"

#include "kernels/rope.hpp"
#include "runtime/base/checked.hpp"
#include "runtime/base/footprint.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>

namespace troupe::kernels {

namespace {

constexpr std::uint32_t attention_rows =
    16; // per task: enough to share a tile's widening, few enough to balance
constexpr std::uint64_t tile_products =
    150000; // multiply-adds that make a claim worth its price: some microseconds

constexpr std::uint32_t abreast_channels = 4 * TROUPE_PANEL_CHANNELS; // of a tile for one row

template<class... F>
struct overloaded : F... {
  using F::operator()...;
};
template<class... F>
overloaded(F...) -> overloaded<F...>;

/// The program's distinct rotations.
std::vector<const rope*> ropes_of(const step_program& program) {
  std::vector<const rope*> ropes;
  const auto meet = [&](const rope* rotary) {
    if (rotary != nullptr && std::find(ropes.begin(), ropes.end(), rotary) == ropes.end())
      ropes.push_back(rotary);
  };
  for (const op& any : program.ops) {
    if (const auto* qkv = std::get_if<qkv_op>(&any)) meet(qkv->rotary.get());
    if (const auto* place = std::get_if<place_op>(&any)) meet(place->rotary.get());
  }
  return ropes;
}

error broken(std::string what) {
  return {errc::internal, "step: " + std::move(what), {}, 0};
}

/// The largest scratch that any kernel of the program's matrices asks for, up to `level`.
std::uint64_t kernel_scratch(const step_program& program, isa level) {
  std::uint64_t largest = 0;
  for (const op& any : program.ops) {
    for_weights(any, [&](const packed_weight& weight) {
      for (std::uint32_t i = 0; i < weight.scheme->mm_count; ++i) {
        const troupe_mm_kernel& kernel = *weight.scheme->mm[i];
        if (kernel.isa <= static_cast<std::uint32_t>(level) && kernel.scratch_bytes != nullptr)
          largest = std::max(largest, kernel.scratch_bytes(&weight.shape));
      }
    });
  }
  return largest;
}

/// No less than the phases that `list_phases` adds.
std::size_t phase_count(const step_program& program) {
  constexpr std::size_t of_experts = 7;
  std::size_t phases = 2; // copies, angles
  for (const op& any : program.ops) phases += std::holds_alternative<moe_op>(any) ? of_experts : 1;
  return phases;
}

/// Heads are finished where they are multiplied, so a tile holds whole heads and whole panels.
std::uint32_t head_unit(std::uint32_t head_dim) {
  return std::lcm(TROUPE_PANEL_CHANNELS, head_dim);
}

std::uint32_t tiles_of(std::uint32_t count, std::uint32_t per_tile) {
  return div_up(count, per_tile);
}

result<void> grow(aligned_buffer& buffer, std::uint64_t bytes) {
  if (buffer.size() >= bytes) return {};
  buffer = aligned_buffer{}; // the old one first: its content is not needed
  auto fresh = aligned_buffer::allocate(bytes);
  if (!fresh) return fresh.error();
  buffer = std::move(*fresh);
  return {};
}

} // namespace

cpu_step::cpu_step(isa level, unsigned workers) :
    kernels_(kernels_for(level)), level_(level), workers_(workers), refusals_(workers) {}

result<void> cpu_step::plan(const step_program& program, const step_input& input, kv_pool& pool) {
  program_ = &program;
  input_ = &input;
  pool_ = &pool;
  phases_.clear();
  planned_.clear();
  planned_.reserve(phase_count(program)); // the phases point into it
  if (auto checked = check_rows(program, input, pool); !checked) return checked;
  if (auto checked = check_copies(input.copies, pool); !checked) return checked;
  if (auto checked = check_kernels(program); !checked) return checked;
  list_phases(program);
  std::fill(refusals_.begin(), refusals_.end(), refusal{});
  // Tiles must not allocate, so the answers get their room here.
  results_.assign(output_rows_.size(), {});
  for (std::size_t i = 0; i < output_rows_.size(); ++i) {
    const step_row& row = input.rows[output_rows_[i]];
    if (row.want == row_output::logits) results_[i].logits.resize(program.vocab);
    results_[i].top.reserve(std::min(input.sequences[row.sequence].top_logprobs, program.vocab));
  }
  return size_memory(program);
}

result<void> cpu_step::check_rows(const step_program& program, const step_input& input, const kv_pool& pool) {
  const auto& layout = pool.layout;
  if (layout.layers != program.kv.layers || layout.kv_heads != program.kv.kv_heads ||
      layout.head_dim != program.kv.head_dim || layout.type != program.kv.type ||
      layout.windows != program.kv.windows)
    return broken("the program's KV layout is not that of the pool");
  if (input.rows.empty()) return broken("it has no rows");
  const kv_groups groups = layout.groups();
  groups_ = groups.size();
  runs_.clear();
  output_rows_.clear();
  keep_logits_ = false;
  for (std::uint32_t i = 0; i < input.rows.size(); ++i) {
    const step_row& row = input.rows[i];
    const std::string name = "row " + std::to_string(i);
    if (row.sequence >= input.sequences.size()) return broken(name + " names a sequence that is not there");
    if (row.token < 0 || static_cast<std::uint32_t>(row.token) >= program.vocab)
      return broken(name + ": token " + std::to_string(row.token) + " is outside the vocabulary");
    const step_sequence& sequence = input.sequences[row.sequence];
    if (row.position / kv_tile_tokens >= sequence.blocks.size() / groups_)
      return broken(name + ": position " + std::to_string(row.position) + " is beyond the block table");
    if (runs_.empty() || runs_.back().sequence != row.sequence)
      runs_.push_back({i, 0, row.sequence, row.position});
    run& current = runs_.back();
    if (row.position != current.first_position + current.rows)
      return broken(name + ": the positions of a sequence must ascend by one");
    ++current.rows;
    if (row.want == row_output::none) continue;
    if (row.want == row_output::score && static_cast<std::uint32_t>(row.target) >= program.vocab)
      return broken(name + ": its target " + std::to_string(row.target) + " is outside the vocabulary");
    output_rows_.push_back(i);
    keep_logits_ = keep_logits_ || row.want == row_output::logits || row.want == row_output::score ||
                   !sequence.takes_largest() || sequence.logprobs || sequence.top_logprobs > 0;
  }
  for (const run& current : runs_) {
    const auto& blocks = input.sequences[current.sequence].blocks;
    std::uint32_t missing = 0; // of those that its rows read or write; others may be anybody's by now
    bool all_there = true;
    groups.for_present(
        0, groups.indices(current.first_position + current.rows), current.first_position,
        [&](std::uint32_t entry) {
          if (blocks[entry] >= pool.blocks) missing = blocks[entry], all_there = false;
        });
    if (!all_there) return broken("block " + std::to_string(missing) + " is outside the pool");
  }
  return {};
}

result<void> cpu_step::check_kernels(const step_program& program) const {
  const auto rows = static_cast<std::uint32_t>(input_->rows.size());
  const auto outputs = static_cast<std::uint32_t>(output_rows_.size());
  const packed_weight* lacking = nullptr;
  const auto serves = [&](const packed_weight& weight, std::uint32_t m) {
    return find_mm_kernel(*weight.scheme, m, static_cast<std::uint32_t>(level_)) != nullptr;
  };
  for (const op& any : program.ops) {
    // Rows are multiplied `row_block` at a time, and what is left.
    const std::uint32_t count = std::holds_alternative<head_op>(any) ? outputs : rows;
    const bool any_count = std::holds_alternative<moe_op>(any); // as many rows as choose an expert
    const troupe_quant_scheme* checked = nullptr;
    for_weights(any, [&](const packed_weight& weight) {
      if (weight.scheme == checked) return;
      checked = weight.scheme;
      for (const std::uint32_t m : {std::min(count, row_block), count % row_block})
        if (m != 0 && !serves(weight, m)) lacking = &weight;
      for (std::uint32_t m = 1; any_count && m < std::min(count, row_block); ++m)
        if (!serves(weight, m)) lacking = &weight;
    });
  }
  if (lacking == nullptr) return {};
  return error{
      errc::unsupported,
      "step: no kernel up to " + std::string(isa_name(level_)) + " multiplies a matrix of " +
          lacking->scheme->id,
      {},
      0};
}

template<cpu_step::tile_fn Tile>
void cpu_step::add(
    const char* name, std::uint32_t tiles, std::uint32_t claim, const void* of, std::uint32_t tile_channels) {
  if (tiles == 0) return;
  const auto run_tile = [](void* step, const void* phase, std::uint32_t tile, std::uint32_t slot) noexcept {
    (static_cast<cpu_step*>(step)->*Tile)(*static_cast<const planned*>(phase), tile, slot);
  };
  planned_.push_back({of, tile_channels});
  phases_.push_back({tiles, claim, run_tile, &planned_.back(), name});
}

std::uint32_t
cpu_step::channels_per_tile(std::uint32_t n, std::uint32_t k, std::uint32_t rows, std::uint32_t unit) const {
  const std::uint64_t products = std::uint64_t{rows} * k * unit;
  const auto worth = static_cast<std::uint32_t>(div_up(tile_products, std::max<std::uint64_t>(products, 1)));
  // Enough tiles for every worker to find some, but panels side by side for few rows, whose chains would
  // wait.
  const std::uint32_t balanced = div_up(n, static_cast<std::uint32_t>(workers_.size()) * 4);
  const std::uint32_t abreast = rows == 1 ? abreast_channels : rows <= 3 ? 2 * TROUPE_PANEL_CHANNELS : 1;
  return round_up(std::max(std::min(worth * unit, balanced), abreast), unit);
}

void cpu_step::list_phases(const step_program& program) {
  const auto rows = static_cast<std::uint32_t>(input_->rows.size());
  const auto outputs = static_cast<std::uint32_t>(output_rows_.size());
  const auto count = [&](buffer_id id) { return row_count(id); };
  tasks_.clear();
  head_tiles_ = 0;
  ropes_ = ropes_of(program);
  // First of all: the rows' keys and values go into the same blocks, and attention reads both.
  add<&cpu_step::run_copy>(
      "copy", static_cast<std::uint32_t>(input_->copies.size()) * program.kv.layers, 1, nullptr);
  add<&cpu_step::run_angles>("angles", tiles_of(rows, small_rows), 1, nullptr);
  for (const op& any : program.ops) {
    std::visit(
        overloaded{
            [&](const embed_op& o) { add<&cpu_step::run_embed>("embed", tiles_of(rows, small_rows), 1, &o); },
            [&](const rms_norm_op& o) {
              add<&cpu_step::run_norm>("norm", tiles_of(count(o.out), small_rows), 1, &o);
            },
            [&](const qkv_op& o) {
              const std::uint32_t channels =
                  channels_per_tile(*o.weights.front(), rows, head_unit(o.head_dim));
              std::uint32_t tiles = 0;
              for (const auto& weight : o.weights) tiles += tiles_of(weight->shape.n, channels);
              add<&cpu_step::run_qkv>("qkv", tiles, 1, &o, channels);
            },
            [&](const place_op& o) { add<&cpu_step::run_place>("place", tiles_of(rows, small_rows), 1, &o); },
            [&](const attention_op& o) {
              if (tasks_.empty()) list_attention_tasks(o);
              add<&cpu_step::run_attention>("attention", static_cast<std::uint32_t>(tasks_.size()), 1, &o);
            },
            [&](const linear_op& o) {
              const std::uint32_t channels =
                  channels_per_tile(*o.weight, count(o.out), TROUPE_PANEL_CHANNELS);
              add<&cpu_step::run_linear>("linear", tiles_of(o.weight->shape.n, channels), 1, &o, channels);
            },
            [&](const add_op& o) {
              add<&cpu_step::run_add>("add", tiles_of(count(o.residual), small_rows), 1, &o);
            },
            [&](const linear_add_op& o) {
              const std::uint32_t channels =
                  channels_per_tile(*o.weight, count(o.residual), TROUPE_PANEL_CHANNELS);
              add<&cpu_step::run_linear_add>(
                  "linear", tiles_of(o.weight->shape.n, channels), 1, &o, channels);
            },
            [&](const gate_up_op& o) {
              const std::uint32_t channels = channels_per_tile(*o.gate, count(o.out), TROUPE_PANEL_CHANNELS);
              add<&cpu_step::run_gate_up>("gate_up", tiles_of(o.gate->shape.n, channels), 1, &o, channels);
            },
            [&](const moe_op& o) { list_expert_phases(o); },
            [&](const select_rows_op& o) {
              add<&cpu_step::run_select>("select", tiles_of(outputs, small_rows), 1, &o);
            },
            [&](const head_op& o) {
              const std::uint32_t channels = channels_per_tile(*o.weight, outputs, TROUPE_PANEL_CHANNELS);
              head_tiles_ = tiles_of(o.weight->shape.n, channels);
              logits_ = o.logits;
              add<&cpu_step::run_head>("head", head_tiles_, 1, &o, channels);
            },
            [&](const sample_op& o) { add<&cpu_step::run_sample>("sample", outputs, 1, &o); },
        },
        any);
    // Without an output the tail of the program has nothing to compute.
    if (outputs == 0 && std::holds_alternative<select_rows_op>(any)) break;
  }
}

void cpu_step::list_expert_phases(const moe_op& o) {
  const auto rows = static_cast<std::uint32_t>(input_->rows.size());
  const std::uint32_t hidden = width_of(o.in);
  const std::uint32_t row_tiles = div_up(rows, small_rows);
  // At most so many experts have rows, each of them about so many.
  const auto busy =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(o.experts, std::uint64_t{rows} * o.chosen));
  const auto each = static_cast<std::uint32_t>(div_up(std::uint64_t{rows} * o.chosen, std::uint64_t{busy}));
  const auto channels = [&](std::uint32_t n, std::uint32_t k, std::uint32_t m) {
    return channels_per_tile(n, k, m, TROUPE_PANEL_CHANNELS);
  };
  const std::uint32_t score = channels(o.experts, hidden, rows);
  const std::uint32_t gate = channels(o.intermediate, hidden, each);
  const std::uint32_t down = channels(hidden, o.intermediate, each);
  add<&cpu_step::run_router>("router", div_up(o.experts, score), 1, &o, score);
  add<&cpu_step::run_choice>("router", row_tiles, 1, &o);
  add<&cpu_step::run_grouping>("router", 1, 1, &o);
  add<&cpu_step::run_gather>("router", row_tiles, 1, &o);
  add<&cpu_step::run_expert_gate_up>("experts", busy * div_up(o.intermediate, gate), 1, &o, gate);
  add<&cpu_step::run_expert_down>("experts", busy * div_up(hidden, down), 1, &o, down);
  add<&cpu_step::run_expert_sum>("experts", row_tiles, 1, &o);
}

void cpu_step::list_attention_tasks(const attention_op& attention) {
  for (std::uint32_t r = 0; r < runs_.size(); ++r) {
    for (std::uint32_t first = 0; first < runs_[r].rows; first += attention_rows) {
      const std::uint32_t rows = std::min(attention_rows, runs_[r].rows - first);
      const std::uint64_t cost = std::uint64_t{rows} * (runs_[r].first_position + first + rows);
      for (std::uint32_t head = 0; head < attention.kv_heads; ++head)
        tasks_.push_back({r, first, rows, head, cost});
    }
  }
  // The longest first, so that the last ones to be claimed are short; dealt out to the workers, whose shares
  // of a phase are equal runs of tiles.
  std::stable_sort(tasks_.begin(), tasks_.end(), [](const attention_task& a, const attention_task& b) {
    return a.cost > b.cost;
  });
  const std::size_t hands = workers_.size();
  std::vector<attention_task> dealt;
  dealt.reserve(tasks_.size());
  for (std::size_t hand = 0; hand < hands; ++hand)
    for (std::size_t i = hand; i < tasks_.size(); i += hands) dealt.push_back(tasks_[i]);
  tasks_.swap(dealt);
}

result<void> cpu_step::size_memory(const step_program& program) {
  const std::size_t rows = input_->rows.size(), outputs = output_rows_.size();
  std::size_t bytes = 0;
  const auto place = [&](std::size_t size) {
    const std::size_t at = bytes;
    bytes += round_up(size, aligned_buffer::alignment);
    return at;
  };
  buffer_offset_.clear();
  for (buffer_id id = 0; id < program.buffers.size(); ++id)
    buffer_offset_.push_back(place(std::size_t{row_count(id)} * width_of(id) * sizeof(float)));
  angles_offset_.clear();
  for (const rope* rotary : ropes_) angles_offset_.push_back(place(rows * 2 * rotary->dims * sizeof(float)));
  peaks_offset_ = place(outputs * head_tiles_ * sizeof(logit_peak));
  if (auto grown = grow(scratch_, bytes); !grown) return grown;

  std::uint32_t channels = 0, group = 1;
  for (const planned& phase : planned_) channels = std::max(channels, phase.tile_channels);
  for (const op& any : program.ops)
    if (const auto* attention = std::get_if<attention_op>(&any))
      group = std::max(group, attention->heads / attention->kv_heads);
  std::uint32_t positions = 0;
  for (const run& r : runs_) positions = std::max(positions, r.first_position + r.rows);
  const std::size_t products =
      std::size_t{2} * channels * std::min<std::size_t>(rows, row_block) * sizeof(float);
  const std::uint64_t kernel = kernel_scratch(program, level_);
  for (const op& any : program.ops)
    if (const auto* moe = std::get_if<moe_op>(&any)) routing_.grow(moe->experts, rows * moe->chosen);
  for (worker_memory& worker : workers_) {
    if (auto grown = grow(worker.products, products); !grown) return grown;
    if (auto grown = grow(worker.kernel, kernel); !grown) return grown;
    const std::size_t attention =
        attention_scratch_bytes(attention_rows, group, program.kv.head_dim, round_up(positions, 1024U));
    if (auto grown = grow(worker.attention, attention); !grown) return grown;
    if (keep_logits_ && worker.sampler.vocab() != program.vocab)
      worker.sampler = sampler_scratch(program.vocab);
  }
  return {};
}

cpu_step::sizes cpu_step::sizes_of(
    const step_program& program, std::uint32_t rows, std::uint32_t outputs, std::uint32_t positions,
    unsigned workers, isa level) {
  constexpr std::uint64_t line = aligned_buffer::alignment;
  sizes all;
  std::uint64_t widest = 0;
  std::uint32_t group = 1;
  for (const buffer& b : program.buffers)
    all.scratch += round_up(std::uint64_t{b.output_rows ? outputs : rows} * b.width * sizeof(float), line);
  for (const op& any : program.ops) {
    if (const auto* moe = std::get_if<moe_op>(&any)) {
      // Tiles are of one expert at most, whose matrices are narrower than the residual stream or the gate.
      const std::uint64_t hidden = program.buffers[moe->in].width;
      widest = std::max<std::uint64_t>({widest, hidden, moe->intermediate, moe->experts});
      all.experts = std::max(all.experts, moe->experts);
      all.entries = std::max(all.entries, rows * moe->chosen);
      continue;
    }
    for_weights(
        any, [&](const packed_weight& weight) { widest = std::max<std::uint64_t>(widest, weight.shape.n); });
    if (const auto* attention = std::get_if<attention_op>(&any))
      group = std::max(group, attention->heads / attention->kv_heads);
  }
  for (const rope* rotary : ropes_of(program))
    all.scratch += round_up(std::uint64_t{rows} * 2 * rotary->dims * sizeof(float), line);
  all.scratch += round_up(
      std::uint64_t{outputs} * div_up<std::uint64_t>(program.vocab, TROUPE_PANEL_CHANNELS) *
          sizeof(logit_peak),
      line);
  // A tile is at most a quarter of a worker's share of a matrix, and mostly far less; it holds whole heads.
  const std::uint64_t tile_width = round_up<std::uint64_t>(
      std::max<std::uint64_t>(div_up<std::uint64_t>(widest, 4 * workers), abreast_channels),
      head_unit(program.kv.head_dim));
  all.products = tile_width * 2 * std::min(rows, row_block) * sizeof(float);
  all.kernel = kernel_scratch(program, level);
  all.attention =
      attention_scratch_bytes(attention_rows, group, program.kv.head_dim, round_up(positions, 1024U));
  return all;
}

std::uint64_t cpu_step::scratch_bytes(
    const step_program& program, std::uint32_t rows, std::uint32_t outputs, std::uint32_t positions,
    unsigned workers) {
  const sizes all = sizes_of(program, rows, outputs, positions, workers, isa::amx);
  const std::uint64_t routing =
      sizeof(float) * (std::uint64_t{3} * all.entries + 2 * (std::uint64_t{all.experts} + 1));
  const std::uint64_t worker = footprint(all.products) + footprint(all.kernel) + footprint(all.attention) +
                               sampler_scratch::bytes(program.vocab);
  return footprint(all.scratch) + (all.experts > 0 ? routing : 0) + worker * workers;
}

result<void> cpu_step::reserve(
    const step_program& program, std::uint32_t rows, std::uint32_t outputs, std::uint32_t positions) {
  const auto take = [](aligned_buffer& buffer, std::uint64_t bytes) -> result<void> {
    auto grown = grow(buffer, bytes);
    if (grown && !buffer.empty()) std::memset(buffer.data(), 0, buffer.size());
    return grown;
  };
  const sizes all =
      sizes_of(program, rows, outputs, positions, static_cast<unsigned>(workers_.size()), level_);
  try {
    if (all.experts > 0) routing_.grow(all.experts, all.entries);
    if (auto taken = take(scratch_, all.scratch); !taken) return taken;
    for (worker_memory& worker : workers_) {
      if (auto taken = take(worker.products, all.products); !taken) return taken;
      if (auto taken = take(worker.kernel, all.kernel); !taken) return taken;
      if (auto taken = take(worker.attention, all.attention); !taken) return taken;
      if (worker.sampler.vocab() != program.vocab) worker.sampler = sampler_scratch(program.vocab);
    }
  } catch (const std::bad_alloc&) {
    return error{errc::no_memory, "cannot allocate the scratch of a step", {}, 0};
  }
  return {};
}

std::uint64_t cpu_step::held_bytes() const noexcept {
  std::uint64_t bytes = scratch_.size() + routing_.bytes();
  for (const worker_memory& worker : workers_)
    bytes += worker.products.size() + worker.kernel.size() + worker.attention.size();
  return bytes;
}

float* cpu_step::rows_of(buffer_id id) noexcept {
  return reinterpret_cast<float*>(scratch_.data() + buffer_offset_[id]);
}

std::uint32_t cpu_step::row_count(buffer_id id) const noexcept {
  if (!program_->buffers[id].output_rows) return static_cast<std::uint32_t>(input_->rows.size());
  if (head_tiles_ != 0 && id == logits_ && !keep_logits_) return 0;
  return static_cast<std::uint32_t>(output_rows_.size());
}

result<std::vector<row_result>> cpu_step::take_result() {
  for (const refusal& refused : refusals_)
    if (refused.status != TROUPE_OK)
      return broken(
          std::string(refused.doing) + " of " + refused.scheme + " answered with status " +
          std::to_string(refused.status));
  return std::move(results_);
}

} // namespace troupe::kernels
