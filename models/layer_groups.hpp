// SPDX-License-Identifier: Apache-2.0
// Which layers of a model share KV blocks.
#pragma once

#include "models/model_config.hpp"

#include <cstdint>
#include <vector>

namespace troupe::models {

/// A layer's place in the KV layout.
struct kv_place {
  std::uint32_t group = 0, layer = 0; ///< `layer` counts in its group
};

/// The layers of a model in groups of one size, all of a group with the same window.
struct layer_groups {
  std::uint32_t layers = 0;           ///< of a group; the last of a kind may have fewer
  std::vector<std::uint32_t> windows; ///< [group] positions that its layers read at most; 0: all
  std::vector<kv_place> places;       ///< [model's layer]
};

/// One group for a model of one kind of layers. Else groups of the most layers that leave at most a sixteenth
/// of their places empty: larger blocks are fewer to count, and empty places are memory that nobody uses.
/// A window as long as the model's context is none.
layer_groups group_layers(const model_config& config);

} // namespace troupe::models
