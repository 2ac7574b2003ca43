// SPDX-License-Identifier: Apache-2.0
#include "models/layer_groups.hpp"

#include "runtime/base/checked.hpp"

#include <algorithm>

namespace troupe::models {
namespace {

constexpr std::uint32_t most_waste = 16; // one in so many places may be empty

struct kind {
  std::uint32_t window = 0;
  std::vector<std::uint32_t> layers;
};

/// Kinds in the order of their first layers.
std::vector<kind> kinds_of(const model_config& config) {
  std::vector<kind> kinds;
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    const std::uint32_t stated = config.layer(i).window, window = stated < config.context ? stated : 0;
    auto at = std::find_if(kinds.begin(), kinds.end(), [&](const kind& k) { return k.window == window; });
    if (at == kinds.end()) at = kinds.insert(at, {window, {}});
    at->layers.push_back(i);
  }
  return kinds;
}

std::uint32_t group_size(const model_config& config, const std::vector<kind>& kinds) {
  if (kinds.size() <= 1) return config.layers;
  for (std::uint32_t size = config.layers; size > 1; --size) {
    std::uint32_t places = 0;
    for (const kind& k : kinds) places += round_up(static_cast<std::uint32_t>(k.layers.size()), size);
    if ((places - config.layers) * most_waste <= config.layers) return size;
  }
  return 1;
}

} // namespace

layer_groups group_layers(const model_config& config) {
  const std::vector<kind> kinds = kinds_of(config);
  layer_groups made{group_size(config, kinds), {}, std::vector<kv_place>(config.layers)};
  for (const kind& k : kinds)
    for (std::uint32_t n = 0; n < k.layers.size(); ++n) {
      if (n % made.layers == 0) made.windows.push_back(k.window);
      made.places[k.layers[n]] = {static_cast<std::uint32_t>(made.windows.size() - 1), n % made.layers};
    }
  return made;
}

} // namespace troupe::models
