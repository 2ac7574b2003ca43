// SPDX-License-Identifier: Apache-2.0
// Overflow-checked arithmetic for sizes that come from untrusted input.
#pragma once

#include <concepts>
#include <optional>

namespace troupe {

template<std::unsigned_integral T>
constexpr std::optional<T> checked_add(T a, T b) noexcept {
  T sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

template<std::unsigned_integral T>
constexpr std::optional<T> checked_mul(T a, T b) noexcept {
  T product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

/// Rounds `value` up to a multiple of `unit` (> 0); the caller knows that the sum fits.
template<std::unsigned_integral T>
constexpr T round_up(T value, T unit) noexcept {
  return (value + unit - 1) / unit * unit;
}

template<std::unsigned_integral T>
constexpr T div_up(T value, T unit) noexcept {
  return (value + unit - 1) / unit;
}

} // namespace troupe
