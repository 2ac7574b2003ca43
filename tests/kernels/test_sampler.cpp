// SPDX-License-Identifier: Apache-2.0
#include "kernels/sampler.hpp"
#include "runtime/rng.hpp"
#include "tests/kernels/random_numbers.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
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
  token_mask mask;
  isa level = isa::ref;

  explicit sampler_fixture(std::vector<float> numbers) :
      logits(std::move(numbers)), scratch(static_cast<std::uint32_t>(logits.size())) {}
  std::int32_t draw(const sampling_params& params, std::uint32_t position) {
    return sample_token(kernels_for(level), logits, params, history, prompt_tokens, position, scratch, &mask);
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

/// Logits after bias, penalties and mask, by the definition in sampling.hpp.
std::vector<double> plain_adjusted(const sampler_fixture& f, const sampling_params& params) {
  std::vector<double> logits(f.logits.begin(), f.logits.end());
  if (params.bias)
    for (const auto& b : *params.bias)
      logits.at(static_cast<std::size_t>(b.token)) += static_cast<double>(b.bias);
  std::set<std::int32_t> seen(f.history.begin(), f.history.end());
  std::map<std::int32_t, int> counts;
  for (std::size_t i = f.prompt_tokens; i < f.history.size(); ++i) ++counts[f.history[i]];
  for (const auto token : seen) {
    double& x = logits.at(static_cast<std::size_t>(token));
    const double r = static_cast<double>(params.repetition_penalty);
    x = x > 0 ? x / r : x * r;
  }
  for (const auto& [token, count] : counts)
    logits.at(static_cast<std::size_t>(token)) -=
        static_cast<double>(params.presence_penalty) + count * static_cast<double>(params.frequency_penalty);
  for (std::size_t id = 0; id < logits.size(); ++id)
    if (f.mask.forbids(static_cast<std::int32_t>(id))) logits[id] = -1e30;
  return logits;
}

/// The ids kept by the filters and what each weighs, by id: plain sorting in double precision.
std::map<std::uint32_t, double> plain_kept(const std::vector<double>& logits, const sampling_params& params) {
  std::vector<std::uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto likelier = [&](auto a, auto b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  };
  std::sort(order.begin(), order.end(), likelier);
  const double peak = logits[order[0]], temperature = static_cast<double>(params.temperature);
  const auto weight = [&](std::uint32_t id) { return std::exp((logits[id] - peak) / temperature); };
  const auto cut_at = [&](double share) {
    double total = 0, sum = 0;
    for (const auto id : order) total += weight(id);
    std::size_t kept = 0;
    while (kept < order.size() && sum < share * total) sum += weight(order[kept++]);
    order.resize(kept);
  };
  if (params.top_k > 0) order.resize(std::min<std::size_t>(order.size(), params.top_k));
  if (params.typical_p < 1) {
    double total = 0, entropy = 0;
    for (const auto id : order) total += weight(id);
    for (const auto id : order)
      if (const double p = weight(id) / total; p > 0) entropy -= p * std::log(p);
    std::map<std::uint32_t, double> distance;
    for (const auto id : order) distance[id] = std::abs(-std::log(weight(id) / total) - entropy);
    std::sort(order.begin(), order.end(), [&](auto a, auto b) {
      return distance[a] < distance[b] || (distance[a] == distance[b] && a < b);
    });
    cut_at(static_cast<double>(params.typical_p));
    std::sort(order.begin(), order.end(), likelier);
  }
  if (params.top_p < 1) cut_at(static_cast<double>(params.top_p));
  const double least = static_cast<double>(params.min_p) * weight(order[0]);
  std::map<std::uint32_t, double> kept;
  for (const auto id : order)
    if (weight(id) >= least) kept[id] = weight(id);
  return kept;
}

/// The token by the definition in sampling.hpp, in double precision.
std::int32_t plain_sample(const sampler_fixture& f, const sampling_params& params, std::uint32_t position) {
  const auto logits = plain_adjusted(f, params);
  if (params.greedy())
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const auto kept = plain_kept(logits, params);
  double total = 0, sum = 0;
  for (const auto& [id, weight] : kept) total += weight;
  const double u = runtime::random_unit(params.seed, position);
  for (const auto& [id, weight] : kept)
    if ((sum += weight) > u * total) return static_cast<std::int32_t>(id);
  return static_cast<std::int32_t>(kept.rbegin()->first);
}

sampling_params biased(sampling_params params, std::vector<token_bias> bias) {
  params.bias = std::make_shared<const std::vector<token_bias>>(std::move(bias));
  return params;
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
          differing += f.draw(params, p) == plain_sample(f, params, p) ? 0 : 1;
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

BOOST_AUTO_TEST_CASE(what_the_mask_forbids_is_not_drawn_however_likely_it_is) {
  for (const isa level : all_isas()) {
    sampler_fixture f({1, 9, 3, 8, 2.5F, 0});
    f.level = level;
    for (const std::int32_t id : {1, 3, 600, -1}) f.mask.forbid(id);
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
    f.mask = {};
    BOOST_TEST(f.draw(with(0), 0) == 1);
  }
}

BOOST_AUTO_TEST_CASE(where_everything_is_forbidden_a_token_is_drawn_all_the_same) {
  sampler_fixture f({1, 2});
  f.mask.forbid(0);
  f.mask.forbid(1);
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

BOOST_AUTO_TEST_CASE(a_mask_forbids_what_it_was_told_and_visits_only_that) {
  token_mask mask;
  BOOST_TEST(!mask.forbids(0));
  for (const std::int32_t id : {0, 63, 64, 130, 130, -5}) mask.forbid(id);
  std::vector<std::uint32_t> seen;
  mask.for_each(1000, [&](std::uint32_t id) { seen.push_back(id); });
  BOOST_TEST(seen == (std::vector<std::uint32_t>{0, 63, 64, 130}), boost::test_tools::per_element());
  seen.clear();
  mask.for_each(64, [&](std::uint32_t id) { seen.push_back(id); });
  BOOST_TEST(seen == (std::vector<std::uint32_t>{0, 63}), boost::test_tools::per_element());
  for (const std::int32_t id : {1, 62, 65, 129, 131, 192, 1 << 30, -5, -1}) BOOST_TEST(!mask.forbids(id));
  BOOST_TEST(mask.forbids(130));
}

BOOST_AUTO_TEST_CASE(a_bias_is_added_before_the_penalties) {
  sampler_fixture f({4, 3.9F, -1, 3.8F});
  BOOST_TEST(f.draw(biased(with(0), {{2, 5.5F}}), 0) == 2);
  BOOST_TEST(f.scratch.adjusted[2] == 4.5F);
  f.history = {2};
  auto params = biased(with(0), {{2, 5.5F}, {7, 1}, {-1, 1}}); // ids that are none do no harm
  params.repetition_penalty = 1.5F;
  BOOST_TEST(f.draw(params, 0) == 0);
  BOOST_TEST(f.scratch.adjusted[2] == 3.0F);
  f.mask.forbid(0);
  BOOST_TEST(f.draw(params, 0) == 1);
}

BOOST_AUTO_TEST_CASE(typical_p_keeps_what_is_near_the_entropy) {
  // p = 0.4 and 0.15 four times: the entropy is 1.50 nats; -ln p is 0.92 and 1.90, so the likeliest token is
  // the least typical.
  const float rare = std::log(0.15F);
  sampler_fixture f({std::log(0.4F), rare, rare, rare, rare});
  auto params = with(1);
  params.typical_p = 0.2F;
  BOOST_TEST((keys(f.drawn(params)) == std::set<std::int32_t>{1, 2})); // of equals the lower ids
  params.typical_p = 0.61F;
  BOOST_TEST((keys(f.drawn(params)) == std::set<std::int32_t>{0, 1, 2, 3, 4}));
  params.typical_p = 0.2F;
  params.min_p = 1.0F; // relative to the most likely that is left
  BOOST_TEST((keys(f.drawn(params)) == std::set<std::int32_t>{1, 2}));
  params.top_p = 0.5F; // of what typical-p left
  BOOST_TEST((keys(f.drawn(params)) == std::set<std::int32_t>{1}));
  params = with(1, 2); // top-k first: 0.73 and 0.27, entropy 0.59
  params.typical_p = 0.5F;
  BOOST_TEST((keys(f.drawn(params)) == std::set<std::int32_t>{0}));
}

BOOST_AUTO_TEST_CASE(every_combination_follows_the_definition_in_double_precision) {
  int differing = 0, draws = 0;
  for (const isa level : all_isas()) {
    sampler_fixture f(random_floats(2500, 11, 2.0F));
    f.level = level;
    for (std::int32_t i = 0; i < 40; ++i) f.history.push_back(i * 37 % 600);
    f.history.insert(f.history.end(), {5, 5, 5, 2499});
    f.prompt_tokens = 30;
    for (std::int32_t id = 0; id < 2500; id += 7) f.mask.forbid(id);
    runtime::random_stream chance(3);
    for (int i = 0; i < 120; ++i) {
      const auto pick = [&](auto... of) {
        const std::array<std::common_type_t<decltype(of)...>, sizeof...(of)> all{of...};
        return all[chance.below(all.size())];
      };
      auto params = with(
          pick(0.0F, 0.4F, 1.0F, 2.0F), pick(0U, 1U, 50U, 2000U), pick(1.0F, 0.9F, 0.3F),
          pick(0.0F, 0.02F, 0.3F));
      params.typical_p = pick(1.0F, 0.95F, 0.6F, 0.2F);
      params.repetition_penalty = pick(1.0F, 1.3F, 0.7F);
      params.presence_penalty = pick(0.0F, 1.5F, -0.5F);
      params.frequency_penalty = pick(0.0F, 0.25F, -0.5F);
      if (pick(0, 1) == 1) params = biased(params, {{3, 9.5F}, {5, -8}, {7, 100}, {2000, 4}});
      for (std::uint32_t p = 0; p < 3; ++p, ++draws)
        differing += f.draw(params, p) == plain_sample(f, params, p) ? 0 : 1;
    }
  }
  // A draw, or the end of a run, within rounding of a border may fall to the neighbour.
  BOOST_TEST(differing * 200 <= draws, differing << " of " << draws);
}

BOOST_AUTO_TEST_CASE(draws_are_distributed_as_the_filters_leave_it) {
  // Pearson's chi-square over the kept tokens; the seed is fixed, the bound is four standard deviations of
  // the statistic (mean k - 1, variance 2 (k - 1)).
  sampler_fixture f(random_floats(300, 21, 1.5F));
  for (const int kind : {0, 1, 2, 3, 4}) {
    auto params = with(kind == 1 ? 2.0F : 0.9F);
    params.seed = 7 + static_cast<std::uint64_t>(kind);
    if (kind == 1) params.top_k = 40;
    if (kind == 2) params.typical_p = 0.5F;
    if (kind == 3) params.top_p = 0.8F, params.min_p = 0.05F;
    if (kind == 4) params = biased(params, {{17, 3}, {18, -100}});
    const int draws = 20000;
    const auto counts = f.drawn(params, draws);
    const auto kept = plain_kept(plain_adjusted(f, params), params);
    double total = 0, chi = 0, cells = 0, rest_expected = 0, rest_seen = 0;
    for (const auto& [id, weight] : kept) total += weight;
    for (const auto& [token, count] : counts) BOOST_TEST(kept.contains(static_cast<std::uint32_t>(token)));
    for (const auto& [id, weight] : kept) {
      const double expected = draws * weight / total;
      const auto at = counts.find(static_cast<std::int32_t>(id));
      const double seen = at == counts.end() ? 0 : at->second;
      if (expected < 8) { // too few for the statistic: together they are one cell
        rest_expected += expected;
        rest_seen += seen;
        continue;
      }
      chi += (seen - expected) * (seen - expected) / expected;
      ++cells;
    }
    if (rest_expected >= 8) {
      chi += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected;
      ++cells;
    }
    BOOST_TEST(
        chi < cells - 1 + 4 * std::sqrt(2 * (cells - 1)), "kind " << kind << ": " << chi << " of " << cells);
  }
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
