// SPDX-License-Identifier: Apache-2.0
#include "actors/token_filter.hpp"

namespace troupe::actors {
namespace {

/// Two masks, made once; which one holds depends on how much was drawn.
class id_filter final : public token_filter {
 public:
  id_filter(shared_mask first, shared_mask later, std::uint32_t min_tokens) :
      first_(std::move(first)), later_(std::move(later)), min_tokens_(min_tokens) {}
  shared_mask after(std::span<const std::int32_t> drawn) const override {
    return drawn.size() < min_tokens_ ? first_ : later_;
  }

 private:
  shared_mask first_, later_;
  std::uint32_t min_tokens_;
};

} // namespace

std::shared_ptr<const token_filter> make_id_filter(
    std::span<const std::int32_t> never, std::span<const std::int32_t> at_first, std::uint32_t min_tokens) {
  if (min_tokens == 0) at_first = {};
  if (never.empty() && at_first.empty()) return nullptr;
  kernels::token_mask mask;
  for (const std::int32_t id : never) mask.forbid(id);
  const shared_mask later = never.empty() ? nullptr : std::make_shared<const kernels::token_mask>(mask);
  if (at_first.empty()) return std::make_shared<const id_filter>(later, later, 0);
  for (const std::int32_t id : at_first) mask.forbid(id);
  return std::make_shared<const id_filter>(
      std::make_shared<const kernels::token_mask>(std::move(mask)), later, min_tokens);
}

} // namespace troupe::actors
