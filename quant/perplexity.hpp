// SPDX-License-Identifier: Apache-2.0
// Perplexity of a text under a model.
#pragma once

#include "kernels/backend.hpp"
#include "runtime/base/error.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace troupe::quant {

struct perplexity_options {
  std::uint32_t context = 512;     ///< tokens of one chunk, >= 4
  std::uint32_t chunks = 0;        ///< at most so many; 0 = all that are whole
  std::optional<std::int32_t> bos; ///< replaces each chunk's first token
  std::function<void(std::uint32_t done, std::uint32_t total, double perplexity)> progress;
};

struct perplexity_result {
  double perplexity = 0;
  double standard_error = 0;     ///< of the perplexity, from the spread of the scored tokens
  std::uint64_t tokens = 0;      ///< scored
  std::vector<double> chunk_nll; ///< summed negative log likelihood, natural logarithm
};

/// The text is cut into chunks of `context` tokens, each computed from nothing; its tokens context / 2 + 1 to
/// context - 1 are scored given all before them. The pool must hold one chunk.
/// Thread: any but the backend's; blocks.
/// Errors: bad_request when the text has less than one chunk; those of evaluated_sequence::run.
result<perplexity_result> measure_perplexity(
    kernels::backend& backend, const std::shared_ptr<const kernels::step_program>& program,
    std::span<const std::int32_t> tokens, const perplexity_options& options);

/// -log softmax(logits)[token], in double precision.
double negative_log_likelihood(std::span<const float> logits, std::int32_t token);

} // namespace troupe::quant
