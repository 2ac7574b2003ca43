// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: a pure function of (seed, position), the same in any batch, thread or order.
#pragma once

#include <array>
#include <cstdint>

namespace troupe::runtime {

/// Philox4x32-10: 128 random bits from a 128-bit counter and a 64-bit key.
/// Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11, section 3.3 and
/// table 2.
constexpr std::array<std::uint32_t, 4>
philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) noexcept {
  constexpr std::uint32_t multiplier_0 = 0xD2511F53U, multiplier_1 = 0xCD9E8D57U;
  constexpr std::uint32_t weyl_0 = 0x9E3779B9U,
                          weyl_1 = 0xBB67AE85U; // golden ratio and sqrt(3) - 1, as key steps
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{multiplier_0} * counter[0];
    const std::uint64_t p1 = std::uint64_t{multiplier_1} * counter[2];
    counter = {
        static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
        static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key = {key[0] + weyl_0, key[1] + weyl_1};
  }
  return counter;
}

/// Draw number `lane` (0, 1, ...) at `position` of the sequence named by `seed`; 64 uniform bits.
constexpr std::uint64_t
random_bits(std::uint64_t seed, std::uint64_t position, std::uint64_t lane = 0) noexcept {
  const auto word = philox4x32(
      {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32),
       static_cast<std::uint32_t>(lane), static_cast<std::uint32_t>(lane >> 32)},
      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return std::uint64_t{word[1]} << 32 | word[0];
}

/// Uniform in [0, 1): 53 bits, exact in a double. What the sampler compares with a cumulative probability.
constexpr double random_unit(std::uint64_t seed, std::uint64_t position, std::uint64_t lane = 0) noexcept {
  return static_cast<double>(random_bits(seed, position, lane) >> 11) * 0x1p-53;
}

/// A generator that walks the positions of one seed: for simulations, jitter and tests. Copies replay the
/// same numbers. Satisfies std::uniform_random_bit_generator; the distributions of <random> differ between
/// libraries, so prefer `below` and `unit` wherever a run must be replayable.
class random_stream {
 public:
  using result_type = std::uint64_t;
  explicit constexpr random_stream(std::uint64_t seed, std::uint64_t lane = 0) noexcept :
      seed_(seed), lane_(lane) {}

  static constexpr result_type min() noexcept { return 0; }
  static constexpr result_type max() noexcept { return ~result_type{0}; }
  constexpr result_type operator()() noexcept { return random_bits(seed_, position_++, lane_); }

  /// Uniform in [0, bound), without bias; 0 when `bound` is 0.
  /// Source: Lemire, "Fast Random Integer Generation in an Interval", ACM TOMACS 29(1), 2019, algorithm 5.
  constexpr std::uint64_t below(std::uint64_t bound) noexcept {
    if (bound == 0) return 0;
    __extension__ using wide = unsigned __int128;
    wide product = wide{(*this)()} * bound;
    if (static_cast<std::uint64_t>(product) < bound) {
      const std::uint64_t threshold = (0 - bound) % bound;
      while (static_cast<std::uint64_t>(product) < threshold) product = wide{(*this)()} * bound;
    }
    return static_cast<std::uint64_t>(product >> 64);
  }
  /// Uniform in [low, high], both included.
  constexpr std::int64_t between(std::int64_t low, std::int64_t high) noexcept {
    const auto width = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1;
    const auto offset = width == 0 ? (*this)() : below(width);
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + offset);
  }
  /// Uniform in [0, 1).
  constexpr double unit() noexcept { return static_cast<double>((*this)() >> 11) * 0x1p-53; }
  /// True with probability `p`.
  constexpr bool chance(double p) noexcept { return unit() < p; }
  /// Numbers drawn so far.
  constexpr std::uint64_t position() const noexcept { return position_; }

 private:
  std::uint64_t seed_;
  std::uint64_t lane_;
  std::uint64_t position_ = 0;
};

} // namespace troupe::runtime
