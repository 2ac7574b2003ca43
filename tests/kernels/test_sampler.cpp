// SPDX-License-Identifier: Apache-2.0
#include "kernels/sampler.hpp"
#include "runtime/rng.hpp"
#include "tests/kernels/random_numbers.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

using namespace troupe;
using namespace troupe::kernels;
using namespace troupe::kernels::test;

namespace {

struct sampler_fixture {
  std::vector<float> logits;
  sampler_scratch scratch;
  std::vector<std::int32_t> history;
  std::uint32_t prompt_tokens = 0;
  std::vector<std::int32_t> held_back;
  isa level = isa::ref;

  explicit sampler_fixture(std::vector<float> numbers) :
      logits(std::move(numbers)), scratch(static_cast<std::uint32_t>(logits.size())) {}
  std::int32_t draw(const sampling_params& params, std::uint32_t position) {
    return sample_token(
        kernels_for(level), logits, params, history, prompt_tokens, position, scratch, held_back);
  }
  /// Tokens that come up in `draws` draws.
  std::map<std::int32_t, int> drawn(const sampling_params& params, int draws = 2000) {
    std::map<std::int32_t, int> counts;
    for (int i = 0; i < draws; ++i) ++counts[draw(params, static_cast<std::uint32_t>(i))];
    return counts;
  }
};

sampling_params with(float temperature, std::uint32_t top_k = 0, float top_p = 1, float min_p = 0) {
  sampling_params params;
  params.temperature = temperature;
  params.top_k = top_k;
  params.top_p = top_p;
  params.min_p = min_p;
  params.seed = 42;
  return params;
}

std::set<std::int32_t> keys(const std::map<std::int32_t, int>& counts) {
  std::set<std::int32_t> set;
  for (const auto& [token, count] : counts) set.insert(token);
  return set;
}

/// The token by the definition in sampling.hpp, with sorting and double precision.
std::int32_t
plain_sample(const std::vector<float>& logits, const sampling_params& params, std::uint32_t position) {
  std::vector<std::uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
  const double peak = logits[order[0]];
  const auto weight = [&](std::uint32_t id) {
    return std::exp((static_cast<double>(logits[id]) - peak) / static_cast<double>(params.temperature));
  };
  if (params.top_k > 0) order.resize(std::min<std::size_t>(order.size(), params.top_k));
  if (params.top_p < 1) {
    double total = 0, sum = 0;
    for (const auto id : order) total += weight(id);
    std::size_t kept = 0;
    while (kept < order.size() && sum < static_cast<double>(params.top_p) * total)
      sum += weight(order[kept++]);
    order.resize(kept);
  }
  std::erase_if(order, [&](auto id) { return weight(id) < static_cast<double>(params.min_p); });
  std::sort(order.begin(), order.end());
  double total = 0, sum = 0;
  for (const auto id : order) total += weight(id);
  const double u = runtime::random_unit(params.seed, position);
  for (const auto id : order)
    if ((sum += weight(id)) > u * total) return static_cast<std::int32_t>(id);
  return static_cast<std::int32_t>(order.back());
}

} // namespace

BOOST_AUTO_TEST_SUITE(sampler)

BOOST_AUTO_TEST_CASE(greedy_takes_the_first_of_the_largest) {
  sampler_fixture f({1, 5, 3, 5, 5});
  BOOST_TEST(f.draw(with(0), 0) == 1);
}

BOOST_AUTO_TEST_CASE(a_draw_depends_on_seed_and_position_only) {
  sampler_fixture f(random_floats(1000, 1));
  const auto first = f.draw(with(1), 17);
  f.draw(with(1), 18);
  BOOST_TEST(f.draw(with(1), 17) == first);
  auto other = with(1);
  other.seed = 43;
  int equal = 0;
  for (std::uint32_t p = 0; p < 200; ++p) equal += f.draw(with(1), p) == f.draw(other, p) ? 1 : 0;
  BOOST_TEST(equal < 20);
}

