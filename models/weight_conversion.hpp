// SPDX-License-Identifier: Apache-2.0
// From any scheme to an unquantised one.
#pragma once

#include "kernels/packed_weight.hpp"
#include "runtime/base/error.hpp"

#include <string_view>

namespace troupe::models {

/// The numbers of `weight`, read back through its own scheme and packed as `id`: dense.f32 (exact), dense.f16
/// or dense.bf16 (rounded to nearest even). Errors: unsupported for another id; bad_file when a number leaves
/// the range of the new type; no_memory.
result<packed_weight> convert_weight(const packed_weight& weight, std::string_view id);

} // namespace troupe::models
