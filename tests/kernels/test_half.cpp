// SPDX-License-Identifier: Apache-2.0
#include "kernels/half.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>

using namespace troupe::kernels;

BOOST_AUTO_TEST_SUITE(half)

BOOST_AUTO_TEST_CASE(every_half_survives_the_way_to_float_and_back) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float wide = half_to_float(half);
    if (std::isnan(wide)) {
      BOOST_REQUIRE(std::isnan(half_to_float(float_to_half(wide))));
      continue;
    }
    BOOST_REQUIRE_EQUAL(float_to_half(wide), half);
    if ((half & 0x7c00u) == 0x7c00u) continue;
    const double fraction = half & 0x3ffu, exponent = half >> 10 & 31u;
    const double magnitude = exponent == 0 ? std::ldexp(fraction, -24)
                                           : std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25);
    BOOST_REQUIRE_EQUAL(static_cast<double>(wide), (half & 0x8000u) != 0 ? -magnitude : magnitude);
  }
}

BOOST_AUTO_TEST_CASE(halves_round_to_the_nearest_and_ties_to_even) {
  for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = half_to_float(static_cast<std::uint16_t>(bits));
    const float high = half_to_float(static_cast<std::uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;
    const auto even = static_cast<std::uint16_t>(bits % 2 == 0 ? bits : bits + 1);
    BOOST_REQUIRE_EQUAL(float_to_half(middle), even);
    BOOST_REQUIRE_EQUAL(float_to_half(std::nextafter(middle, 0.0F)), bits);
    BOOST_REQUIRE_EQUAL(float_to_half(std::nextafter(middle, 1e9F)), bits + 1);
  }
}

BOOST_AUTO_TEST_CASE(numbers_beyond_the_range_become_infinite) {
  BOOST_TEST(float_to_half(65504.0F) == 0x7bff);
  BOOST_TEST(float_to_half(65519.99F) == 0x7bff);
  BOOST_TEST(float_to_half(65520.0F) == 0x7c00);
  BOOST_TEST(float_to_half(-1e30F) == 0xfc00);
  BOOST_TEST(float_to_bfloat(std::numeric_limits<float>::max()) == 0x7f80);
}

BOOST_AUTO_TEST_CASE(bfloats_are_the_upper_half_of_a_float_rounded) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto bfloat = static_cast<std::uint16_t>(bits);
    const float wide = bfloat_to_float(bfloat);
    if (std::isnan(wide))
      BOOST_REQUIRE(std::isnan(bfloat_to_float(float_to_bfloat(wide))));
    else
      BOOST_REQUIRE_EQUAL(float_to_bfloat(wide), bfloat);
  }
  BOOST_TEST(float_to_bfloat(0x1.01p+0F) == 0x3f80); // a tie goes to the even one below
  BOOST_TEST(float_to_bfloat(0x1.03p+0F) == 0x3f82); // and to the even one above
  BOOST_TEST(float_to_bfloat(0x1.010002p+0F) == 0x3f81);
}

BOOST_AUTO_TEST_SUITE_END()
