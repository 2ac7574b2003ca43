// SPDX-License-Identifier: Apache-2.0
// Hashing of untrusted keys.
#include "models/salted_hash.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <random>

namespace troupe::models {

std::uint64_t hash_salt() noexcept {
  static const std::uint64_t salt = [] {
    std::random_device source;
    return static_cast<std::uint64_t>(source()) << 32 | source();
  }();
  return salt;
}

std::size_t salted_hash::operator()(std::string_view text) const noexcept {
  return static_cast<std::size_t>(XXH3_64bits_withSeed(text.data(), text.size(), hash_salt()));
}

} // namespace troupe::models
