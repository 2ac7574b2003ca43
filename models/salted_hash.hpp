// SPDX-License-Identifier: Apache-2.0
// Hashing of untrusted keys: seeded once per process, so that nobody can prepare colliding ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe::models {

/// Random, the same for the whole process. Thread: any.
std::uint64_t hash_salt() noexcept;

/// For unordered containers keyed by text from files or requests. Never use it where an order could become
/// visible.
struct salted_hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept;
};

} // namespace troupe::models
