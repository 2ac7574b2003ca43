// SPDX-License-Identifier: Apache-2.0
// Which tensors a model must hold, under the names of its file, and where their numbers go.
#pragma once

#include "models/decoder.hpp"
#include "models/model_config.hpp"
#include "models/weights.hpp"

#include <vector>

namespace troupe::models {

/// The matrices of a whole model as requests to `load_weights`, and where each answer goes.
struct weight_list {
  std::vector<weight_request> requests;
  std::vector<shared_weight*> places; ///< into the weights that `list_weights` was given
};

/// Checks the shape of every tensor that `config` asks for, reads the vectors (norms, biases, rotary factors)
/// into `weights` and lists the matrices. `alone`: matrices of layers, which are converted and freed one by
/// one, get memory of their own. Thread: any.
/// Errors: bad_file naming a tensor that is missing or has another shape; unsupported for one that nobody
/// asks for: it means a computation that is not built.
result<void> list_weights(
    const tensor_source& source, const model_config& config, bool alone, model_weights& weights,
    weight_list& list);

} // namespace troupe::models
