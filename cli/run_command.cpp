// SPDX-License-Identifier: Apache-2.0
// `troupe run`: the arguments of a conversation.
#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/conversation.hpp"
#include "cli/engine_settings.hpp"
#include "cli/text_model.hpp"

#include <charconv>
#include <cmath>
#include <limits>
#include <unistd.h>

namespace troupe::cli {
namespace {

constexpr std::size_t most_stops = 16, longest_stop = 1024; // as the engine takes them

/// "ID=BIAS". Throws bad_config.
logit_bias parse_bias(std::string_view text) {
  const auto read = [](std::string_view part, auto& into) {
    const auto [rest, ec] = std::from_chars(part.data(), part.data() + part.size(), into);
    return ec == std::errc() && rest == part.data() + part.size();
  };
  logit_bias bias;
  const std::size_t equals = text.find('=');
  const bool whole = equals != std::string_view::npos && read(text.substr(0, equals), bias.token) &&
                     read(text.substr(equals + 1), bias.bias);
  if (!whole || bias.token < 0 || !(std::abs(bias.bias) <= 100.0F))
    throw failure(
        errc::bad_config, "--logit-bias " + std::string(text) +
                              ": must be ID=BIAS, a token id and a number from -100 (never drawn) to 100");
  return bias;
}

} // namespace

int run_command(const std::vector<std::string>& words) {
  config::settings all;
  all.engine.max_batch = 1; // one person asks at a time
  all.log.level = "error";
  conversation_options talk;
  request& model_request = talk.model_request;
  sampling& draw = model_request.sampling;
  draw.temperature = 0.7F;
  std::vector<std::string> prompt_words;
  std::uint32_t max_tokens = 0;
  std::vector<std::string> biases;

  arguments options("run", "Answers a prompt; without one and in a terminal, chats.");
  options.positional(
      "PROMPT", prompt_words,
      "the prompt; without it standard input less one line end at its end, or a chat in the terminal", false);
  options.option("--system", talk.system, "system message of the chat");
  options.flag("--raw", talk.raw, "give the model the prompt as it is, without its chat template");
  options.flag(
      "--special", model_request.parse_special,
      "with --raw: the texts of control tokens in the prompt are these tokens");
  options.flag("--json", talk.json, "print one JSON object instead of text as it comes");
  options.option(
      "-n,--max-tokens", max_tokens, 0U, 1U << 24, "longest answer in tokens; 0: to the end of the context");
  options.option("-t,--temperature", draw.temperature, 0.0F, 2.0F, "0: always the most likely token");
  options.option("--top-k", draw.top_k, 0U, 1U << 22, "draw from so many most likely tokens; 0: off");
  options.option(
      "--top-p", draw.top_p, 0.001F, 1.0F, "draw from the most likely tokens of this total probability");
  options.option(
      "--typical-p", draw.typical_p, 0.001F, 1.0F,
      "draw from the tokens nearest to the expected surprise, of this total probability; 1: off");
  options.option(
      "--min-p", draw.min_p, 0.0F, 1.0F, "leave out tokens less likely than this share of the best");
  options.option("--repetition-penalty", draw.repetition_penalty, 0.01F, 2.0F, "1: off");
  options.option("--presence-penalty", draw.presence_penalty, -2.0F, 2.0F, "0: off");
  options.option("--frequency-penalty", draw.frequency_penalty, -2.0F, 2.0F, "0: off");
  options.option("--logit-bias", biases, "ID=BIAS, added to a token's logit; -100: never; may be repeated");
  options.option(
      "--seed", draw.seed, 0, std::numeric_limits<std::uint64_t>::max(),
      "of the draws; absent: a new one each time");
  options.option("--stop", model_request.stop, "end the answer before this text; may be repeated");
  options.flag("--ignore-eos", model_request.ignore_eos, "go on after the end-of-sequence token");
  constexpr std::string_view groups[] = {"model", "engine", "log"};
  // The others are for servers: one person's requests never queue, and read at once.
  constexpr std::string_view shown[] = {"model.path",       "engine.isa",       "engine.reference",
                                        "engine.threads",   "engine.kv_memory", "engine.max_context",
                                        "engine.trace_dir", "log.level"};
  options.settings(all, groups, shown);
  if (!options.parse(words)) return 0;

  apply_log_level(all);
  if (model_request.parse_special && !talk.raw)
    throw failure(
        errc::bad_config, "--special needs --raw: in a chat the template alone writes control tokens");
  if (options.given("--max-tokens") && max_tokens > 0) model_request.max_tokens = max_tokens;
  if (model_request.stop.size() > most_stops)
    throw failure(errc::bad_config, "--stop may be given " + std::to_string(most_stops) + " times at most");
  for (const std::string& stop : model_request.stop)
    if (stop.empty() || stop.size() > longest_stop)
      throw failure(
          errc::bad_config, "--stop cannot be a text of " + std::to_string(stop.size()) +
                                " bytes; it takes 1 to " + std::to_string(longest_stop));
  for (const std::string& bias : biases) draw.logit_bias.push_back(parse_bias(bias));
  if (!prompt_words.empty()) {
    std::string prompt;
    for (const std::string& word : prompt_words) (prompt += prompt.empty() ? "" : " ") += word;
    talk.prompt = std::move(prompt);
  } else if (isatty(STDIN_FILENO) == 0) {
    std::string prompt = read_standard_input(most_prompt);
    if (prompt.ends_with('\n')) prompt.pop_back(); // echo's, not the prompt's
    talk.prompt = std::move(prompt);
  } else if (talk.json) {
    throw failure(errc::bad_config, "--json needs a prompt");
  }
  // As at every door. A chat template would make something even of nothing, which nobody has asked for.
  if (talk.prompt && talk.prompt->empty())
    throw failure(errc::bad_config, "the prompt is empty, at least 1 character is needed");
  engine_options engine = make_engine_options(all);
  engine.on_loading = tell_loading; // the level of the log here hides it
  conversation session(std::move(engine), std::move(talk));
  return session.run();
}

} // namespace troupe::cli
