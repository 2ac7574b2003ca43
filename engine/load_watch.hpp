// SPDX-License-Identifier: Apache-2.0
// What is told and refused while a model is loaded, whoever loads it.
#pragma once

#include "models/model.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace troupe::detail {

struct load_watch {
  std::string path;             ///< of the model
  std::uint64_t file_bytes = 0; ///< how much there is to read
  std::uint32_t context = 0;    ///< positions of one sequence; 0: the model's
  std::uint64_t kv_memory = 0;  ///< of the KV cache by the setting kv-memory; 0: what is left
  std::uint32_t positions = 0;  ///< of a KV cache that holds exactly so many, all of them; 0: see above
  std::uint32_t chunk = 256;    ///< of one sequence in one step, at most
  /// Gets the lines about a model of 1 GiB and more, which takes a while. Empty: the log gets them, that of
  /// the forecast for every model.
  std::function<void(std::string_view line)> tell;
};

/// Sets `progress` and `forecast` of `options`: a line per tenth, and before any memory is taken for weights
/// one with what they need, or the refusal (no_memory) where they do not fit what is available then.
void watch_loading(models::model_options& options, load_watch what);

} // namespace troupe::detail
