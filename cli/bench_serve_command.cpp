// SPDX-License-Identifier: Apache-2.0
// `troupe bench serve`: arguments and report of the load generator.
#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/load_generator.hpp"
#include "cli/text.hpp"
#include "cli/text_model.hpp"
#include "runtime/base/error.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>

namespace troupe::cli {

namespace {

namespace json = boost::json;

void parse_url(std::string_view url, load_options& into) {
  const std::string whole(url);
  into.tls = url.starts_with("https://");
  if (!into.tls && !url.starts_with("http://"))
    throw failure(
        errc::bad_config,
        '"' + whole + "\" is not an http:// or https:// address, for example http://127.0.0.1:8080");
  url.remove_prefix(into.tls ? 8 : 7);
  const auto slash = std::min(url.find('/'), url.size());
  std::string_view authority = url.substr(0, slash);
  into.prefix = url.substr(slash);
  while (into.prefix.ends_with('/')) into.prefix.pop_back();
  if (into.prefix.ends_with("/v1")) into.prefix.resize(into.prefix.size() - 3);
  const auto colon = authority.rfind(':');
  const bool has_port =
      colon != std::string_view::npos && authority.find(']', colon) == std::string_view::npos;
  into.port = has_port ? authority.substr(colon + 1) : into.tls ? "443" : "80";
  into.host = authority.substr(0, has_port ? colon : authority.size());
  if (into.host.starts_with('[') && into.host.ends_with(']'))
    into.host = into.host.substr(1, into.host.size() - 2);
  if (into.host.empty() || into.port.empty())
    throw failure(
        errc::bad_config, '"' + whole + "\" has no host or no port, for example http://127.0.0.1:8080");
  // The resolver would take the number modulo 65536.
  std::uint32_t number = 0;
  const char* const end = into.port.data() + into.port.size();
  const auto [stop, code] = std::from_chars(into.port.data(), end, number);
  if (code != std::errc{} || stop != end || number < 1 || number > 65535)
    throw failure(
        errc::bad_config, '"' + whole + "\" has the port \"" + into.port + "\"; it takes 1 to 65535");
}

// "Authorization: Bearer KEY", as it may stand in a request.
void check_header(const std::string& line) {
  constexpr std::string_view marks = "!#$%&'*+-.^_`|~";
  const auto colon = line.find(':');
  const auto of_name = [&](unsigned char c) {
    return std::isalnum(c) != 0 || marks.find(static_cast<char>(c)) != std::string_view::npos;
  };
  const auto of_value = [](unsigned char c) { return c == '\t' || (c >= 0x20 && c != 0x7f); };
  if (colon == std::string::npos || colon == 0 || !std::all_of(line.begin(), line.begin() + colon, of_name) ||
      !std::all_of(line.begin() + colon, line.end(), of_value))
    throw failure(errc::bad_config, "--header takes one line NAME: VALUE, not \"" + one_line(line) + '"');
}

// "90" or "1-600".
void parse_range(const std::string& text, std::uint32_t& least, std::uint32_t& most) {
  constexpr std::uint32_t limit = 1'000'000;
  const char* const end = text.data() + text.size();
  auto [at, code] = std::from_chars(text.data(), end, least);
  most = least;
  if (code == std::errc{} && at != end && *at == '-') {
    const auto second = std::from_chars(at + 1, end, most);
    at = second.ptr;
    code = second.ec;
  }
  if (code != std::errc{} || at != end || least < 1 || most < least || most > limit)
    throw failure(
        errc::bad_config,
        "--prompt-words cannot be \"" + text + "\"; it takes a number or a range, 1 to 1000000");
}

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  std::size_t at = 0;
  while ((at = text.find_first_not_of(" \t\r\n", at)) != std::string::npos) {
    const auto end = std::min(text.find_first_of(" \t\r\n", at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

// Common words in a fixed shuffled order; no sense, but tokens like those of English.
std::vector<std::string> built_in_words(std::uint64_t seed) {
  static constexpr const char* common[] = {
      "time",    "people",   "water",   "house",   "light",   "paper",     "river",    "music",  "garden",
      "winter",  "letter",   "window",  "morning", "story",   "answer",    "question", "market", "village",
      "bridge",  "mountain", "the",     "a",       "of",      "and",       "in",       "to",     "with",
      "for",     "from",     "over",    "under",   "between", "because",   "walks",    "sings",  "writes",
      "carries", "opens",    "closes",  "finds",   "loses",   "remembers", "quiet",    "early",  "small",
      "green",   "broken",   "distant", "heavy",   "careful"};
  std::mt19937_64 random(seed);
  std::vector<std::string> words;
  for (int i = 0; i < 20'000; ++i) words.emplace_back(common[random() % std::size(common)]);
  return words;
}

struct spread {
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, most = 0;
};

// Nearest rank.
spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto rank = [&](double share) {
    const auto index = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
    return values[std::max<std::size_t>(index, 1) - 1];
  };
  return {
      std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size()), rank(0.5),
      rank(0.9), rank(0.99), values.back()};
}

struct summary {
  std::map<std::string, std::uint64_t> statuses, problems;
  std::uint64_t tokens = 0, prompt_tokens = 0, whole_answers = 0;
  spread first, per_token, gap, whole; // seconds
};

summary summarise(const load_result& result) {
  summary out;
  std::vector<double> first, per_token, gap, whole;
  for (const load_sample& sample : result.samples) {
    // An answer that began well and broke is told apart from one that is whole.
    std::string status = sample.status == 0 ? "none" : std::to_string(sample.status);
    if (sample.status == 200 && !sample.problem.empty()) status = "200 broken";
    ++out.statuses[status];
    if (!sample.problem.empty() && sample.status != 429) ++out.problems[sample.problem];
    if (sample.status != 200 || !sample.problem.empty()) continue;
    ++out.whole_answers;
    out.tokens += sample.tokens;
    out.prompt_tokens += sample.prompt_tokens;
    first.push_back(sample.first);
    whole.push_back(sample.whole);
    if (sample.per_token > 0) per_token.push_back(sample.per_token);
    if (sample.longest_gap > 0) gap.push_back(sample.longest_gap);
  }
  out.first = spread_of(std::move(first));
  out.per_token = spread_of(std::move(per_token));
  out.gap = spread_of(std::move(gap));
  out.whole = spread_of(std::move(whole));
  return out;
}

json::object in_ms(const spread& s) {
  return {
      {"mean", 1e3 * s.mean},
      {"p50", 1e3 * s.p50},
      {"p90", 1e3 * s.p90},
      {"p99", 1e3 * s.p99},
      {"max", 1e3 * s.most}};
}

void print_json(const load_options& options, const load_result& result, const summary& sum) {
  const json::object object{
      {"clients", options.clients},
      {"rate", options.rate},
      {"requests", options.requests},
      {"model", result.model},
      {"statuses", json::value_from(sum.statuses)},
      {"problems", json::value_from(sum.problems)},
      {"tokens", sum.tokens},
      {"prompt_tokens", sum.prompt_tokens},
      {"wall_s", result.wall_s},
      {"client_cpu_s", result.cpu_s},
      {"tokens_per_s", static_cast<double>(sum.tokens) / result.wall_s},
      {"requests_per_s", static_cast<double>(sum.whole_answers) / result.wall_s},
      {"ttft_ms", in_ms(sum.first)},
      {"tpot_ms", in_ms(sum.per_token)},
      {"longest_gap_ms", in_ms(sum.gap)},
      {"latency_ms", in_ms(sum.whole)}};
  std::printf("%s\n", json::serialize(object).c_str());
}

void print_row(const char* name, const spread& s) {
  std::printf(
      "%-22s %9.1f %9.1f %9.1f %9.1f %9.1f\n", name, 1e3 * s.mean, 1e3 * s.p50, 1e3 * s.p90, 1e3 * s.p99,
      1e3 * s.most);
}

void print_table(const load_result& result, const summary& sum) {
  std::printf("status   ");
  for (const auto& [status, count] : sum.statuses)
    std::printf(" %s: %llu", status.c_str(), static_cast<unsigned long long>(count));
  std::printf(
      "\ntokens    %llu generated, %llu of prompts, in %.2f s (this client took %.2f s of CPU)\n",
      static_cast<unsigned long long>(sum.tokens), static_cast<unsigned long long>(sum.prompt_tokens),
      result.wall_s, result.cpu_s);
  std::printf(
      "rate      %.1f tokens/s, %.2f requests/s\n", static_cast<double>(sum.tokens) / result.wall_s,
      static_cast<double>(sum.whole_answers) / result.wall_s);
  std::printf("%-22s %9s %9s %9s %9s %9s\n", "milliseconds", "mean", "p50", "p90", "p99", "max");
  print_row("time to first token", sum.first);
  print_row("time per output token", sum.per_token);
  print_row("longest gap", sum.gap);
  print_row("whole answer", sum.whole);
  for (const auto& [problem, count] : sum.problems)
    std::printf("%llu x %s\n", static_cast<unsigned long long>(count), one_line(problem).c_str());
}

} // namespace

int bench_serve_command(const std::vector<std::string>& words) {
  load_options load;
  std::string url, text, prompt_words = "90";
  std::uint32_t timeout_s = 600;
  bool as_json = false, keep_eos = false;
  std::vector<std::string> extra;
  arguments options(
      "bench serve", "Loads an OpenAI-compatible server with streamed completions and measures the answers; "
                     "exit status 1 if no answer was whole.");
  options.positional("URL", url, "for example http://127.0.0.1:8080", true);
  options.option(
      "--clients", load.clients, 1U, 100'000U,
      "requests in flight, each client sends its next when one has ended");
  options.option(
      "--rate", load.rate, 0.0, 1e6, "requests per second as a Poisson process instead of clients; 0: off");
  options.option("--requests", load.requests, 1U, 10'000'000U, "how many in all");
  options.option("--prompt-words", prompt_words, "words of a prompt, or a range such as 1-600; default 90");
  options.option("--max-tokens", load.max_tokens, 1U, 1U << 24, "tokens of an answer");
  options.option("--text", text, "cut the prompts from this file; default: built-in words");
  options.option("--model", load.model, "model name; default: the first that the server lists");
  options.flag("--chat", load.chat, "use /v1/chat/completions");
  options.flag("--stop-at-eos", keep_eos, "do not send ignore_eos, so that answers may end early");
  options.option("--temperature", load.temperature, 0.0, 2.0, "of the answers");
  options.option(
      "--seed", load.seed, std::uint64_t{0}, std::uint64_t{1} << 53, "of prompt lengths and arrivals");
  options.option("--timeout", timeout_s, 1U, 86'400U, "seconds after which a request is given up");
  options.option("--extra", extra, "a further body field as KEY=JSON, may be repeated");
  options.option(
      "--header", load.headers, "a further header as \"NAME: VALUE\", such as the key; may be repeated");
  options.flag("--insecure", load.unchecked, "take whatever certificate an https:// server has");
  options.flag("--json", as_json, "print one JSON object");
  if (!options.parse(words)) return 0;

  parse_url(url, load);
  parse_range(prompt_words, load.words_least, load.words_most);
  for (const std::string& line : load.headers) check_header(line);
  load.ignore_eos = !keep_eos;
  load.timeout = std::chrono::seconds(timeout_s);
  for (const std::string& field : extra) {
    const auto equals = field.find('=');
    boost::system::error_code failed;
    if (equals != std::string::npos) (void)json::parse(std::string_view(field).substr(equals + 1), failed);
    if (equals == std::string::npos || failed)
      throw failure(errc::bad_config, "--extra takes KEY=JSON, not \"" + field + '"');
    load.extra[field.substr(0, equals)] = field.substr(equals + 1);
  }
  load.words =
      text.empty() ? built_in_words(load.seed) : split_words(read_text_file(text, "--text", most_text));
  if (load.words.empty()) throw failure(errc::bad_config, text + ": has no words");

  const load_result result = run_load(load);
  const summary sum = summarise(result);
  if (as_json)
    print_json(load, result, sum);
  else
    print_table(result, sum);
  return sum.whole_answers > 0 ? 0 : 1;
}

} // namespace troupe::cli
