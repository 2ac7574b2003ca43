// SPDX-License-Identifier: Apache-2.0
// troupe-sim: runs seeds through the simulation, prints the first that fails with its diagram.
#include "sim/abort_note.hpp"
#include "sim/diagram.hpp"
#include "sim/diagram_tail.hpp"
#include "sim/load_main.hpp"
#include "sim/scenario.hpp"
#include "sim/simulation.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace {

using namespace troupe::sim;

struct arguments {
  std::uint64_t first = 1, last = 2000;
  std::optional<std::uint64_t> request;
  bool verbose = false, diagram = false, twice = false, keep_going = false;
};

[[noreturn]] void usage(std::string_view wrong) {
  if (!wrong.empty())
    std::fprintf(stderr, "troupe-sim: %.*s\n", static_cast<int>(wrong.size()), wrong.data());
  std::fputs(
      "usage: troupe-sim [--seeds A-B | --seed N] [--diagram [--request R]] [--verbose] [--twice] "
      "[--keep-going]\n"
      "  --seeds A-B    run these seeds, 1-2000 by default; stop at the first that fails\n"
      "  --seed N       run this one\n"
      "  --diagram      print one request of the seed as a sequence diagram: R, or the one that went wrong, "
      "or 1;\n"
      "                 0 is all of them. The end of a failing seed's is printed unasked\n"
      "  --verbose      a line per seed\n"
      "  --twice        run each seed twice and compare the trace hashes\n"
      "  --keep-going   report every seed that fails\n",
      wrong.empty() ? stdout : stderr);
  std::fputs(load_usage, wrong.empty() ? stdout : stderr);
  std::exit(wrong.empty() ? 0 : 2);
}

std::uint64_t number(const char* text) {
  char* end = nullptr;
  const auto n = std::strtoull(text, &end, 10);
  if (end == text || *end != '\0') usage("not a number: " + std::string(text));
  return n;
}

arguments parse(int argc, char** argv) {
  arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto value = [&] {
      return i + 1 < argc ? argv[++i] : (usage(std::string(word) + " needs a value"), "");
    };
    if (word == "--seeds") {
      const std::string range = value();
      const auto dash = range.find('-');
      if (dash == std::string::npos) usage("--seeds takes A-B");
      a.first = number(range.substr(0, dash).c_str());
      a.last = number(range.substr(dash + 1).c_str());
      if (a.first > a.last) usage("--seeds takes A-B with A no larger than B");
    } else if (word == "--seed") {
      a.first = a.last = number(value());
    } else if (word == "--request") {
      a.request = number(value());
    } else if (word == "--diagram") {
      a.diagram = true;
    } else if (word == "--verbose") {
      a.verbose = true;
    } else if (word == "--twice") {
      a.twice = true;
    } else if (word == "--keep-going") {
      a.keep_going = true;
    } else {
      usage(word == "--help" || word == "-h" ? "" : "unknown argument " + std::string(word));
    }
  }
  return a;
}

outcome run_seed(std::uint64_t seed, recorder* record = nullptr) {
  name_seed_on_abort(seed);
  const auto what = make_scenario(seed);
  return simulation(seed, what, record).run();
}

void print_diagram(std::uint64_t seed, std::uint64_t request, std::size_t most_messages) {
  diagram_recorder record(request, most_messages);
  const auto r = run_seed(seed, &record);
  const std::string which = request == 0 ? "all requests" : "request " + std::to_string(request);
  std::printf(
      "seed %llu, %s:\n%s", static_cast<unsigned long long>(seed), which.c_str(), record.text().c_str());
  if (r.wrong) std::printf("then: %s\n", r.wrong->what.c_str());
}

} // namespace

