// SPDX-License-Identifier: Apache-2.0
// Synchronous steps over a backend.
#include "quant/evaluation.hpp"

#include <algorithm>
#include <future>
#include <numeric>
#include <string>

namespace troupe::quant {

result<kernels::step_result> run_step(
    kernels::backend& backend, const std::shared_ptr<const kernels::step_program>& program,
    kernels::step_input input) {
  std::promise<kernels::step_result> promise;
  auto answer = promise.get_future();
  backend.submit(program, std::move(input), [&promise](kernels::step_result done) {
    promise.set_value(std::move(done));
  });
  kernels::step_result done = answer.get();
  if (done.failed) return error{errc::executor_failed, done.failure, {}, 0};
  return done;
}

std::uint32_t blocks_for(const kernels::kv_layout& layout, std::uint32_t tokens) {
  const kernels::kv_groups groups = layout.groups();
  return groups.indices(tokens) * groups.size();
}

evaluated_sequence::evaluated_sequence(
    kernels::backend& backend, std::shared_ptr<const kernels::step_program> program,
    std::uint32_t rows_per_step) :
    backend_(backend),
    program_(std::move(program)), rows_per_step_(std::max(rows_per_step, 1U)) {}

result<void> evaluated_sequence::run(
    std::span<const std::int32_t> tokens, std::uint32_t first_wanted, const logits_fn& logits) {
  const auto count = static_cast<std::uint32_t>(tokens.size());
  for (std::uint32_t first = 0; first < count; first += rows_per_step_) {
    kernels::step_input input;
    const std::uint32_t last = std::min(count, first + rows_per_step_);
    input.sequences.resize(1);
    input.sequences[0].reach = count;
    input.sequences[0].blocks.resize(blocks_for(program_->kv, last));
    std::iota(input.sequences[0].blocks.begin(), input.sequences[0].blocks.end(), 0U);
    for (std::uint32_t position = first; position < last; ++position) {
      const auto want = position < first_wanted ? kernels::row_output::none : kernels::row_output::logits;
      input.rows.push_back({0, tokens[position], position, want});
    }
    auto done = run_step(backend_, program_, std::move(input));
    if (!done) return done.error();
    for (const kernels::row_result& row : done->rows) {
      if ((row.flags & kernels::row_not_finite) != 0)
        return error{
            errc::not_finite,
            "the logits at position " + std::to_string(first + row.row) + " are NaN or Inf",
            {},
            0};
      logits(first + row.row, row.logits);
    }
  }
  return {};
}

} // namespace troupe::quant
