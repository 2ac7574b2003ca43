// SPDX-License-Identifier: Apache-2.0
// What runs a step_program: the contract between the executor actor and the machine.
#pragma once

#include "kernels/sampling.hpp"
#include "kernels/step_program.hpp"
#include "kernels/token_mask.hpp"
#include "runtime/base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

namespace troupe::kernels {

/// What a row must answer with.
enum class row_output : std::uint8_t {
  none,   ///< prompt rows before the last
  token,  ///< one sampled token
  score,  ///< the log probability of step_row::target, and the most likely tokens; nothing is drawn
  logits, ///< the whole logits row, for evaluation
};

/// One position of one sequence to be computed. Rows of a sequence stand together, positions ascending by
/// one.
struct step_row {
  std::uint32_t sequence = 0; ///< index into step_input::sequences
  std::int32_t token = 0;     ///< input token id
  std::uint32_t position = 0; ///< absolute
  row_output want = row_output::none;
  std::int32_t target = -1; ///< of row_output::score: the token that follows
};

/// A sequence's part in a step.
struct step_sequence {
  /// Block table: the entries of kv_groups for positions [0, last row's position]; those that no row of the
  /// step reads or writes are not looked at.
  std::vector<std::uint32_t> blocks;
  sampling_params sampling;
  /// Tokens that the penalties look at: prompt then output; empty unless sampling.penalised().
  std::vector<std::int32_t> history;
  std::uint32_t prompt_tokens = 0; ///< how many of `history` are prompt
  /// Positions that the sequence is meant to reach: which frequencies a rope with two sets takes. The same in
  /// every step of a sequence, or its keys would not fit its queries.
  std::uint32_t reach = 0;
  std::uint32_t top_logprobs = 0; ///< the most likely tokens to report, 0-20
  bool logprobs = false;          ///< report the drawn token's log probability
  /// What must not be drawn in this step; null: any token may be. Shared, because the sequence may be gone
  /// before the step is.
  std::shared_ptr<const token_mask> mask;

  /// Whether the token is that of the largest logit: nothing else of the row is needed.
  bool takes_largest() const noexcept {
    return sampling.greedy() && !sampling.penalised() && !sampling.biased() && !mask;
  }
};

/// The keys and values of the first positions of one KV block, in every layer, go to the same places of
/// another.
struct kv_copy {
  std::uint32_t from = 0, to = 0; ///< block ids
  std::uint32_t positions = 0;    ///< from 1 to what a block holds
  bool operator==(const kv_copy&) const = default;
};

struct step_input {
  std::uint64_t step_seq = 0;
  std::vector<step_row> rows;
  std::vector<step_sequence> sequences;
  /// Carried out before any row writes. No block is written by two of them, or written by one and read by
  /// another, so that their order does not matter. Rows of the same step read what was copied, and write
  /// behind it, in both blocks. When the step fails, nothing is known of the blocks that were copied to;
  /// those that were copied from are as they were.
  std::vector<kv_copy> copies;
};

/// Bits of row_result::flags.
enum : std::uint32_t {
  row_not_finite = 1U, ///< NaN or Inf reached this row: its token must not leave
};

struct token_logprob {
  std::int32_t token = 0;
  float logprob = 0; ///< natural logarithm, of the distribution before temperature and cuts
};

struct row_result {
  std::uint32_t row = 0;   ///< index into step_input::rows
  std::int32_t token = -1; ///< drawn, or the target of row_output::score
  std::uint32_t flags = 0;
  float logprob = 0; ///< of `token`
  std::vector<token_logprob> top;
  std::vector<float> logits; ///< [vocab] for row_output::logits
};

struct step_result {
  std::uint64_t step_seq = 0;
  std::vector<row_result> rows;  ///< those whose want is not none, in order
  std::uint64_t duration_ns = 0; ///< of the computation
  bool failed = false;           ///< nothing of the step counts; its KV writes may be partial
  std::string failure;           ///< one sentence
};

/// One KV pool and the machine that computes over it. One step at a time.
class backend {
 public:
  virtual ~backend() = default;

  /// Allocates and touches the pool of `blocks` KV blocks of the program's layout. Start-up only.
  /// Errors: no_memory; shutdown soon after `stop` is asked.
  virtual result<void>
  create_pool(const kv_layout& layout, std::uint32_t blocks, const std::stop_token& stop = {}) = 0;

  /// Starts a step and returns at once; `done` is called exactly once, on the backend's own thread, and must
  /// only hand the result on. Does not throw: a step for which there is no memory is answered as failed, then
  /// perhaps on the caller's thread before `submit` returns. The input is moved back to the caller's
  /// ownership only by being destroyed. Thread: any, but never two steps at a time.
  virtual void submit(
      std::shared_ptr<const step_program> program, step_input input,
      std::function<void(step_result)> done) = 0;

  /// Copies one KV block, over the layers of its group, out of the pool or into it; the bytes are those of
  /// kv_layout::bytes_per_block. False, and nothing is promised of the copy, when this machine cannot.
  /// Thread: any, also beside a step that does not write the block, or for a copy into it not read it either.
  virtual bool copy_block_out(std::uint32_t block, std::span<std::byte> to) const noexcept {
    (void)block, (void)to;
    return false;
  }
  virtual bool copy_block_in(std::uint32_t block, std::span<const std::byte> from) noexcept {
    (void)block, (void)from;
    return false;
  }

  /// What computes, one line a person can read: "kernels avx512, KV f16, 8 threads". Which kernel multiplies
  /// a matrix depends on its program: `describe_kernels`.
  virtual std::string describe() const = 0;

  /// Bytes of scratch for a step of `rows` rows, `outputs` of which want an output. For the memory plan.
  virtual std::uint64_t
  scratch_bytes(const step_program& program, std::uint32_t rows, std::uint32_t outputs) const = 0;

  /// Takes that scratch and touches it, so that no step within these bounds asks for more. Start-up only.
  /// Errors: no_memory.
  virtual result<void> reserve(const step_program&, std::uint32_t /*rows*/, std::uint32_t /*outputs*/) {
    return {};
  }

  /// Gives the memory of these KV blocks, ascending, back to the system; their content is lost, and what is
  /// written to them later takes memory again. Returns the bytes given back. No step that is under way may
  /// read or write them. Thread: any.
  virtual std::uint64_t discard(std::span<const std::uint32_t> /*blocks*/) noexcept { return 0; }
};

} // namespace troupe::kernels
