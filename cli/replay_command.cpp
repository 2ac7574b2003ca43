// SPDX-License-Identifier: Apache-2.0
// `troupe replay`: runs a recorded request again and compares every token, the text and the end.
#include "cli/arguments.hpp"
#include "cli/catalogue.hpp"
#include "cli/command.hpp"
#include "cli/engine_settings.hpp"
#include "cli/text.hpp"
#include "engine/trace_file.hpp"
#include "kernels/cpu_features.hpp"

#include <boost/asio/io_context.hpp>

#include <algorithm>
#include <cstdio>
#include <optional>

namespace troupe::cli {

namespace {

struct repetition {
  std::string fingerprint;
  std::optional<completion> answer; ///< nothing: the fingerprint is another and was to be the same
};

/// One request's whole answer, from an engine that is started for it. `fingerprint`: generate nothing under
/// another one; empty = under any.
repetition repeat(engine_options options, request what, const std::string& fingerprint) {
  boost::asio::io_context io{1};
  const std::string model_path = options.model_path;
  engine one(io.get_executor(), std::move(options));
  std::optional<error> failed;
  repetition out;
  const auto leave = [&] { one.async_shutdown(std::chrono::seconds(5), [](result<void>) {}); };
  one.async_start([&](result<void> started) {
    if (!started) {
      failed = with_way_out(started.error(), model_path);
      return;
    }
    out.fingerprint = one.model().system_fingerprint;
    if (!fingerprint.empty() && fingerprint != out.fingerprint) return leave();
    one.async_generate(std::move(what), [&](result<completion> ended) {
      if (ended)
        out.answer = std::move(*ended);
      else
        failed = ended.error();
      leave();
    });
  });
  io.run();
  if (failed) throw failure(*failed);
  if (!out.answer && (fingerprint.empty() || fingerprint == out.fingerprint))
    throw failure(errc::internal, "the engine ended without an answer");
  return out;
}

/// What the recorded tokens depend on, where nothing else was asked for.
void restore_settings(config::settings& all, const detail::request_trace& trace, bool any_fingerprint) {
  auto& engine = all.engine;
  if (engine.max_context == 0) engine.max_context = trace.context;
  if (!engine.isa.empty() || engine.reference) return;
  engine.reference = trace.reference;
  const auto level = kernels::parse_isa(trace.isa);
  if (level && *level <= kernels::best_isa())
    engine.isa = trace.isa;
  else if (!trace.isa.empty() && !any_fingerprint)
    throw failure(
        errc::unsupported, "recorded with " + trace.isa + " kernels, this machine has " +
                               std::string(kernels::isa_name(kernels::best_isa())) +
                               ": --any-fingerprint replays with those");
}

/// How a request that was cut short ended.
std::string ending(const detail::request_trace& trace) {
  if (!trace.failed) return "cancelled";
  return "ended by " + one_line(trace.failed->code) + " (" + one_line(trace.failed->message) + ')';
}

/// Where the repeated answer departs from the recorded one, as a line; empty when nowhere.
std::string difference(const detail::request_trace& trace, const completion& again, bool cut_short) {
  const auto& ids = trace.token_ids;
  const auto [recorded, repeated] =
      std::mismatch(ids.begin(), ids.end(), again.token_ids.begin(), again.token_ids.end());
  if (recorded != ids.end() || repeated != again.token_ids.end()) {
    const auto at = static_cast<std::size_t>(recorded - ids.begin());
    const auto show = [at](const std::vector<std::int32_t>& of) {
      return at < of.size() ? std::to_string(of[at]) : std::string("the end");
    };
    return "differs at token " + std::to_string(at) + ": recorded " + show(ids) + ", now " +
           show(again.token_ids);
  }
  if (!cut_short && trace.reason != again.reason)
    return "differs in its end: recorded " + std::string(finish_reason_name(trace.reason)) + ", now " +
           std::string(finish_reason_name(again.reason));
  std::string_view text = again.text;
  if (trace.chat && text.starts_with(' ') && !trace.text.starts_with(' ')) text.remove_prefix(1);
  // What was held back when the client cancelled, half a character or half a stop string, was never sent.
  if (cut_short) text = text.substr(0, trace.text.size());
  if (text == trace.text) return {};
  const auto at = std::mismatch(text.begin(), text.end(), trace.text.begin(), trace.text.end()).first;
  return "differs at byte " + std::to_string(at - text.begin()) + " of the text, with the same tokens";
}

} // namespace

int replay_command(const std::vector<std::string>& words) {
  config::settings all;
  all.engine.max_batch = 1;
  all.log.level = "error";
  std::string path;
  arguments options(
      "replay",
      "Repeats a request recorded by serve --trace-dir, with the kernels of then; exit status 1 if a "
      "token, the text or the finish reason differs.");
  options.positional("TRACE", path, "the trace file", true);
  constexpr std::string_view groups[] = {"engine", "log"};
  std::string model;
  options.option(
      "-m,--model", model,
      "GGUF file, Hugging Face folder or catalogue name instead of the one in the trace");
  bool any_fingerprint = false;
  options.flag(
      "--any-fingerprint", any_fingerprint,
      "go on under another fingerprint: other kernels, another plan or another model may give other tokens");
  all.model.path = config::settings{}.model.path;
  options.settings(all, groups);
  if (!options.parse(words)) return 0;
  apply_log_level(all);

  const detail::request_trace trace = detail::read_trace(path).value();
  all.model.path = model.empty() ? trace.model_path : model;
  restore_settings(all, trace, any_fingerprint);
  request what = trace.asked;
  // What a client or a failure cut short was not the model's to end: as many tokens are repeated and
  // compared.
  const bool cut_short = trace.failed || trace.reason == finish_reason::cancelled;
  if (cut_short && trace.token_ids.empty()) {
    std::printf("identical: %s before the first token\n", ending(trace).c_str());
    return 0;
  }
  if (cut_short) {
    what.max_tokens = static_cast<std::uint32_t>(trace.token_ids.size());
    what.min_tokens = std::min(what.min_tokens, *what.max_tokens); // no end was due before the last of them
  }
  engine_options engine = make_engine_options(all);
  engine.on_loading = tell_loading; // the level of the log here hides it
  const repetition again =
      repeat(std::move(engine), std::move(what), any_fingerprint ? std::string() : trace.system_fingerprint);
  if (const auto other = detail::fingerprint_difference(trace.system_fingerprint, again.fingerprint);
      !other.empty())
    std::printf(
        "fingerprint differs in %s%s\n", other.c_str(),
        any_fingerprint ? "" : "; --any-fingerprint replays all the same");
  if (!again.answer) return 1;
  if (const std::string line = difference(trace, *again.answer, cut_short); !line.empty()) {
    std::puts(line.c_str());
    return 1;
  }
  std::printf(
      "identical: %zu tokens%s\n", again.answer->token_ids.size(),
      cut_short ? (", up to where it was " + ending(trace)).c_str() : "");
  return 0;
}

} // namespace troupe::cli
