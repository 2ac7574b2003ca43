// SPDX-License-Identifier: Apache-2.0
#include "runtime/rng.hpp"

#include <boost/test/unit_test.hpp>

#include <array>

using namespace troupe::runtime;
using words = std::array<std::uint32_t, 4>;

BOOST_AUTO_TEST_SUITE(rng)

// Known answers of the Random123 distribution that accompanies the paper.
BOOST_AUTO_TEST_CASE(philox_gives_the_published_answers) {
  BOOST_TEST((philox4x32({0, 0, 0, 0}, {0, 0}) == words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t ones = 0xffffffff;
  BOOST_TEST(
      (philox4x32({ones, ones, ones, ones}, {ones, ones}) ==
       words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  BOOST_TEST(
      (philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
       words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

BOOST_AUTO_TEST_CASE(a_draw_depends_only_on_seed_position_and_lane) {
  random_stream stream(42);
  for (std::uint64_t position = 0; position < 100; ++position)
    BOOST_TEST(stream() == random_bits(42, position));
  BOOST_TEST(random_bits(42, 7) != random_bits(43, 7));
  BOOST_TEST(random_bits(42, 7) != random_bits(42, 8));
  BOOST_TEST(random_bits(42, 7, 0) != random_bits(42, 7, 1));
  BOOST_TEST(random_bits(1ULL << 40, 7) != random_bits(0, 7));
  BOOST_TEST(random_bits(0, 1ULL << 40) != random_bits(0, 0));
}

BOOST_AUTO_TEST_CASE(unit_draws_stay_below_one_and_fill_the_interval_evenly) {
  BOOST_TEST(static_cast<double>(~std::uint64_t{0} >> 11) * 0x1p-53 < 1.0);
  std::array<int, 16> histogram{};
  constexpr int draws = 160'000;
  for (int i = 0; i < draws; ++i) {
    const double u = random_unit(9, static_cast<std::uint64_t>(i));
    BOOST_REQUIRE(u >= 0.0);
    BOOST_REQUIRE(u < 1.0);
    ++histogram[static_cast<std::size_t>(u * 16)];
  }
  double chi_square = 0;
  for (const int count : histogram) chi_square += (count - 10'000.0) * (count - 10'000.0) / 10'000.0;
  BOOST_TEST(chi_square < 37.7); // 99.9 % point with 15 degrees of freedom
}

BOOST_AUTO_TEST_CASE(bounded_draws_are_unbiased_and_cover_the_ends) {
  random_stream stream(5);
  std::array<int, 3> histogram{};
  for (int i = 0; i < 30'000; ++i) ++histogram[stream.below(3)];
  for (const int count : histogram) BOOST_TEST(std::abs(count - 10'000) < 400);
  BOOST_TEST(stream.below(0) == 0U);
  BOOST_TEST(stream.below(1) == 0U);
  bool low = false;
  bool high = false;
  for (int i = 0; i < 1000; ++i) {
    const auto v = stream.between(-2, 2);
    BOOST_REQUIRE(v >= -2);
    BOOST_REQUIRE(v <= 2);
    low |= v == -2;
    high |= v == 2;
  }
  BOOST_TEST(low);
  BOOST_TEST(high);
  BOOST_TEST(!random_stream(1).chance(0.0));
  BOOST_TEST(random_stream(1).chance(1.0));
  [[maybe_unused]] const auto any = stream.between(INT64_MIN, INT64_MAX);
}

BOOST_AUTO_TEST_SUITE_END()
