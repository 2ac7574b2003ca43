// SPDX-License-Identifier: Apache-2.0
// Arguments of troupe-sim --workload, and its rows on as many threads as are wanted.
#include "sim/load_main.hpp"

#include "sim/load_world.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace troupe::sim {

const char load_usage[] =
    "or:    troupe-sim --workload NAME|FILE [--loads A,B,...] [--seconds S] [--replicas N] [--route HOW]\n"
    "                  [--set NAME=VALUE]... [--costs MACHINE|A,B,C,D] [--noise X] [--seed N] [--jobs N]\n"
    "                  [--check] [--csv]\n"
    "       troupe-sim --list-workloads\n"
    "  --workload     the real cores under a generated load in virtual time: a row per load "
    "(docs/simulation.md)\n"
    "  --loads        in place of the workload's own; --seconds: simulated, for each\n"
    "  --replicas     so many troupes, 64 at most, that share the load; --route: round_robin or "
    "least_loaded\n"
    "  --set          a setting by its name in docs/config.md without \"engine.\", or kv_blocks, "
    "hysteresis,\n"
    "                 low_priority, ageing_quantum_ms, least_prefill_rows\n"
    "  --costs        what steps cost: of a machine that was measured, or seconds of a step, a decode row, "
    "a\n"
    "                 prompt's row and a position read, as /metrics has them; --noise: sigma of their "
    "logarithm\n"
    "  --jobs         rows that run at once; their results are the same\n"
    "  --check        hold every request to its bounds; status 1 when one is not kept\n"
    "  --csv          comma-separated values in place of the table\n";

namespace {

double number(std::string_view text, double least, double most) {
  double x = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (error != std::errc{} || end != text.data() + text.size() || !(x >= least && x <= most))
    throw std::runtime_error("\"" + std::string(text) + "\" is no number that fits here");
  return x;
}

std::vector<double> numbers(std::string_view text, double least, double most) {
  std::vector<double> all;
  for (std::size_t from = 0; from <= text.size();) {
    const auto comma = std::min(text.find(',', from), text.size());
    all.push_back(number(text.substr(from, comma - from), least, most));
    from = comma + 1;
  }
  return all;
}

step_costs find_costs(std::string_view text) {
  for (const auto& m : measured_step_costs())
    if (m.machine == text) return m;
  if (text.find(',') == std::string_view::npos)
    throw std::runtime_error("no costs of steps are known of a machine \"" + std::string(text) + "\"");
  const auto n = numbers(text, 0, 1000);
  if (n.size() != 4) throw std::runtime_error("--costs takes four numbers");
  return {"given", n[0], n[1], n[2], n[3], measured_step_costs().front().noise};
}

struct arguments {
  load_plan plan;
  std::uint32_t jobs = 1;
  bool csv = false;
};

arguments parse(int argc, char** argv) {
  arguments a;
  a.plan.costs = measured_step_costs().front();
  std::vector<std::string> settings;
  std::string name;
  double sigma = -1, seconds = 0;
  std::vector<double> loads;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto value = [&]() -> std::string_view {
      if (i + 1 >= argc) throw std::runtime_error(std::string(word) + " needs a value");
      return argv[++i];
    };
    if (word == "--workload")
      name = value();
    else if (word == "--loads")
      loads = numbers(value(), 1e-6, 1e9);
    else if (word == "--seconds")
      seconds = number(value(), 0.1, 1e6);
    else if (word == "--replicas")
      a.plan.replicas = static_cast<std::uint32_t>(number(value(), 1, 64));
    else if (word == "--set")
      settings.emplace_back(value());
    else if (word == "--costs")
      a.plan.costs = find_costs(value());
    else if (word == "--noise")
      sigma = number(value(), 0, 3);
    else if (word == "--seed")
      a.plan.seed = static_cast<std::uint64_t>(number(value(), 0, 9e15));
    else if (word == "--jobs")
      a.jobs = static_cast<std::uint32_t>(number(value(), 1, 64));
    else if (word == "--check")
      a.plan.check = true;
    else if (word == "--csv")
      a.csv = true;
    else if (word == "--route") {
      const auto how = value();
      if (how != "round_robin" && how != "least_loaded")
        throw std::runtime_error("--route takes round_robin or least_loaded");
      a.plan.least_loaded = how == "least_loaded";
    } else
      throw std::runtime_error("unknown argument " + std::string(word));
  }
  a.plan.what = find_workload(name);
  if (!loads.empty()) a.plan.what.loads = loads;
  if (seconds > 0) a.plan.what.seconds = seconds;
  if (sigma >= 0) a.plan.costs.noise = sigma;
  for (const auto& [key, text] : a.plan.what.settings) set(a.plan.settings, key, text);
  for (const auto& s : settings) {
    const auto equals = s.find('=');
    if (equals == std::string::npos) throw std::runtime_error("--set takes NAME=VALUE");
    set(a.plan.settings, s.substr(0, equals), s.substr(equals + 1));
  }
  return a;
}

std::vector<load_result> run_rows(const load_plan& plan, std::uint32_t jobs) {
  const auto& loads = plan.what.loads;
  const bool by_capacity = plan.what.unit == workload::axis::capacity;
  const double per_load = by_capacity ? measure_capacity(plan) * plan.replicas : 1;
  std::vector<load_result> rows(loads.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < loads.size(); i = next++)
      rows[i] = run_load(plan, loads[i], loads[i] * per_load);
  };
  std::vector<std::jthread> others;
  for (std::uint32_t j = 1; j < std::min<std::size_t>(jobs, loads.size()); ++j) others.emplace_back(work);
  work();
  others.clear();
  return rows;
}

int list_workloads() {
  for (const auto& w : named_workloads())
    std::printf("%s\n  %s\n", std::string(w.name).c_str(), parse_workload(w.name, w.text).about.c_str());
  std::printf("machines:");
  for (const auto& m : measured_step_costs()) std::printf(" %s", std::string(m.machine).c_str());
  std::printf("\nsettings:");
  for (const auto& [name, value] : list_settings({})) std::printf(" %s=%s", name.c_str(), value.c_str());
  std::printf("\n");
  return 0;
}

} // namespace

bool asks_for_load(int argc, char** argv) noexcept {
  return std::any_of(argv + std::min(argc, 1), argv + argc, [](std::string_view word) {
    return word == "--workload" || word == "--list-workloads";
  });
}

int load_main(int argc, char** argv) {
  try {
    if (argc == 2 && std::string_view(argv[1]) == "--list-workloads") return list_workloads();
    const auto a = parse(argc, argv);
    const auto rows = run_rows(a.plan, a.jobs);
    std::fputs((a.csv ? load_csv(a.plan.what, rows) : load_table(a.plan.what, rows)).c_str(), stdout);
    const bool kept = std::all_of(rows.begin(), rows.end(), [](const auto& r) { return r.wrong.empty(); });
    if (!kept && a.csv)
      for (const auto& r : rows)
        for (const auto& text : r.wrong) std::fprintf(stderr, "%s\n", text.c_str());
    return kept ? 0 : 1;
  } catch (const std::runtime_error& e) {
    std::fprintf(stderr, "troupe-sim: %s\n", e.what());
    return 2;
  }
}

} // namespace troupe::sim