int main(int argc, char** argv) {
  if (asks_for_load(argc, argv)) return load_main(argc, argv);
  const auto a = parse(argc, argv);
  outcome sum;
  std::uint64_t failed = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t seed = a.first; seed <= a.last; ++seed) {
    auto r = run_seed(seed);
    if (a.twice && !r.wrong && run_seed(seed).hash != r.hash)
      r.wrong = violation{"two runs of the seed differ: something is not deterministic", 0};
    sum.messages += r.messages;
    sum.steps += r.steps;
    sum.preemptions += r.preemptions;
    sum.refused += r.refused;
    sum.completed += r.completed;
    sum.failed_steps += r.failed_steps;
    sum.prefix_found += r.prefix_found;
    sum.prefix_copied += r.prefix_copied;
    sum.seats_yielded += r.seats_yielded;
    sum.displaced += r.displaced;
    sum.backfilled += r.backfilled;
    sum.cut_steps += r.cut_steps;
    sum.parks += r.parks;
    sum.resumes += r.resumes;
    sum.parks_lost += r.parks_lost;
    sum.park_disk_blocks += r.park_disk_blocks;
    sum.crashes += r.crashes;
    sum.readmitted += r.readmitted;
    sum.condemned += r.condemned;
    sum.stopped += r.stopped;
    sum.full_length += r.full_length;
    sum.cancelled += r.cancelled;
    for (std::size_t i = 0; i < r.failed.size(); ++i) sum.failed[i] += r.failed[i];
    if (a.verbose)
      std::printf(
          "seed %llu: %llu events, %llu steps, %llu preemptions, hash %016llx\n",
          static_cast<unsigned long long>(seed), static_cast<unsigned long long>(r.messages),
          static_cast<unsigned long long>(r.steps), static_cast<unsigned long long>(r.preemptions),
          static_cast<unsigned long long>(r.hash));
    const std::uint64_t about = a.request.value_or(r.wrong ? r.wrong->request : 1);
    const bool whole = a.diagram && a.first == a.last;
    if (whole) print_diagram(seed, about, SIZE_MAX);
    if (!r.wrong) continue;
    ++failed;
    if (!whole && failed == 1) print_diagram(seed, about, diagram_tail_messages);
    std::printf(
        "seed %llu failed: request %llu: %s\n  replay: troupe-sim --seed %llu --diagram --request %llu\n",
        static_cast<unsigned long long>(seed), static_cast<unsigned long long>(r.wrong->request),
        r.wrong->what.c_str(), static_cast<unsigned long long>(seed), static_cast<unsigned long long>(about));
    if (!a.keep_going) return 1;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf(
      "%llu seeds, %llu failed, %llu events, %llu steps (%llu failed), %llu preemptions, %llu positions "
      "found, %llu blocks copied, %llu answers, %llu refusals, %.1f s\n",
      static_cast<unsigned long long>(a.last - a.first + 1), static_cast<unsigned long long>(failed),
      static_cast<unsigned long long>(sum.messages), static_cast<unsigned long long>(sum.steps),
      static_cast<unsigned long long>(sum.failed_steps), static_cast<unsigned long long>(sum.preemptions),
      static_cast<unsigned long long>(sum.prefix_found), static_cast<unsigned long long>(sum.prefix_copied),
      static_cast<unsigned long long>(sum.completed), static_cast<unsigned long long>(sum.refused), seconds);
  std::printf(
      "seats: %llu taken from lower classes, %llu of the queue displaced, %llu passed a larger one; %llu "
      "steps cut for time\n",
      static_cast<unsigned long long>(sum.seats_yielded), static_cast<unsigned long long>(sum.displaced),
      static_cast<unsigned long long>(sum.backfilled), static_cast<unsigned long long>(sum.cut_steps));
  std::printf(
      "parking: %llu sequences parked, %llu resumed, %llu lost, %llu blocks went to the disk\n",
      static_cast<unsigned long long>(sum.parks), static_cast<unsigned long long>(sum.resumes),
      static_cast<unsigned long long>(sum.parks_lost), static_cast<unsigned long long>(sum.park_disk_blocks));
  std::printf(
      "crashes: %llu, after which %llu requests went on and %llu were found to be poison\n",
      static_cast<unsigned long long>(sum.crashes), static_cast<unsigned long long>(sum.readmitted),
      static_cast<unsigned long long>(sum.condemned));
  std::printf(
      "ends: stop %llu, length %llu, cancelled %llu", static_cast<unsigned long long>(sum.stopped),
      static_cast<unsigned long long>(sum.full_length), static_cast<unsigned long long>(sum.cancelled));
  for (std::size_t i = 0; i < sum.failed.size(); ++i)
    if (sum.failed[i] != 0) {
      const auto name = troupe::code_name(static_cast<troupe::errc>(i));
      std::printf(
          ", %.*s %llu", static_cast<int>(name.size()), name.data(),
          static_cast<unsigned long long>(sum.failed[i]));
    }
  std::printf("\n");
  return failed == 0 ? 0 : 1;
}
