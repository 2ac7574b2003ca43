// SPDX-License-Identifier: Apache-2.0
// Comparing a model's logits with right answers computed by an independent program.
#pragma once

#include "kernels/backend.hpp"
#include "runtime/base/error.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::quant {

/// One prompt and what follows it.
struct golden_case {
  std::string name;                                          ///< the prompt's first characters
  std::vector<std::int32_t> ids;                             ///< prompt
  std::vector<std::int32_t> greedy;                          ///< most likely tokens, step by step
  std::vector<double> margins;                               ///< best logit minus second best, per step
  std::vector<std::pair<std::int32_t, double>> first_logits; ///< some logits of the first step, largest first
};

struct golden_file {
  std::string model;
  std::vector<golden_case> cases;
  std::optional<double> perplexity;
  std::uint32_t perplexity_context = 0;
  std::uint32_t perplexity_chunks = 0;
  std::vector<double> chunk_nll;
  std::string wiki_ids_sha256; ///< of all ids of the text as little-endian u32, or empty
  std::uint64_t wiki_tokens = 0;
};

/// Reads `prompts` and `chats` [{ids, greedy, margin, first: {ids, logits}}], and where present `perplexity`
/// and `wiki`. Errors: not_found, io; bad_file naming what is missing or ill-typed.
result<golden_file> read_golden(const std::string& path);

struct golden_mismatch {
  std::string name;
  std::uint32_t step = 0;
  std::int32_t expected = 0, got = 0;
  double margin = 0;
};

struct golden_report {
  std::uint32_t cases = 0;
  std::uint32_t steps = 0;                 ///< all
  std::uint32_t steps_compared = 0;        ///< those whose margin exceeds the limit
  std::vector<golden_mismatch> mismatches; ///< compared steps with another most likely token
  double largest_mismatch_margin = 0;      ///< over all steps, compared or not: what the arithmetic confuses
  std::uint32_t first_logits = 0;          ///< listed and compared, over all first steps
  double first_logit_difference = 0;       ///< largest, over the listed logits of all first steps
};

struct golden_options {
  double margin = 0.15; ///< steps below it may differ
  std::uint32_t rows_per_step = 128;
  std::function<void(std::uint32_t done, std::uint32_t total)> progress;
};

/// Feeds prompt and golden answer (teacher forcing) and compares every step. The pool must hold the longest
/// case. Thread: any but the backend's; blocks.
result<golden_report> compare_golden(
    kernels::backend& backend, const std::shared_ptr<const kernels::step_program>& program,
    const golden_file& golden, const golden_options& options);

/// Positions of the longest case: what a pool must hold.
std::uint32_t longest_case(const golden_file& golden);

} // namespace troupe::quant
