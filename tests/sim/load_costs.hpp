// SPDX-License-Identifier: Apache-2.0
// How long steps take, as measured on real machines.
#pragma once

#include "actors/step_time_model.hpp"
#include "kernels/backend.hpp"
#include "runtime/rng.hpp"

#include <span>
#include <string_view>

namespace troupe::sim {

/// seconds = (step + decode rows * decode_row + prompts' rows * prefill_row + positions read * position) *
/// noise; the parts are those of troupe_step_cost_seconds.
struct step_costs {
  std::string_view machine;
  double step = 0, decode_row = 0, prefill_row = 0, position = 0;
  double noise = 0; ///< standard deviation of the logarithm of a factor whose median is 1

  double seconds(const actors::step_shape& shape) const noexcept;
  runtime::duration draw(const actors::step_shape& shape, runtime::random_stream& chance) const;
};

/// With the sources in the .cpp file. The first is the one taken unless another is asked for.
std::span<const step_costs> measured_step_costs() noexcept;

/// What the backend is asked to compute.
actors::step_shape shape_of(const kernels::step_input& input) noexcept;

} // namespace troupe::sim
