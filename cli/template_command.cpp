// SPDX-License-Identifier: Apache-2.0
// `troupe template`: a conversation as the model's chat template renders it.
#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/text_model.hpp"
#include "models/chat_template.hpp"
#include "models/jinja/json_value.hpp"
#include "runtime/base/bounded_json.hpp"

#include <boost/json.hpp>

#include <array>
#include <cstdio>
#include <ctime>
#include <optional>

namespace troupe::cli {

namespace {

namespace json = boost::json;

// Words of the command line, turn by turn, the user first.
json::array spoken(const std::string& system, const std::vector<std::string>& turns) {
  json::array messages;
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  for (std::size_t i = 0; i < turns.size(); ++i)
    messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", turns[i]}});
  return messages;
}

// The variables of a render: an object of them, or the list of messages alone.
json::object read_context(const std::string& path) {
  auto read = parse_bounded_json(read_text_file(path, "--context", most_template));
  if (!read) throw failure(errc::bad_file, path + ": " + read.error().message);
  if (read->wide_integer)
    throw failure(
        errc::bad_file, path + ": an integer in \"" + *read->wide_integer + "\" does not fit 64 bits");
  json::value parsed = std::move(read->value);
  if (parsed.is_array()) return {{"messages", std::move(parsed)}};
  if (!parsed.is_object())
    throw failure(errc::bad_file, path + ": is neither an object with \"messages\" nor a list of messages");
  return std::move(parsed.get_object());
}

// Local time as written, with the day of the week that follows from it.
std::tm parse_time(const std::string& text) {
  constexpr const char* form = "%Y-%m-%dT%H:%M:%S";
  std::tm time{};
  std::array<char, 20> again{};
  if (strptime(text.c_str(), form, &time) != nullptr) timegm(&time);
  // A date that does not exist has become another one, and a field without its zeros has them now.
  if (std::strftime(again.data(), again.size(), form, &time) == 0 || text != again.data())
    throw failure(
        errc::bad_config, "--now cannot be \"" + text + "\"; it takes a time like 2026-11-29T12:00:00");
  return time;
}

std::string source_of(const std::string& template_file, const std::optional<text_model>& opened) {
  if (!template_file.empty()) return read_text_file(template_file, "--template", most_template);
  if (!opened->chat_template)
    throw failure(errc::unsupported, opened->name + ": has no chat template; give one with --template");
  return *opened->chat_template;
}

// Takes a text out of the variables: a token that is named there is the caller's own, no message's.
std::optional<std::string> take_text(json::object& variables, std::string_view name) {
  const json::value* given = variables.if_contains(name);
  if (given == nullptr || !given->is_string()) return std::nullopt;
  std::string text(given->get_string());
  variables.erase(name);
  return text;
}

void print_ids(const models::tokenizer& tokenizer, const models::jinja::rendered_text& rendered) {
  models::encode_options encoding;
  encoding.parse_special = true;
  encoding.untrusted = rendered.untrusted;
  const auto tokens = encode_aloud("template", tokenizer, rendered.text, encoding, "the conversation");
  for (std::size_t i = 0; i < tokens.size(); ++i) std::printf(i == 0 ? "%d" : " %d", tokens[i]);
  std::putchar('\n');
}

} // namespace

int template_command(const std::vector<std::string>& words) {
  std::string model = config::settings{}.model.path, context_file, template_file, system, now;
  std::vector<std::string> turns;
  bool no_generation_prompt = false, ids = false;
  arguments options("template", "Prints a conversation as the model sees it, byte for byte.");
  options.positional("MESSAGE", turns, "turns of the conversation, the user's first", false);
  options.option("-m,--model", model, "GGUF file, Hugging Face folder or catalogue name");
  options.option("--system", system, "system message");
  options.option(
      "--context", context_file,
      "JSON file with the template's variables (messages, tools, add_generation_prompt, bos_token, ...), or "
      "with the list of messages alone");
  options.option(
      "--template", template_file,
      "use this Jinja file; without --model no model is opened, BOS and EOS come from --context");
  options.option("--now", now, "the time that strftime_now shows, as 2026-11-29T12:00:00");
  options.flag("--no-generation-prompt", no_generation_prompt, "do not open the assistant's turn");
  options.flag("--ids", ids, "print token ids instead of text");
  options.exclusive({"--context", "--system"});
  options.exclusive({"--context", "MESSAGE"});
  if (!options.parse(words)) return 0;

  std::optional<text_model> opened;
  if (template_file.empty() || ids || options.given("--model")) opened = open_text_model(model);
  const auto compiled = models::chat_template::compile(source_of(template_file, opened)).value();
  json::object variables =
      context_file.empty() ? json::object{{"messages", spoken(system, turns)}} : read_context(context_file);
  const auto bos = take_text(variables, "bos_token"), eos = take_text(variables, "eos_token");
  if (no_generation_prompt) variables["add_generation_prompt"] = false;

  models::jinja::heap values;
  models::chat_context context;
  const auto given = models::jinja::from_json(values, variables);
  if (!given)
    throw failure(errc::bad_file, (context_file.empty() ? "" : context_file + ": ") + given.error().message);
  context.extra = *given;
  // As the server does; what the variables say goes before. Without a model they are all there is.
  if (opened) models::set_names(context, opened->tokenizer->vocab(), values);
  if (bos) context.bos_token = *bos;
  if (eos) context.eos_token = *eos;
  if (!options.given("--now")) {
    const std::time_t seconds = std::time(nullptr);
    localtime_r(&seconds, &context.now);
  } else {
    context.now = parse_time(now);
  }
  const auto rendered = compiled.render(context).value();
  if (ids)
    print_ids(*opened->tokenizer, rendered);
  else
    std::fwrite(rendered.text.data(), 1, rendered.text.size(), stdout);
  return 0;
}

} // namespace troupe::cli
