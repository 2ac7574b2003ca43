// SPDX-License-Identifier: Apache-2.0
// troupe-sim-doors: runs seeds through the simulated doors and engine, prints the first that fails with its
// diagram.
#include "runtime/base/log.hpp"
#include "sim/abort_note.hpp"
#include "sim/diagram_tail.hpp"
#include "sim/door_world.hpp"

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

namespace {

constexpr unsigned floor_percent = 25; // of right requests must be answered, over so many seeds
constexpr std::uint64_t floor_seeds = 100;

[[noreturn]] void usage(int status) {
  std::fputs(
      "usage: troupe-sim-doors [--seeds A-B | --seed N] [--diagram] [--verbose] [--twice]\n"
      "  --seeds A-B  run these seeds, 1-300 by default; stop at the first that fails\n"
      "  --seed N     run this one\n"
      "  --diagram    print the whole sequence diagram of a failing seed's request, not only its end\n"
      "  --verbose    a line per seed\n"
      "  --twice      run each seed twice and compare the hashes of all bytes\n",
      status == 0 ? stdout : stderr);
  std::exit(status);
}

std::uint64_t number(std::string_view text) {
  std::uint64_t n = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (ec != std::errc() || end != text.data() + text.size()) usage(2);
  return n;
}

} // namespace

int main(int argc, char** argv) {
  std::uint64_t first = 1, last = 300;
  bool diagram = false, verbose = false, twice = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--seeds" && has_value) {
      const std::string_view range = argv[++i];
      const auto dash = range.find('-');
      if (dash == std::string_view::npos) usage(2);
      first = number(range.substr(0, dash));
      last = number(range.substr(dash + 1));
      if (first > last) usage(2);
    } else if (word == "--seed" && has_value)
      first = last = number(argv[++i]);
    else if (word == "--diagram")
      diagram = true;
    else if (word == "--verbose")
      verbose = true;
    else if (word == "--twice")
      twice = true;
    else
      usage(word == "--help" ? 0 : 2);
  }
  if (!verbose) troupe::log().set_level(spdlog::level::off); // of the faults that are drawn
  const auto begin = std::chrono::steady_clock::now();
  std::uint64_t events = 0, asked = 0, finished = 0, refused = 0, cut = 0;
  std::map<std::string, std::uint64_t> codes;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    troupe::sim::name_seed_on_abort(seed);
    troupe::sim::door_outcome out = troupe::sim::run_doors(seed);
    if (twice && out.failure.empty() && troupe::sim::run_doors(seed).hash != out.hash)
      out.failure = "two runs of this seed differ";
    events += out.events, asked += out.asked;
    for (const auto& [code, count] : out.codes) codes[code] += count;
    finished += out.finished, refused += out.refused, cut += out.cut;
    if (verbose)
      std::printf(
          "seed %llu: %llu events, %u finished, %u refused, %u cut, hash %016llx\n",
          static_cast<unsigned long long>(seed), static_cast<unsigned long long>(out.events), out.finished,
          out.refused, out.cut, static_cast<unsigned long long>(out.hash));
    if (out.failure.empty()) continue;
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), out.failure.c_str());
    using namespace troupe::sim;
    std::fputs((diagram ? out.diagram : diagram_tail(out.diagram, diagram_tail_messages)).c_str(), stdout);
    std::printf("replay: troupe-sim-doors --seed %llu --diagram\n", static_cast<unsigned long long>(seed));
    return 1;
  }
  const double time = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf(
      "%llu seeds passed: %llu events, %llu answers finished of %llu asked, %llu refused, %llu cut, %.1f s\n",
      static_cast<unsigned long long>(last - first + 1), static_cast<unsigned long long>(events),
      static_cast<unsigned long long>(finished), static_cast<unsigned long long>(asked),
      static_cast<unsigned long long>(refused), static_cast<unsigned long long>(cut), time);
  for (const auto& [code, count] : codes)
    std::printf("  %s %llu\n", code.c_str(), static_cast<unsigned long long>(count));
  // A door that refuses all it can find a reason for breaks no other oracle.
  if (last - first + 1 >= floor_seeds && finished * 100 < asked * floor_percent) {
    std::printf("fewer than %u %% of the requests were answered\n", floor_percent);
    return 1;
  }
  return 0;
}
