// SPDX-License-Identifier: Apache-2.0
#include "kernels/kernel_table.hpp"
#include "kernels/rope.hpp"
#include "kernels/step_program.hpp"
#include "tests/kernels/random_numbers.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

using namespace troupe::kernels;
using namespace troupe::kernels::test;

namespace {

constexpr float canary = 12345.0F;
constexpr std::array<std::uint32_t, 17> widths{1,  2,  3,  7,  8,   9,   15,   16,  17,
                                               31, 33, 63, 65, 127, 576, 1000, 1536};

/// A row followed by canaries that nobody may touch.
struct guarded_row {
  std::vector<float> data;
  std::uint32_t width;
  explicit guarded_row(std::vector<float> numbers) :
      data(std::move(numbers)), width(static_cast<std::uint32_t>(data.size())) {
    data.insert(data.end(), 32, canary);
  }
  float* operator()() { return data.data(); }
  bool intact() const {
    return std::all_of(data.begin() + width, data.end(), [](float x) { return x == canary; });
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(row_ops)

BOOST_AUTO_TEST_CASE(rms_norm_agrees_with_the_reference_at_any_width) {
  for (const isa level : vector_isas()) {
    for (const std::uint32_t width : widths) {
      for (const float scale : {1e-12F, 1.0F, 1e12F}) {
        const auto in = random_floats(width, width, scale), weight = random_floats(width, width + 1);
        guarded_row out{std::vector<float>(width)};
        std::vector<float> expected(width);
        kernels_for(isa::ref).rms_norm(in.data(), weight.data(), 1e-5F, width, expected.data());
        kernels_for(level).rms_norm(in.data(), weight.data(), 1e-5F, width, out());
        BOOST_TEST(out.intact());
        // Both sums of squares err by at most width roundings, the root halves that; three more roundings
        // each.
        const double bound = (width + 8) * epsilon;
        for (std::uint32_t i = 0; i < width; ++i)
          BOOST_REQUIRE_SMALL(
              static_cast<double>(out.data[i] - expected[i]),
              bound * std::abs(static_cast<double>(expected[i])) + 1e-30);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(rms_norm_may_work_in_place_and_keeps_a_nan_in_its_row) {
  for (const isa level : all_isas()) {
    auto row = random_floats(100, 5);
    const auto weight = random_floats(100, 6);
    std::vector<float> apart(100);
    kernels_for(level).rms_norm(row.data(), weight.data(), 1e-5F, 100, apart.data());
    kernels_for(level).rms_norm(row.data(), weight.data(), 1e-5F, 100, row.data());
    BOOST_TEST(std::memcmp(row.data(), apart.data(), 400) == 0);
    row[63] = std::numeric_limits<float>::quiet_NaN();
    kernels_for(level).rms_norm(row.data(), weight.data(), 1e-5F, 100, row.data());
    BOOST_TEST(std::all_of(row.begin(), row.end(), [](float x) { return std::isnan(x); }));
    row.assign(100, 3e38F); // its squares overflow
    kernels_for(level).rms_norm(row.data(), weight.data(), 1e-5F, 100, row.data());
    BOOST_TEST(std::all_of(row.begin(), row.end(), [](float x) { return std::isnan(x); }));
  }
}

BOOST_AUTO_TEST_CASE(rope_turns_each_pair_by_its_angle) {
  // By the definition, in double precision.
  rope rotary{6, {1.0F, 0.25F, 0.01F}, 1.5F};
  std::vector<float> cosine(6), sine(6);
  rope_angles(rotary, 7, cosine.data(), sine.data());
  for (const isa level : all_isas()) {
    guarded_row x{random_floats(16, 1)};
    const auto old = x.data;
    kernels_for(level).rotate(x(), cosine.data(), sine.data(), 2, 8, 6);
    BOOST_TEST(x.intact());
    for (std::uint32_t head = 0; head < 2; ++head) {
      for (std::uint32_t pair = 0; pair < 3; ++pair) {
        const double angle = 7.0 * static_cast<double>(rotary.inverse_frequency[pair]);
        const double even = old[head * 8 + 2 * pair], odd = old[head * 8 + 2 * pair + 1];
        BOOST_TEST(
            x.data[head * 8 + 2 * pair] == 1.5 * (even * std::cos(angle) - odd * std::sin(angle)),
            boost::test_tools::tolerance(1e-5));
        BOOST_TEST(
            x.data[head * 8 + 2 * pair + 1] == 1.5 * (odd * std::cos(angle) + even * std::sin(angle)),
            boost::test_tools::tolerance(1e-5));
      }
      BOOST_TEST(x.data[head * 8 + 6] == old[head * 8 + 6]); // beyond the rotated dims
      BOOST_TEST(x.data[head * 8 + 7] == old[head * 8 + 7]);
    }
  }
}

BOOST_AUTO_TEST_CASE(rope_turns_the_halves_of_a_head_like_its_neighbours) {
  // The same pairs laid out both ways: the same numbers come out, to the bit.
  rope rotary{6, {1.0F, 0.25F, 0.01F}, 1.5F};
  std::vector<float> cosine(6), sine(6), half_cosine(6), half_sine(6);
  rope_angles(rotary, 7, cosine.data(), sine.data());
  rotary.pairs = rope_pairs::halves;
  rope_angles(rotary, 7, half_cosine.data(), half_sine.data());
  for (const isa level : all_isas()) {
    auto adjacent = random_floats(8, 1);
    guarded_row halves{std::vector<float>(16)};
    for (std::uint32_t head = 0; head < 2; ++head)
      for (std::uint32_t i = 0; i < 8; ++i)
        halves.data[head * 8 + i] = i < 6 ? adjacent[i % 3 * 2 + i / 3] : adjacent[i];
    kernels_for(level).rotate(adjacent.data(), cosine.data(), sine.data(), 1, 8, 6);
    kernels_for(level).rotate_halves(halves(), half_cosine.data(), half_sine.data(), 2, 8, 6);
    BOOST_TEST(halves.intact());
    for (std::uint32_t head = 0; head < 2; ++head)
      for (std::uint32_t i = 0; i < 8; ++i)
        BOOST_TEST(halves.data[head * 8 + i] == (i < 6 ? adjacent[i % 3 * 2 + i / 3] : adjacent[i]));
  }
}

BOOST_AUTO_TEST_CASE(a_sequence_that_reaches_far_turns_by_the_long_frequencies) {
  rope rotary{2, {1.0F}, 1.0F, rope_pairs::halves, {0.5F}, 32};
  std::vector<float> cosine(2), sine(2);
  for (const auto& [reach, frequency] : {std::pair{0U, 1.0}, {32U, 1.0}, {33U, 0.5}}) {
    rope_angles(rotary, 3, cosine.data(), sine.data(), reach);
    BOOST_TEST(sine[1] == std::sin(3 * frequency), boost::test_tools::tolerance(1e-6));
    BOOST_TEST(cosine[1] == std::cos(3 * frequency), boost::test_tools::tolerance(1e-6));
  }
  rotary.long_inverse_frequency.clear(); // one set for all
  rope_angles(rotary, 3, cosine.data(), sine.data(), 1000);
  BOOST_TEST(sine[1] == std::sin(3.0), boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(rope_agrees_with_the_reference_at_any_size) {
  for (const auto rotation : {&kernel_table::rotate, &kernel_table::rotate_halves}) {
    for (const isa level : vector_isas()) {
      for (const std::uint32_t dims : {2U, 6U, 16U, 24U, 64U, 80U, 128U}) {
        const std::uint32_t heads = 3, head_dim = dims + 5;
        const auto cosine = random_floats(dims, dims), sine = random_floats(dims, dims + 1);
        const auto old = random_floats(heads * head_dim, dims + 2);
        guarded_row x{old};
        auto expected = old;
        (kernels_for(isa::ref).*rotation)(expected.data(), cosine.data(), sine.data(), heads, head_dim, dims);
        (kernels_for(level).*rotation)(x(), cosine.data(), sine.data(), heads, head_dim, dims);
        BOOST_TEST(x.intact());
        for (std::size_t i = 0; i < expected.size(); ++i) // three roundings of terms of up to 3 * 3
          BOOST_REQUIRE_SMALL(static_cast<double>(x.data[i] - expected[i]), 3 * epsilon * 18);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(silu_mul_agrees_with_double_precision_over_the_whole_range) {
  std::vector<float> gate;
  for (float g = -110.0F; g < 110.0F; g += 0.037F) gate.push_back(g);
  for (const float g : {0.0F, -0.0F, 1e-30F, -1e-30F, 1e30F, -1e30F, 3e38F}) gate.push_back(g);
  const auto count = static_cast<std::uint32_t>(gate.size());
  const std::vector<float> up(count, 0.75F);
  for (const isa level : all_isas()) {
    guarded_row out{std::vector<float>(count)};
    kernels_for(level).silu_mul(gate.data(), up.data(), count, out());
    BOOST_TEST(out.intact());
    for (std::uint32_t i = 0; i < count; ++i) {
      const double g = gate[i], expected = g / (1 + std::exp(-g)) * 0.75;
      // Where exp(-g) leaves the floats the answer is a zero or a subnormal number.
      if (g < -87)
        BOOST_REQUIRE_SMALL(static_cast<double>(out.data[i]) - expected, 1e-36);
      else
        BOOST_REQUIRE_LE(ulps(out.data[i], expected), 8.0);
    }
  }
}

BOOST_AUTO_TEST_CASE(silu_mul_gives_an_element_the_same_bits_wherever_it_stands) {
  for (const isa level : all_isas()) {
    const auto gate = random_floats(100, 1, 4), up = random_floats(100, 2);
    std::vector<float> whole(100), part(100);
    kernels_for(level).silu_mul(gate.data(), up.data(), 100, whole.data());
    for (std::uint32_t first = 0; first < 100; ++first) {
      kernels_for(level).silu_mul(gate.data() + first, up.data() + first, 100 - first, part.data());
      BOOST_REQUIRE(std::memcmp(whole.data() + first, part.data(), (100 - first) * sizeof(float)) == 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(gelu_mul_agrees_with_double_precision_over_the_whole_range) {
  std::vector<float> gate;
  for (float g = -30.0F; g < 30.0F; g += 0.0137F) gate.push_back(g);
  for (const float g : {0.0F, -0.0F, 1e-30F, -1e-30F, 1e30F, -1e30F, 3e38F}) gate.push_back(g);
  const auto count = static_cast<std::uint32_t>(gate.size());
  const std::vector<float> up(count, 0.75F);
  for (const isa level : all_isas()) {
    guarded_row out{std::vector<float>(count)};
    kernels_for(level).gelu_mul(gate.data(), up.data(), count, out());
    BOOST_TEST(out.intact());
    for (std::uint32_t i = 0; i < count; ++i) {
      const double g = gate[i], inner = std::sqrt(2 / std::acos(-1.0)) * (g + 0.044715 * g * g * g);
      const double expected = g / (1 + std::exp(-2 * inner)) * 0.75;
      if (inner < -43) // exp(-2 inner) leaves the floats
        BOOST_REQUIRE_SMALL(static_cast<double>(out.data[i]) - expected, 1e-35);
      else
        BOOST_REQUIRE_LE(ulps(out.data[i], expected), 8.0 + 8 * std::min(std::abs(inner), 45.0));
    }
  }
}

BOOST_AUTO_TEST_CASE(gelu_mul_gives_an_element_the_same_bits_wherever_it_stands) {
  for (const isa level : all_isas()) {
    const auto gate = random_floats(100, 1, 4), up = random_floats(100, 2);
    std::vector<float> whole(100), part(100);
    kernels_for(level).gelu_mul(gate.data(), up.data(), 100, whole.data());
    for (std::uint32_t first = 0; first < 100; ++first) {
      kernels_for(level).gelu_mul(gate.data() + first, up.data() + first, 100 - first, part.data());
      BOOST_REQUIRE(std::memcmp(whole.data() + first, part.data(), (100 - first) * sizeof(float)) == 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_soft_cap_is_a_hyperbolic_tangent) {
  std::vector<float> x;
  for (float v = -300.0F; v < 300.0F; v += 0.0917F) x.push_back(v);
  for (const float v : {0.0F, -0.0F, 1e-30F, -1e-12F, 1e-4F, 0.02F, 3e38F, -3e38F}) x.push_back(v);
  const auto count = static_cast<std::uint32_t>(x.size());
  for (const isa level : all_isas()) {
    for (const float scale : {1.0F, 0.375F}) {
      guarded_row row{x};
      kernels_for(level).scale_cap(scale, 15.0F, count, row());
      BOOST_TEST(row.intact());
      for (std::uint32_t i = 0; i < count; ++i)
        BOOST_REQUIRE_LE(ulps(row.data[i], 15 * std::tanh(static_cast<double>(x[i] * scale) / 15)), 8.0);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_soft_cap_hides_no_overflow) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const isa level : all_isas()) {
    for (const float bad : {inf, -inf, std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> row(19, 1.0F);
      row[11] = bad;
      kernels_for(level).scale_cap(1.0F, 30.0F, 19, row.data());
      for (std::uint32_t i = 0; i < 19; ++i) BOOST_TEST(std::isnan(row[i]) == (i == 11));
    }
  }
}

BOOST_AUTO_TEST_CASE(scaling_is_exact) {
  for (const isa level : vector_isas()) {
    for (const std::uint32_t width : widths) {
      const auto from = random_floats(width, 1);
      auto expected = random_floats(width, 2);
      guarded_row to{expected};
      kernels_for(isa::ref).add_scaled(from.data(), 0.22F, width, expected.data());
      kernels_for(isa::ref).scale_cap(1.7F, 0, width, expected.data());
      kernels_for(level).add_scaled(from.data(), 0.22F, width, to());
      kernels_for(level).scale_cap(1.7F, 0, width, to());
      BOOST_TEST(to.intact());
      BOOST_TEST(std::memcmp(to(), expected.data(), width * sizeof(float)) == 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(add_is_exact) {
  for (const isa level : vector_isas()) {
    for (const std::uint32_t width : widths) {
      const auto from = random_floats(width, 1);
      auto expected = random_floats(width, 2);
      guarded_row to{expected};
      kernels_for(isa::ref).add(from.data(), width, expected.data());
      kernels_for(level).add(from.data(), width, to());
      BOOST_TEST(to.intact());
      BOOST_TEST(std::memcmp(to(), expected.data(), width * sizeof(float)) == 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(find_peak_gives_the_first_of_the_largest) {
  for (const isa level : all_isas()) {
    for (const std::uint32_t width : widths) {
      auto x = random_floats(width, width);
      for (std::uint32_t i = 0; i < width; i += std::max(1U, width / 7)) {
        auto row = x;
        row[i] = 50;
        if (i + 1 < width) row[width - 1] = 50;
        const logit_peak peak = kernels_for(level).find_peak(row.data(), width);
        BOOST_REQUIRE_EQUAL(peak.index, i);
        BOOST_REQUIRE_EQUAL(peak.value, 50);
        BOOST_REQUIRE(peak.finite);
      }
      std::fill(x.begin(), x.end(), -1e30F);
      BOOST_TEST(kernels_for(level).find_peak(x.data(), width).index == 0U);
    }
  }
}

BOOST_AUTO_TEST_CASE(find_peak_sees_every_number_that_is_not_finite) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const isa level : all_isas()) {
    for (const float bad : {inf, -inf, std::numeric_limits<float>::quiet_NaN()}) {
      for (std::uint32_t i = 0; i < 70; ++i) {
        auto x = random_floats(70, i);
        x[i] = bad;
        BOOST_REQUIRE(!kernels_for(level).find_peak(x.data(), 70).finite);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(exponentials_are_within_two_ulp) {
  std::vector<float> x;
  for (double v = -87.3; v < 88.7; v += 0.00037) x.push_back(static_cast<float>(v));
  for (const isa level : vector_isas()) {
    std::vector<float> e(x.size());
    kernels_for(level).exp_sum(x.data(), static_cast<std::uint32_t>(x.size()), 0.0F, 1.0F, e.data());
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      worst = std::max(worst, ulps(e[i], std::exp(static_cast<double>(x[i]))));
    BOOST_TEST_MESSAGE("exp " << isa_name(level) << ": " << worst << " ulp at most");
    BOOST_TEST(worst <= 2.0);
  }
}

BOOST_AUTO_TEST_CASE(exponentials_end_in_zero_and_keep_one_exact) {
  for (const isa level : all_isas()) {
    const std::vector<float> x{0.0F, -103.0F, -104.5F, -1000.0F, -1e30F};
    std::vector<float> e(x.size());
    kernels_for(level).exp_sum(x.data(), 5, 0.0F, 1.0F, e.data());
    BOOST_TEST(e[0] == 1.0F);
    BOOST_TEST(e[1] < 1e-44F);
    for (std::size_t i = 2; i < 5; ++i) BOOST_TEST(e[i] == 0.0F);
  }
}

BOOST_AUTO_TEST_CASE(exp_sum_adds_up_what_it_writes) {
  for (const isa level : all_isas()) {
    for (const std::uint32_t width : {1U, 5U, 16U, 511U, 513U, 2000U, 49152U}) {
      const auto x = random_floats(width, width, 3);
      const float peak = kernels_for(level).find_peak(x.data(), width).value;
      guarded_row e{std::vector<float>(width)};
      const double sum = kernels_for(level).exp_sum(x.data(), width, peak, 0.7F, e());
      BOOST_TEST(e.intact());
      double expected = 0;
      for (std::uint32_t i = 0; i < width; ++i) expected += static_cast<double>(e.data[i]);
      BOOST_TEST(sum == expected, boost::test_tools::tolerance(64 * epsilon));
      BOOST_TEST(kernels_for(level).exp_sum(x.data(), width, peak, 0.7F, nullptr) == sum);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
