// SPDX-License-Identifier: Apache-2.0
// Which token may come next: the place where the rules of one request meet the sampler.
#pragma once

#include "kernels/token_mask.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe::actors {

using shared_mask = std::shared_ptr<const kernels::token_mask>;

/// One per request; the executor asks it before every draw. The answer is a function of the tokens drawn so
/// far alone, because a preempted sequence asks again for tokens that it had. Thread: one at a time.
class token_filter {
 public:
  virtual ~token_filter() = default;
  /// What may not be drawn after `drawn`; null: any token may be.
  virtual shared_mask after(std::span<const std::int32_t> drawn) const = 0;
};

/// Forbids `never` always and `at_first` until `min_tokens` are drawn; null when that forbids nothing.
std::shared_ptr<const token_filter> make_id_filter(
    std::span<const std::int32_t> never, std::span<const std::int32_t> at_first, std::uint32_t min_tokens);

} // namespace troupe::actors
