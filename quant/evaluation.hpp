// SPDX-License-Identifier: Apache-2.0
// Running one sequence through a backend and looking at its logits: what every evaluation is made of.
#pragma once

#include "kernels/backend.hpp"
#include "runtime/base/error.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace troupe::quant {

/// Runs one step and waits for it. Thread: any but the backend's own.
/// Errors: executor_failed with the step's own words.
result<kernels::step_result> run_step(
    kernels::backend& backend, const std::shared_ptr<const kernels::step_program>& program,
    kernels::step_input input);

/// A sequence with the first blocks of the backend's pool, which nobody else may use meanwhile.
class evaluated_sequence {
 public:
  /// What one row that was asked for gives. `logits` [vocab] lives for the call.
  using logits_fn = std::function<void(std::uint32_t position, std::span<const float> logits)>;

  /// `rows_per_step`: how the tokens are cut into steps.
  evaluated_sequence(
      kernels::backend& backend, std::shared_ptr<const kernels::step_program> program,
      std::uint32_t rows_per_step = 128);

  /// Computes positions [0, tokens.size()) from nothing and hands over the logits of those from
  /// `first_wanted` on, in order, on the calling thread. Errors: executor_failed; not_finite when a wanted
  /// row is not.
  result<void> run(std::span<const std::int32_t> tokens, std::uint32_t first_wanted, const logits_fn& logits);

 private:
  kernels::backend& backend_;
  std::shared_ptr<const kernels::step_program> program_;
  std::uint32_t rows_per_step_;
};

/// KV blocks that a sequence of `tokens` needs when none is given back.
std::uint32_t blocks_for(const kernels::kv_layout& layout, std::uint32_t tokens);

} // namespace troupe::quant
