// SPDX-License-Identifier: Apache-2.0
// A model file with a backend of its own, and the comparisons that the numeric tests share.
#pragma once

#include "kernels/cpu_backend.hpp"
#include "models/model.hpp"
#include "quant/golden.hpp"
#include "quant/perplexity.hpp"

#include <memory>
#include <string>

namespace troupe::quant::test {

struct loaded_model {
  std::shared_ptr<const models::model> model;
  std::unique_ptr<kernels::cpu_backend> backend;
};

/// The model with kernels up to `level` and a pool of `tokens` positions. `reference`: KV cache in FP32;
/// `layer_scheme`: see models::model_options.
loaded_model load(
    const std::string& path, bool reference, kernels::isa level, std::uint32_t tokens,
    kernels::kv_type kv = kernels::kv_type::f16, const std::string& layer_scheme = {});

/// Teacher-forces the golden file, prints what was found, and requires every compared step to agree and the
/// first-step logits to be within `logit_bound`.
void check_golden(const loaded_model& loaded, const golden_file& golden, double margin, double logit_bound);

/// Ids of a text file by the model's own tokenizer.
std::vector<std::int32_t> ids_of_file(const models::model& model, const std::string& path);

/// Measures the golden file's chunks and requires the perplexity within `share` of the golden one.
void check_perplexity(
    const loaded_model& loaded, const golden_file& golden, std::span<const std::int32_t> ids, double share);

} // namespace troupe::quant::test
