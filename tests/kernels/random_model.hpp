// SPDX-License-Identifier: Apache-2.0
// A small decoder with random weights, and steps over it: for tests of what a whole step must keep.
#pragma once

#include "kernels/cpu_backend.hpp"
#include "models/decoder.hpp"

#include <memory>
#include <span>
#include <vector>

namespace troupe::kernels::test {

struct random_model_options {
  std::uint32_t layers = 3;
  std::uint32_t hidden = 96;
  std::uint32_t intermediate = 160;
  std::uint32_t heads = 6;
  std::uint32_t kv_heads = 2;
  std::uint32_t head_dim = 24; ///< not a power of two, so that heads and panels of 32 do not meet
  std::uint32_t vocab = 150;
  kv_type kv = kv_type::f16;
  const char* scheme = "dense.f32";
  bool merged_qkv = true;
  std::int32_t huge_token = -1; ///< a token whose embedding makes its row overflow
};

/// Weights from a fixed seed, packed with `scheme` (dense or gguf).
std::shared_ptr<const step_program> random_model(const random_model_options& options = {});

/// A backend with a pool of `blocks`.
std::unique_ptr<cpu_backend>
backend_for(const step_program& program, isa level, unsigned threads = 1, std::uint32_t blocks = 64);

/// The logits of every position of `tokens`, computed in steps that end at `cuts` (ascending, the length
/// last).
std::vector<std::vector<float>> logits_of(
    backend& machine, const std::shared_ptr<const step_program>& program,
    std::span<const std::int32_t> tokens, std::span<const std::uint32_t> cuts,
    std::span<const std::uint32_t> blocks);

/// Runs a step and requires that it did not fail.
step_result run(backend& machine, const std::shared_ptr<const step_program>& program, step_input input);

/// `count` tokens of the vocabulary, by seed.
std::vector<std::int32_t> random_tokens(std::uint32_t count, std::uint32_t vocab, std::uint64_t seed);

/// A greedy sequence with these blocks.
step_sequence greedy_sequence(std::vector<std::uint32_t> blocks);

bool same_bits(std::span<const float> a, std::span<const float> b);

} // namespace troupe::kernels::test
