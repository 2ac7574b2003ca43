// SPDX-License-Identifier: Apache-2.0
// How large a model's keys and values get: what decides the element type of its cache.
#pragma once

#include "kernels/cpu_features.hpp"
#include "kernels/step_program.hpp"
#include "runtime/base/error.hpp"

#include <cstdint>
#include <span>
#include <stop_token>

namespace troupe::kernels {

/// The largest magnitude among the keys and values of `tokens`, computed as one sequence from position 0 with
/// a cache in single precision; infinity when one of them is not finite. Threads: 0 = one per CPU the process
/// may use. Blocks until done. Errors: those of check_program and of cpu_step; no_memory; shutdown within one
/// phase of the step after `stop` is asked.
result<float> largest_key_value(
    const step_program& program, std::span<const std::int32_t> tokens, isa level, unsigned threads,
    const std::stop_token& stop = {});

} // namespace troupe::kernels
