// SPDX-License-Identifier: Apache-2.0
// The shape of a decoder-only transformer, as its file states it.
#pragma once

#include "models/gguf_file.hpp"
#include "runtime/base/error.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::models {

/// Every number is in its range (see the source) and they fit each other.
struct model_config {
  std::string architecture; ///< "llama"
  std::string name;         ///< general.name, or the file's
  std::uint32_t layers = 0;
  std::uint32_t hidden = 0;       ///< width of the residual stream
  std::uint32_t intermediate = 0; ///< width of the feed-forward gate
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0; ///< divides heads
  std::uint32_t head_dim = 0;
  std::uint32_t vocab = 0;   ///< rows of the embedding table
  std::uint32_t context = 0; ///< positions the model was made for
  float rms_epsilon = 0;
  std::uint32_t rope_dims = 0; ///< even, <= head_dim
  float rope_base = 10000.0F;
  float rope_scale = 1.0F; ///< linear scaling: positions are divided by it
  bool tied_head = false;  ///< the head multiplies by the embedding table
};

/// Architectures that can be run, for messages.
inline constexpr const char* supported_architectures = "llama";

/// Reads and checks every key that shapes the computation; refuses keys that ask for what is not built.
/// Errors: bad_file for a missing, ill-typed or out-of-range key; unsupported for another architecture or
/// variant.
result<model_config> read_model_config(const gguf_file& file);

/// Inverse frequencies [rope_dims / 2], radians per position: 1 / (scale * base^(2i / dims) * factor[i]);
/// `factors` is empty or one per pair (the tensor rope_freqs.weight).
std::vector<float> rope_inverse_frequencies(const model_config& config, const std::vector<float>& factors);

} // namespace troupe::models
