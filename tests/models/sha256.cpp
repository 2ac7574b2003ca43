// SPDX-License-Identifier: Apache-2.0
// SHA-256 for comparing with published hashes. Its constants are computed: fractional parts of roots of
// primes.
#include "tests/models/shared_files.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace troupe::models::test {
namespace {

std::array<std::uint32_t, 64> first_primes() {
  std::array<std::uint32_t, 64> primes{};
  std::size_t count = 0;
  for (std::uint32_t n = 2; count < primes.size(); ++n) {
    bool prime = true;
    for (std::uint32_t d = 2; d * d <= n; ++d) prime = prime && n % d != 0;
    if (prime) primes[count++] = n;
  }
  return primes;
}

/// First 32 bits of the fractional part.
std::uint32_t fraction(long double root) {
  return static_cast<std::uint32_t>((root - std::floor(root)) * 4294967296.0L);
}

} // namespace

std::string sha256(std::span<const std::byte> bytes) {
  const auto primes = first_primes();
  std::array<std::uint32_t, 64> k{};
  std::array<std::uint32_t, 8> h{};
  for (std::size_t i = 0; i < 64; ++i) k[i] = fraction(std::cbrt(static_cast<long double>(primes[i])));
  for (std::size_t i = 0; i < 8; ++i) h[i] = fraction(std::sqrt(static_cast<long double>(primes[i])));

  std::string padded(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  padded += '\x80';
  while (padded.size() % 64 != 56) padded += '\0';
  const std::uint64_t bits = std::uint64_t{bytes.size()} * 8;
  for (int shift = 56; shift >= 0; shift -= 8) padded += static_cast<char>(bits >> shift);

  for (std::size_t block = 0; block < padded.size(); block += 64) {
    std::array<std::uint32_t, 64> w{};
    for (std::size_t i = 0; i < 64; ++i)
      w[i / 4] = w[i / 4] << 8 | static_cast<unsigned char>(padded[block + i]);
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
      const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, last] = h;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const std::uint32_t t1 = last + s1 + ((e & f) ^ (~e & g)) + k[i] + w[i];
      const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      last = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const std::array<std::uint32_t, 8> round{a, b, c, d, e, f, g, last};
    for (std::size_t i = 0; i < 8; ++i) h[i] += round[i];
  }
  std::string hex;
  for (const std::uint32_t word : h) {
    for (int shift = 28; shift >= 0; shift -= 4) hex += "0123456789abcdef"[word >> shift & 15];
  }
  return hex;
}

} // namespace troupe::models::test
