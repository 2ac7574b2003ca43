// SPDX-License-Identifier: Apache-2.0
// From tensors of a model file to packed matrices and plain vectors.
#pragma once

#include "kernels/packed_weight.hpp"
#include "models/tensor_source.hpp"
#include "runtime/base/error.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::models {

/// The scheme with an id, or null. (The registry lives in plugins/host, which this room may not include.)
using scheme_finder = std::function<const troupe_quant_scheme*(std::string_view id)>;

/// One matrix to load: tensors of equal row length and type, laid one after the other along the output
/// channels (q | k | v, gate | up).
struct weight_request {
  std::vector<model_tensor> parts;
  bool alone = false; ///< in memory of its own, freed with it, instead of the block that the others share
};

struct weight_load_options {
  scheme_finder find_scheme;
  unsigned threads = 0; ///< 0 = as many as the machine has
  /// Called with packed and total source bytes, from one thread at a time, `done` never falling.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
  /// Called with the packed bytes once every request has been checked and before memory is taken; its error
  /// ends the loading.
  std::function<result<void>(std::uint64_t packed_bytes)> forecast;
  std::stop_token stop; ///< when asked, the loading ends with errc::shutdown
};

/// Whether the tensors can be one matrix: all of rank 2 at most, same type, same row length.
bool can_merge(std::span<const model_tensor> parts) noexcept;

/// Checks, allocates and packs every request, in parallel; the answers are in the order of the requests. They
/// share one block of memory, which lives until the last of them is gone, but for those that stand `alone`.
/// Thread: any, blocks until done; the work runs in a oneTBB arena of its own. Errors: bad_file for a tensor
/// that is no matrix, or has NaN or infinite scales (names tensor and channel); unsupported for a type
/// without a scheme; no_memory; shutdown when stopped. Of several errors that of the earliest request is
/// told.
result<std::vector<packed_weight>> load_weights(
    const tensor_source& file, std::span<const weight_request> requests, const weight_load_options& options);

/// The checks of load_weights that need no packing; gives the bytes that packing would take.
result<std::uint64_t> check_weights(
    const tensor_source& file, std::span<const weight_request> requests, const scheme_finder& find_scheme);

/// A vector of `count` finite numbers (norm weights, biases), widened to float from F32, F16 or BF16.
/// Errors: bad_file when it is missing, has another length or type, or holds NaN or Inf.
result<std::vector<float>> load_vector(const tensor_source& file, std::string_view name, std::uint64_t count);

} // namespace troupe::models
