// SPDX-License-Identifier: Apache-2.0
#include "sim/load_watch.hpp"
#include "sim/load_world.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

using namespace troupe;
using namespace troupe::sim;

namespace {

double mean_of(const law& l, std::uint64_t seed, int count = 20'000) {
  runtime::random_stream chance(seed);
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += l.draw(chance);
  return sum / count;
}

double median_of(const law& l, std::uint64_t seed) {
  runtime::random_stream chance(seed);
  std::vector<double> all(20'001);
  for (auto& x : all) x = l.draw(chance);
  std::nth_element(all.begin(), all.begin() + 10'000, all.end());
  return all[10'000];
}

load_plan plan_of(workload what, std::uint64_t seed = 1) {
  load_plan plan;
  plan.what = std::move(what);
  for (const auto& [name, value] : plan.what.settings) set(plan.settings, name, value);
  plan.costs = measured_step_costs().front();
  plan.seed = seed;
  return plan;
}

load_plan plan_of(const std::string& text, std::uint64_t seed = 1) {
  return plan_of(parse_workload("test", text), seed);
}

load_plan named_plan(const char* name) {
  return plan_of(find_workload(name));
}

load_result run(const load_plan& plan, double load) {
  return run_load(plan, load, load);
}

std::size_t lines_of(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

const std::string poisson = "loads = 4\nseconds = 100\n[crowd requests]\noutput = fixed 8\n";

} // namespace

BOOST_AUTO_TEST_SUITE(load_laws)

BOOST_AUTO_TEST_CASE(means_are_those_of_the_distributions) {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    BOOST_TEST(std::abs(mean_of(parse_law("exponential 5"), seed) / 5 - 1) < 0.03);
    BOOST_TEST(std::abs(mean_of(parse_law("uniform 10 20"), seed) / 15 - 1) < 0.01);
    BOOST_TEST(std::abs(mean_of(parse_law("lognormal 100 0.5"), seed) / (100 * std::exp(0.125)) - 1) < 0.03);
    BOOST_TEST(std::abs(mean_of(parse_law("pareto 30 3"), seed) / 45 - 1) < 0.05);
    BOOST_TEST(mean_of(parse_law("fixed 7"), seed) == 7);
  }
}

BOOST_AUTO_TEST_CASE(medians_are_those_of_the_distributions) {
  BOOST_TEST(std::abs(median_of(parse_law("lognormal 100 1.5"), 1) / 100 - 1) < 0.05);
  BOOST_TEST(std::abs(median_of(parse_law("pareto 30 1.2"), 1) / (30 * std::pow(2, 1 / 1.2)) - 1) < 0.05);
}

BOOST_AUTO_TEST_CASE(what_falls_outside_counts_as_the_bound) {
  const law l = parse_law("pareto 40 0.5 50 90");
  runtime::random_stream chance(1);
  std::set<double> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(l.draw(chance));
  BOOST_TEST(*seen.begin() == 50);
  BOOST_TEST(*seen.rbegin() == 90);
}

BOOST_AUTO_TEST_CASE(what_is_no_distribution_is_refused) {
  for (const char* text :
       {"", "normal 1 2", "fixed", "fixed x", "lognormal 1", "lognormal 1 2 3", "uniform 2 1", "pareto 1 0",
        "exponential -1", "pareto 1 2 9 3", "fixed 1 2"})
    BOOST_CHECK_THROW(parse_law(text), std::runtime_error);
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(workloads)

BOOST_AUTO_TEST_CASE(every_named_one_is_read) {
  for (const auto& w : named_workloads()) {
    const auto made = find_workload(std::string(w.name));
    BOOST_TEST(!made.about.empty());
    BOOST_TEST(!made.crowds.empty());
  }
  BOOST_CHECK_THROW(find_workload("no such workload"), std::runtime_error);
}

BOOST_AUTO_TEST_CASE(a_wrong_line_is_named) {
  for (const auto& [text, says] :
       {std::pair("loads = 1\nseconds = x\n", "test, line 2: \"x\" is no seconds"),
        std::pair("loads = 1\n[crowd a]\n\nthink = 1\n", "line 4: a crowd has no"),
        std::pair("max_btach = 3\n", "line 1: there is no setting"),
        std::pair("max_batch = 0\n", "line 1: max_batch takes a number from 1"),
        std::pair("loads = 1\n", "there is no [crowd NAME]"),
        std::pair("[crowd a]\n", "there are no \"loads\""),
        std::pair("loads = 1\n[crowd a]\narrivals = closed fixed 1\n", "needs a fixed_load"),
        std::pair("hello\n", "neither NAME = VALUE nor")})
    BOOST_CHECK_EXCEPTION(parse_workload("test", text), std::runtime_error, [&](const auto& e) {
      return std::string(e.what()).find(says) != std::string::npos;
    });
}

BOOST_AUTO_TEST_CASE(settings_are_set_by_name) {
  load_settings s;
  set(s, "max_batch", "7");
  set(s, "tpot_goal_ms", "40");
  set(s, "kv_blocks", "99");
  BOOST_TEST(s.options.max_batch == 7U);
  BOOST_TEST((s.options.tpot_goals[9] == std::chrono::milliseconds(40)));
  BOOST_TEST(s.kv_blocks == 99U);
  for (const auto& [name, value] : list_settings(s)) BOOST_CHECK_NO_THROW(set(s, name, value));
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(loads)

BOOST_AUTO_TEST_CASE(a_row_is_a_function_of_its_seed) {
  const auto plan = plan_of(poisson, 3);
  const auto first = run(plan, 4), again = run(plan, 4);
  BOOST_TEST(first.hash == again.hash);
  BOOST_TEST(first.events == again.events);
  BOOST_TEST(first.hash != run(plan_of(poisson, 4), 4).hash);
  BOOST_TEST(first.hash != run(plan, 5).hash);
}

BOOST_AUTO_TEST_CASE(requests_come_at_the_rate_that_was_asked_for) {
  for (const char* arrivals : {"", "arrivals = bursts 0.5 1\n"}) {
    auto plan = plan_of(poisson + arrivals, 5);
    plan.what.seconds = 2000;
    const auto r = run(plan, 4);
    const double offered = static_cast<double>(r.all().offered) / r.seconds;
    BOOST_TEST(std::abs(offered / 4 - 1) < 0.08, arrivals << offered);
  }
}

BOOST_AUTO_TEST_CASE(what_is_offered_is_the_same_under_other_policies) {
  auto plan = plan_of(poisson);
  const auto one = run(plan, 4);
  plan.settings.options.max_batch = 1;
  const auto other = run(plan, 4);
  BOOST_TEST(one.all().offered == other.all().offered);
  BOOST_TEST(one.hash != other.hash);
}

BOOST_AUTO_TEST_CASE(clients_wait_for_their_answers_and_think) {
  const auto plan =
      plan_of("axis = clients\nloads = 3\nseconds = 100\n[crowd people]\narrivals = closed fixed 1\n"
              "output = fixed 2\nprompt = fixed 2\n");
  const auto r = run(plan, 3);
  BOOST_TEST(r.all().offered <= 3 * 80U);
  BOOST_TEST(r.all().offered > 2 * 80U);
  BOOST_TEST(r.all().served <= r.all().offered + 3);
}

BOOST_AUTO_TEST_CASE(a_refused_client_comes_again_as_often_as_it_may) {
  const std::string text =
      "max_batch = 1\nmax_queue = 0\nloads = 20\nseconds = 60\n[crowd a]\noutput = fixed 40\n";
  const auto once = run(plan_of(text), 20), again = run(plan_of(text + "tries = 5\n"), 20);
  const auto refusals = [](const load_result& r) {
    return r.all().failed[static_cast<std::size_t>(errc::queue_full)];
  };
  BOOST_TEST(refusals(once) > 0U);
  BOOST_TEST(refusals(again) > 2 * refusals(once));
  BOOST_TEST(once.all().offered == again.all().offered);
}

BOOST_AUTO_TEST_CASE(adversaries_leave_nobody_without_an_end) {
  auto plan = named_plan("adversaries");
  plan.what.seconds = 40;
  plan.check = true;
  const auto r = run(plan, 3);
  BOOST_TEST(r.wrong.empty(), r.wrong.front());
  BOOST_TEST(r.all().cancelled > 0U);
}

BOOST_AUTO_TEST_CASE(replicas_share_the_load) {
  auto plan = plan_of(poisson);
  plan.replicas = 4;
  plan.check = true;
  for (const bool least : {false, true}) {
    plan.least_loaded = least;
    const auto r = run(plan, 16);
    BOOST_TEST(r.wrong.empty(), r.wrong.front());
    BOOST_TEST(static_cast<double>(r.all().served) / r.seconds > 10);
    BOOST_TEST(run(plan, 16).hash == r.hash);
  }
}

BOOST_AUTO_TEST_CASE(who_shares_a_beginning_finds_it) {
  const std::string text = "loads = 2\nseconds = 60\n[crowd a]\nprompt = fixed 300\n";
  BOOST_TEST(run(plan_of(text), 2).prefix_found == 0U);
  BOOST_TEST(run(plan_of(text + "prefix = 256 2\n"), 2).prefix_found > 1000U);
}

BOOST_AUTO_TEST_CASE(a_step_costs_what_was_measured) {
  kernels::step_input input;
  input.sequences.resize(2);
  input.sequences[0].prompt_tokens = 4; // a decode row, then two of a prompt
  input.sequences[1].prompt_tokens = 9;
  input.rows = {{0, 1, 10}, {1, 1, 0}, {1, 1, 1}};
  const auto shape = shape_of(input);
  BOOST_TEST(shape.decode_rows == 1U);
  BOOST_TEST(shape.prefill_rows == 2U);
  BOOST_TEST(shape.positions == 11U + 1 + 2);
  const step_costs costs{"a", 1, 10, 100, 1000, 0};
  BOOST_TEST(costs.seconds(shape) == 1 + 10 + 200 + 14'000);
  runtime::random_stream chance(1);
  BOOST_TEST((costs.draw(shape, chance) == std::chrono::seconds(14'211)));
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(load_bounds)

BOOST_AUTO_TEST_CASE(a_late_beginning_is_reported) {
  const load_settings settings;
  load_watch watch(settings, true, 0);
  const auto at = [](int s) { return time_point(std::chrono::seconds(s)); };
  watch.asked({{1, 0, 1}, 5}, at(1));
  watch.asked({{1, 0, 2}, 5}, at(1));
  watch.started(1, at(61));
  BOOST_TEST(watch.wrong().empty());
  watch.started(2, at(62));
  BOOST_TEST(watch.wrong().size() == 1U);
  BOOST_TEST(watch.by_priority().at(5).began == 2U);
}

BOOST_AUTO_TEST_CASE(a_request_of_high_priority_that_is_shed_is_reported) {
  const load_settings settings;
  load_watch watch(settings, true, 0);
  const actors::scheduler_core scheduler(settings.options);
  watch.asked({{1, 0, 1}, 7}, {});
  watch.asked({{1, 0, 2}, 6}, {});
  watch.refused(scheduler, {{1, 0, 1}, {errc::shed_low_priority, "", {}, 1}}, {});
  BOOST_TEST(watch.wrong().empty());
  watch.refused(scheduler, {{1, 0, 2}, {errc::shed_low_priority, "", {}, 1}}, {});
  BOOST_TEST(watch.wrong().size() == 1U);
}

BOOST_AUTO_TEST_CASE(the_flood_is_kept_from_the_highest_priority) {
  auto plan = named_plan("low_flood");
  plan.what.seconds = 60;
  plan.check = true;
  const double capacity = measure_capacity(plan);
  const auto r = run_load(plan, 3, 3 * capacity);
  BOOST_TEST(r.wrong.empty(), r.wrong.front());
  const auto refused = [](const crowd_tally& t) {
    std::uint64_t sum = 0;
    for (const auto n : t.failed) sum += n;
    return sum;
  };
  BOOST_TEST(refused(r.crowds.at(0)) == 0U);
  BOOST_TEST(refused(r.crowds.at(1)) > 0U);
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(load_reports)

BOOST_AUTO_TEST_CASE(quantiles_are_samples) {
  std::vector<float> samples{5, 1, 4, 2, 3};
  BOOST_TEST(quantile(samples, 0.5) == 3);
  BOOST_TEST(quantile(samples, 0.95) == 5);
  BOOST_TEST(quantile(samples, 0.01) == 1);
  samples.clear();
  BOOST_TEST(quantile(samples, 0.5) == 0);
}

BOOST_AUTO_TEST_CASE(there_is_a_line_for_each_row_and_each_crowd) {
  auto plan = plan_of(poisson + "[crowd others]\nfixed_load = 1\n");
  const std::vector<load_result> rows{run(plan, 1), run(plan, 2)};
  BOOST_TEST(lines_of(load_table(plan.what, rows)) == 2 + 2 * 3U);
  const auto csv = load_csv(plan.what, rows);
  BOOST_TEST(lines_of(csv) == 1 + 2 * 3U);
  std::set<std::ptrdiff_t> commas;
  for (std::size_t from = 0, end = 0; (end = csv.find('\n', from)) != std::string::npos; from = end + 1)
    commas.insert(std::count(
        csv.begin() + static_cast<std::ptrdiff_t>(from), csv.begin() + static_cast<std::ptrdiff_t>(end),
        ','));
  BOOST_TEST(commas.size() == 1U);
}

BOOST_AUTO_TEST_SUITE_END()