BOOST_AUTO_TEST_CASE(every_kernel_follows_the_definition) {
  int draws = 0;
  for (const isa level : all_isas()) {
    sampler_fixture f(random_floats(3000, 7, 2.5F));
    f.level = level;
    for (const float temperature : {0.3F, 0.8F, 1.0F, 1.7F}) {
      for (const auto& [top_k, top_p, min_p] :
           {std::tuple{0U, 1.0F, 0.0F},
            {1U, 1.0F, 0.0F},
            {40U, 1.0F, 0.0F},
            {0U, 0.9F, 0.0F},
            {0U, 0.999F, 0.0F},
            {40U, 0.8F, 0.0F},
            {0U, 1.0F, 0.05F},
            {100U, 0.95F, 0.02F},
            {2999U, 0.5F, 0.0F},
            {5000U, 1.0F, 0.0F}}) {
        const auto params = with(temperature, top_k, top_p, min_p);
        int differing = 0;
        for (std::uint32_t p = 0; p < 60; ++p, ++draws)
          differing += f.draw(params, p) == plain_sample(f.logits, params, p) ? 0 : 1;
        // A draw within rounding of a border may fall to the neighbour.
        BOOST_TEST(
            differing <= 1,
            "T " << temperature << " k " << top_k << " p " << top_p << " min " << min_p << ": " << differing);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(frequencies_follow_the_probabilities) {
  sampler_fixture f({std::log(0.5F), std::log(0.3F), std::log(0.2F)});
  const int draws = 20000;
  auto counts = f.drawn(with(1), draws);
  for (const auto& [token, p] : {std::pair{0, 0.5}, {1, 0.3}, {2, 0.2}}) // five standard deviations
    BOOST_TEST(std::abs(counts[token] - p * draws) < 5 * std::sqrt(draws * p * (1 - p)));
}

BOOST_AUTO_TEST_CASE(top_k_keeps_exactly_k_and_of_equals_the_lower_ids) {
  sampler_fixture f({0, 2, 1, 2, 1, 1, 0});
  BOOST_TEST((keys(f.drawn(with(1, 3))) == std::set<std::int32_t>{1, 2, 3}));
  BOOST_TEST((keys(f.drawn(with(2, 1))) == std::set<std::int32_t>{1}));
}

BOOST_AUTO_TEST_CASE(top_p_keeps_the_shortest_run_that_holds_the_share) {
  sampler_fixture f({std::log(0.4F), std::log(0.05F), std::log(0.35F), std::log(0.2F)});
  BOOST_TEST((keys(f.drawn(with(1, 0, 0.39F))) == std::set<std::int32_t>{0}));
  BOOST_TEST((keys(f.drawn(with(1, 0, 0.5F))) == std::set<std::int32_t>{0, 2}));
  BOOST_TEST((keys(f.drawn(with(1, 0, 0.94F))) == std::set<std::int32_t>{0, 2, 3}));
  BOOST_TEST((keys(f.drawn(with(1, 0, 1e-6F))) == std::set<std::int32_t>{0}));
  // The share is of what top-k kept: 0.4 / 0.75 of two tokens.
  BOOST_TEST((keys(f.drawn(with(1, 2, 0.53F))) == std::set<std::int32_t>{0}));
}

BOOST_AUTO_TEST_CASE(min_p_is_relative_to_the_most_likely_token) {
  sampler_fixture f({std::log(0.5F), std::log(0.26F), std::log(0.24F)});
  BOOST_TEST((keys(f.drawn(with(1, 0, 1, 0.5F))) == std::set<std::int32_t>{0, 1}));
  BOOST_TEST((keys(f.drawn(with(1, 0, 1, 1.0F))) == std::set<std::int32_t>{0}));
}

BOOST_AUTO_TEST_CASE(a_filter_that_keeps_everything_changes_nothing) {
  for (const isa level : all_isas()) {
    sampler_fixture f(random_floats(2000, 3));
    f.level = level;
    for (std::uint32_t p = 0; p < 100; ++p) {
      const auto plain = f.draw(with(0.9F), p);
      BOOST_REQUIRE_EQUAL(f.draw(with(0.9F, 2000), p), plain);
      BOOST_REQUIRE_EQUAL(f.draw(with(0.9F, 0, 1, 1e-12F), p), plain);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_tiny_temperature_is_greedy) {
  sampler_fixture f(random_floats(500, 3));
  const auto best = f.draw(with(0), 0);
  for (const float t : {1e-3F, 1e-20F, 1e-44F})
    BOOST_TEST((keys(f.drawn(with(t), 50)) == std::set<std::int32_t>{best}));
}

BOOST_AUTO_TEST_CASE(penalties_act_on_the_tokens_they_name) {
  sampler_fixture f({4, 3.9F, -1, 3.8F});
  f.history = {0, 2, 1, 1}; // prompt 0 2, output 1 1
  f.prompt_tokens = 2;
  auto params = with(0);
  params.repetition_penalty = 1.5F; // 0: 2.67, 1: 2.6, 2: -1.5
  BOOST_TEST(f.draw(params, 0) == 3);
  BOOST_TEST(f.scratch.adjusted[2] == -1.5F);
  params = with(0);
  params.presence_penalty = 0.2F; // output only
  BOOST_TEST(f.draw(params, 0) == 0);
  BOOST_TEST(f.scratch.adjusted[1] == 3.7F, boost::test_tools::tolerance(1e-6F));
  params = with(0);
  params.frequency_penalty = -0.1F; // twice
  BOOST_TEST(f.draw(params, 0) == 1);
  BOOST_TEST(f.scratch.adjusted[1] == 4.1F, boost::test_tools::tolerance(1e-6F));
  BOOST_TEST(f.scratch.adjusted[0] == 4.0F);
}

BOOST_AUTO_TEST_CASE(penalties_leave_no_trace_for_the_next_row) {
  sampler_fixture f(random_floats(300, 9));
  auto params = with(0);
  params.frequency_penalty = 1.0F;
  f.history = {1, 2, 3, 3, 299, -1, 300, 1000000};
  f.draw(params, 0);
  BOOST_TEST(std::all_of(f.scratch.counts.begin(), f.scratch.counts.end(), [](auto c) { return c == 0; }));
}

BOOST_AUTO_TEST_CASE(what_is_held_back_is_not_drawn_however_likely_it_is) {
  for (const isa level : all_isas()) {
    sampler_fixture f({1, 9, 3, 8, 2.5F, 0});
    f.level = level;
    f.held_back = {1, 3, 600, -1};
    BOOST_TEST(f.draw(with(0), 0) == 2);
    BOOST_TEST((keys(f.drawn(with(1.5F))) == std::set<std::int32_t>{0, 2, 4, 5}));
    BOOST_TEST((keys(f.drawn(with(2, 3))) == std::set<std::int32_t>{0, 2, 4}));
    BOOST_TEST((keys(f.drawn(with(1, 5, 0.999F, 1e-9F))) == std::set<std::int32_t>{0, 2, 4, 5}));
    BOOST_TEST((keys(f.drawn(with(1e-44F))) == std::set<std::int32_t>{2}));
    auto params = with(0);
    params.repetition_penalty = 1e-30F; // drives the token that it names, and no other
    f.history = {1};
    BOOST_TEST(f.draw(params, 0) == 2);
    f.history.clear();
    f.held_back.clear();
    BOOST_TEST(f.draw(with(0), 0) == 1);
  }
}

BOOST_AUTO_TEST_CASE(where_everything_is_held_back_a_token_is_drawn_all_the_same) {
  sampler_fixture f({1, 2});
  f.held_back = {0, 1};
  for (const auto& [token, count] : f.drawn(with(1, 1, 0.5F, 0.5F), 10))
    BOOST_TEST((token == 0 || token == 1));
}

BOOST_AUTO_TEST_CASE(an_extreme_penalty_still_gives_a_token) {
  sampler_fixture f(random_floats(100, 9, 1e4F));
  auto params = with(1, 5, 0.9F, 0.1F);
  params.repetition_penalty = 1e-40F;
  f.history = {3, 4};
  const auto token = f.draw(params, 1);
  BOOST_TEST((token >= 0 && token < 100));
}

BOOST_AUTO_TEST_CASE(the_largest_logits_come_sorted_with_ties_by_id) {
  for (const isa level : all_isas()) {
    for (const std::uint32_t vocab : {1U, 5U, 64U, 65U, 1000U, 5000U}) {
      auto logits = random_floats(vocab, vocab);
      for (float& x : logits) x = std::round(x * 8) / 8; // many ties
      std::vector<std::uint32_t> expected(vocab), order(vocab);
      std::iota(expected.begin(), expected.end(), 0U);
      std::stable_sort(
          expected.begin(), expected.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
      sampler_scratch scratch(vocab);
      for (const std::uint32_t count : {1U, 2U, 20U, 77U, 500U, 5000U}) {
        if (count > vocab) continue;
        largest_logits(kernels_for(level), logits, count, scratch.peaks, order.data());
        BOOST_REQUIRE(std::equal(order.begin(), order.begin() + count, expected.begin()));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(log_sum_exp_is_that_of_double_precision) {
  const auto logits = random_floats(49152, 2, 4);
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  for (const isa level : all_isas())
    BOOST_TEST(log_sum_exp(kernels_for(level), logits) == std::log(sum), boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_SUITE_END()
