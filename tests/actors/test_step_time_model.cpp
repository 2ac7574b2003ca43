// SPDX-License-Identifier: Apache-2.0
#include "actors/step_time_model.hpp"
#include "runtime/rng.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>

using namespace troupe;
using namespace troupe::actors;

namespace {

/// Times of a machine: seconds for a step, a decode row, a prefill row and a position.
struct machine {
  double step, decode, prefill, position;
  double seconds(const step_shape& s) const {
    return step + decode * s.decode_rows + prefill * s.prefill_rows +
           position * static_cast<double>(s.positions);
  }
  runtime::duration takes(const step_shape& s, double times = 1) const {
    return std::chrono::duration_cast<runtime::duration>(std::chrono::duration<double>(seconds(s) * times));
  }
};

constexpr machine small{4e-3, 0.3e-3, 0.4e-3, 0.6e-6};

step_shape shape(std::uint32_t decode, std::uint32_t prefill, std::uint32_t at = 100) {
  step_shape s;
  for (std::uint32_t i = 0; i < decode; ++i) s.add(at, 1, true);
  if (prefill > 0) s.add(at, prefill, false);
  return s;
}

double error_of(const step_time_model& model, const machine& m, const step_shape& s) {
  return std::abs(std::chrono::duration<double>(model.predict(s)).count() / m.seconds(s) - 1);
}

} // namespace

BOOST_AUTO_TEST_SUITE(step_times)

BOOST_AUTO_TEST_CASE(positions_are_what_the_rows_attend_to) {
  step_shape s;
  s.add(10, 3, false); // 11 + 12 + 13
  s.add(4, 1, true);   // 5
  BOOST_TEST(s.positions == 41U);
  BOOST_TEST(s.decode_rows == 1U);
  BOOST_TEST(s.prefill_rows == 3U);
}

BOOST_AUTO_TEST_CASE(nothing_is_foretold_before_enough_was_seen) {
  step_time_model model;
  for (std::uint32_t i = 0; i < step_time_model::least_steps; ++i) {
    BOOST_TEST(!model.knows());
    BOOST_TEST((model.predict(shape(1, 1)) == runtime::duration::zero()));
    model.observe(shape(1, 1), small.takes(shape(1, 1)));
  }
  BOOST_TEST(model.knows());
}

BOOST_AUTO_TEST_CASE(steps_of_every_kind_teach_what_each_part_costs) {
  step_time_model model;
  runtime::random_stream r(7, 1);
  for (int i = 0; i < 300; ++i) {
    const auto s = shape(
        static_cast<std::uint32_t>(r.between(0, 16)), static_cast<std::uint32_t>(r.between(0, 200)),
        static_cast<std::uint32_t>(r.between(0, 3000)));
    model.observe(s, small.takes(s, 0.95 + 0.1 * r.unit()));
  }
  for (const auto& s : {shape(1, 0), shape(16, 0), shape(16, 64), shape(0, 256), shape(4, 100, 3000)})
    BOOST_TEST(error_of(model, small, s) < 0.1);
}

BOOST_AUTO_TEST_CASE(what_prompts_cost_is_remembered_while_only_streams_run) {
  step_time_model model;
  for (int i = 0; i < 40; ++i) {
    model.observe(
        shape(2, 100 + static_cast<std::uint32_t>(i)),
        small.takes(shape(2, 100 + static_cast<std::uint32_t>(i))));
    model.observe(shape(4, 0), small.takes(shape(4, 0)));
  }
  for (std::uint32_t i = 0; i < 50'000; ++i) {
    const auto s = shape(1 + i % 8, 0, 100 + i % 500);
    model.observe(s, small.takes(s));
  }
  BOOST_TEST(error_of(model, small, shape(4, 120)) < 0.1);
}

BOOST_AUTO_TEST_CASE(a_machine_that_becomes_slower_is_learnt_anew) {
  step_time_model model;
  const machine slow{12e-3, 0.9e-3, 1.2e-3, 1.8e-6};
  for (std::uint32_t i = 0; i < 400; ++i) {
    const auto s = shape(1 + i % 16, i % 3 == 0 ? 40 + i % 64 : 0, 50 + i % 300);
    model.observe(s, (i < 100 ? small : slow).takes(s));
  }
  BOOST_TEST(error_of(model, slow, shape(8, 0)) < 0.1);
  BOOST_TEST(error_of(model, slow, shape(8, 60)) < 0.1);
}

BOOST_AUTO_TEST_CASE(one_step_that_was_held_up_changes_little) {
  step_time_model model;
  for (std::uint32_t i = 0; i < 100; ++i)
    model.observe(shape(1 + i % 16, 0), small.takes(shape(1 + i % 16, 0)));
  model.observe(shape(8, 0), std::chrono::seconds(60));
  BOOST_TEST(error_of(model, small, shape(8, 0)) < 0.1);
}

BOOST_AUTO_TEST_CASE(no_part_ever_costs_less_than_nothing) {
  step_time_model model;
  runtime::random_stream r(9, 1);
  for (int i = 0; i < 2'000; ++i) {
    const auto s = shape(
        static_cast<std::uint32_t>(r.between(0, 16)), static_cast<std::uint32_t>(r.between(0, 200)),
        static_cast<std::uint32_t>(r.between(0, 3000)));
    model.observe(s, runtime::duration(r.between(0, 1'000'000'000)));
    for (const double c : model.coefficients()) {
      BOOST_REQUIRE(c >= 0);
      BOOST_REQUIRE(std::isfinite(c));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
