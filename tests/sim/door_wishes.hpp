// SPDX-License-Identifier: Apache-2.0
// What the clients of the simulated doors ask for, and what each choice of an answer must then be.
#pragma once

#include "runtime/rng.hpp"
#include "sim/door_client.hpp"
#include "sim/stand_in.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::sim {

/// What bounds the wishes of a run.
struct wish_bounds {
  std::uint32_t context = 0; ///< tokens; some prompts are longer
  std::uint32_t limit = 0;   ///< tokens of one sequence at most
  std::uint32_t vocabulary = 0;
  bool crowded = false; ///< many choices, cancels and requests per connection
};

/// The requests of connection `number`: one on HTTP, several on the others.
std::vector<door_wish>
draw_wishes(door_kind kind, std::size_t number, const wish_bounds& bounds, runtime::random_stream& chance);

/// What is wrong with choice `index` of an answer that ended well, or nothing. `cancelled`: by its client.
std::string choice_fault(
    const imaginary_model& model, const door_wish& w, bool cancelled, std::uint32_t index,
    const door_choice& c);

} // namespace troupe::sim
