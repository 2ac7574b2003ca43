// SPDX-License-Identifier: Apache-2.0
// `troupe replay`: runs a recorded request again and compares every token.
#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/engine_settings.hpp"
#include "engine/trace_file.hpp"

#include <boost/asio/io_context.hpp>

#include <algorithm>
#include <cstdio>
#include <optional>

namespace troupe::cli {

namespace {

// The whole answer of one request, from an engine that is started for it.
completion generate(engine_options options, request what) {
  boost::asio::io_context io{1};
  engine one(io.get_executor(), std::move(options));
  std::optional<error> failed;
  std::optional<completion> given;
  one.async_start([&](result<void> started) {
    if (!started) {
      failed = started.error();
      return;
    }
    one.async_generate(std::move(what), [&](result<completion> ended) {
      if (ended)
        given = std::move(*ended);
      else
        failed = ended.error();
      one.async_shutdown(std::chrono::seconds(5), [](result<void>) {});
    });
  });
  io.run();
  if (failed) throw failure(*failed);
  if (!given) throw failure(errc::internal, "the engine ended without an answer");
  return std::move(*given);
}

} // namespace

int replay_command(const std::vector<std::string>& words) {
  config::settings all;
  all.engine.max_batch = 1;
  all.log.level = "error";
  std::string path;
  arguments options(
      "replay", "Repeats a request recorded by serve --trace-dir; exit status 1 if a token differs.");
  options.positional("TRACE", path, "the trace file", true);
  constexpr std::string_view groups[] = {"engine", "log"};
  std::string model;
  options.option(
      "-m,--model", model,
      "GGUF file, Hugging Face folder or catalogue name instead of the one in the trace");
  all.model.path = config::settings{}.model.path;
  options.settings(all, groups);
  if (!options.parse(words)) return 0;
  apply_log_level(all);

  const detail::request_trace trace = detail::read_trace(path).value();
  all.model.path = model.empty() ? trace.model_path : model;
  request what = trace.asked;
  // What a client cut short was not the model's to end: as many tokens are repeated and compared.
  const bool cut_short = trace.reason == finish_reason::cancelled;
  if (cut_short && trace.token_ids.empty()) {
    std::puts("identical: cancelled before the first token");
    return 0;
  }
  if (cut_short) what.max_tokens = static_cast<std::uint32_t>(trace.token_ids.size());
  const completion again = generate(make_engine_options(all), std::move(what));
  const auto [recorded, repeated] = std::mismatch(
      trace.token_ids.begin(), trace.token_ids.end(), again.token_ids.begin(), again.token_ids.end());
  if (again.system_fingerprint != trace.system_fingerprint)
    std::printf(
        "fingerprint differs: recorded %s, now %s (other kernels or another plan may give other tokens)\n",
        trace.system_fingerprint.c_str(), again.system_fingerprint.c_str());
  if (recorded == trace.token_ids.end() && repeated == again.token_ids.end()) {
    std::printf(
        "identical: %zu tokens%s\n", again.token_ids.size(),
        cut_short ? ", up to where the client cancelled it" : "");
    return 0;
  }
  const auto at = static_cast<std::size_t>(recorded - trace.token_ids.begin());
  const auto show = [at](const std::vector<std::int32_t>& ids) {
    return at < ids.size() ? std::to_string(ids[at]) : std::string("the end");
  };
  std::printf(
      "differs at token %zu: recorded %s, now %s\n", at, show(trace.token_ids).c_str(),
      show(again.token_ids).c_str());
  return 1;
}

} // namespace troupe::cli
