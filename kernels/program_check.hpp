// SPDX-License-Identifier: Apache-2.0
// Whether the parts of a step_program fit each other.
#pragma once

#include "kernels/step_program.hpp"
#include "runtime/base/error.hpp"

namespace troupe::kernels {

/// Checks every op's buffers, matrices, vectors and counts against each other, so that no kernel reads beyond
/// what is there. Thread: any. Errors: internal, or unsupported for a mixture whose stacked experts do not
/// start at panels; both name the op by its place.
result<void> check_program(const step_program& program);

} // namespace troupe::kernels
