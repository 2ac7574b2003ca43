// SPDX-License-Identifier: Apache-2.0
// The program: finds the command, runs it, turns a failure into one line and an exit status.
#include "cli/command.hpp"
#include "cli/text.hpp"
#include "config/nearest.hpp"
#include "runtime/base/error.hpp"
#include "runtime/compute_pool.hpp"

#include <boost/system/system_error.hpp>

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

namespace {

using namespace troupe;
using namespace troupe::cli;

constexpr int runtime_failure = 1, usage_failure = 2;

int fail(const std::string& place, const std::string& message, int status) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", place.c_str(), one_line(message).c_str());
  return status;
}

void print_purpose(std::string_view name, std::string_view purpose) {
  std::printf(
      "  %-17.*s%.*s\n", static_cast<int>(name.size()), name.data(), static_cast<int>(purpose.size()),
      purpose.data());
}

void print_overview() {
  std::puts("Usage: troupe COMMAND [ARGUMENTS]\n\nRuns and serves large language models.\n\nCommands:");
  for (const command& each : commands()) print_purpose(each.name, each.purpose);
  std::puts("\n`troupe COMMAND --help` tells more.");
}

// Of the commands whose names begin with this word.
void print_help_of(const std::string& first) {
  std::printf("Usage: troupe %s COMMAND [ARGUMENTS]\n\nCommands:\n", first.c_str());
  const auto for_each = [&](auto act) {
    for (const command& each : commands())
      if (each.name.starts_with(first + ' ')) act(each);
  };
  for_each([&](const command& each) { print_purpose(each.name.substr(first.size() + 1), each.purpose); });
  std::puts("\nExamples:");
  for_each([](const command& each) {
    std::printf("  %.*s\n", static_cast<int>(each.example.size()), each.example.data());
  });
  std::printf("\n`troupe %s COMMAND --help` tells more.\n", first.c_str());
}

// The command of the first one or two words, and how many words its name took.
std::pair<const command*, std::size_t> find_command(const std::vector<std::string>& words) {
  for (const command& each : commands()) {
    if (each.name == words[0]) return {&each, 1};
    if (words.size() > 1 && each.name == words[0] + ' ' + words[1]) return {&each, 2};
  }
  return {nullptr, 0};
}

// The commands whose names begin with this word: "eval" has "perplexity" and "logits".
std::string second_words(const std::string& first) {
  std::string list;
  for (const command& each : commands())
    if (each.name.starts_with(first + ' '))
      (list += list.empty() ? "" : ", ") += each.name.substr(first.size() + 1);
  return list;
}

int unknown_command(const std::vector<std::string>& words) {
  if (const std::string list = second_words(words[0]); !list.empty()) {
    const bool asked = words.size() > 1 && (words[1] == "--help" || words[1] == "-h");
    if (!asked) return fail("troupe " + words[0], "takes one of " + list, usage_failure);
    print_help_of(words[0]);
    return 0;
  }
  config::nearest_name near(words[0]);
  for (const command& each : commands()) near.consider(each.name.substr(0, each.name.find(' ')));
  const std::string advice =
      near.best().empty() ? "see troupe --help" : "did you mean \"" + near.best() + "\"? See troupe --help";
  return fail("troupe", "unknown command \"" + words[0] + "\"; " + advice, usage_failure);
}

} // namespace

int main(int count, char** values) {
  std::signal(SIGPIPE, SIG_IGN); // a closed pipe or socket is an error value of the write
  std::signal(SIGXFSZ, SIG_IGN); // and so is a file at its largest size (ulimit -f)
  std::vector<std::string> words(values + 1, values + count);
  if (words.size() > 1 && words[0] == "help") { // as the command's own --help
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    print_overview();
    return words.empty() ? usage_failure : 0;
  }
  if (words[0] == "--version") return version_command({});
  const auto [chosen, taken] = find_command(words);
  if (chosen == nullptr) return unknown_command(words);
  const std::string place = "troupe " + std::string(chosen->name);
  try {
    const int status = chosen->run({words.begin() + static_cast<std::ptrdiff_t>(taken), words.end()});
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      return fail(place, "standard output cannot be written", runtime_failure);
    return status;
  } catch (const failure& bad) {
    return fail(place, bad.what(), bad.why().code == errc::bad_config ? usage_failure : runtime_failure);
  } catch (const std::bad_alloc&) {
    return fail(place, "out of memory; try a smaller model, --kv-memory or --max-batch", runtime_failure);
  } catch (const boost::system::system_error& bad) { // Asio's, of its own thread or of descriptors
    const bool thread = bad.code() == boost::system::errc::resource_unavailable_try_again;
    return fail(place, thread ? runtime::describe_thread_failure(bad) : bad.what(), runtime_failure);
  } catch (const std::exception& bad) {
    return fail(place, bad.what(), runtime_failure);
  }
}
