// SPDX-License-Identifier: Apache-2.0
// `troupe template`: a conversation as the model's chat template renders it.
#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/text_model.hpp"
#include "models/chat_template.hpp"
#include "models/jinja/json_value.hpp"
#include "models/vocabulary_gguf.hpp"

#include <boost/json.hpp>

#include <cstdio>
#include <ctime>

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

json::array read_messages(const std::string& path) {
  boost::system::error_code failed;
  const json::value parsed = json::parse(read_text_file(path), failed);
  const json::value* list = &parsed;
  if (!failed && parsed.is_object()) list = parsed.get_object().if_contains("messages");
  if (failed || list == nullptr || !list->is_array())
    throw failure(
        errc::bad_file, path + ": is neither a JSON list of messages nor an object with \"messages\"");
  return list->get_array();
}

} // namespace

int template_command(const std::vector<std::string>& words) {
  std::string model = config::settings{}.model.path, messages_file, template_file, system;
  std::vector<std::string> turns;
  bool no_generation_prompt = false, ids = false;
  arguments options("template", "Prints a conversation as the model sees it.");
  options.positional("MESSAGE", turns, "turns of the conversation, the user's first", false);
  options.option("-m,--model", model, "GGUF file or catalogue name");
  options.option("--system", system, "system message");
  options.option(
      "--messages", messages_file, "read the conversation from this JSON file, as clients send it");
  options.option("--template", template_file, "use this Jinja file instead of the model's template");
  options.flag("--no-generation-prompt", no_generation_prompt, "do not open the assistant's turn");
  options.flag("--ids", ids, "print token ids instead of text");
  if (!options.parse(words)) return 0;

  const text_model opened = open_text_model(model);
  std::string source;
  if (!template_file.empty()) {
    source = read_text_file(template_file);
  } else {
    const auto stored = models::read_chat_template(opened.file).value();
    if (!stored)
      throw failure(
          errc::unsupported, opened.file.name() + ": has no chat template; give one with --template");
    source = *stored;
  }
  const auto compiled = models::chat_template::compile(source).value();
  const json::array messages = messages_file.empty() ? spoken(system, turns) : read_messages(messages_file);

  models::jinja::heap values;
  models::chat_context context;
  context.messages = models::jinja::from_json(values, messages).value();
  context.add_generation_prompt = !no_generation_prompt;
  const models::vocabulary& vocabulary = opened.tokenizer->vocab();
  const auto text_of = [&](const std::optional<models::token_id>& id) -> std::string_view {
    return id ? std::string_view(vocabulary.tokens[static_cast<std::size_t>(*id)]) : std::string_view();
  };
  context.bos_token = text_of(vocabulary.bos);
  context.eos_token = text_of(vocabulary.eos);
  const std::time_t now = std::time(nullptr);
  localtime_r(&now, &context.now);
  const auto rendered = compiled.render(context).value();
  if (!ids) {
    std::fwrite(rendered.text.data(), 1, rendered.text.size(), stdout);
    return 0;
  }
  models::encode_options encoding;
  encoding.parse_special = true;
  encoding.untrusted = rendered.untrusted;
  const auto tokens = opened.tokenizer->encode(rendered.text, encoding).value();
  for (std::size_t i = 0; i < tokens.size(); ++i) std::printf(i == 0 ? "%d" : " %d", tokens[i]);
  std::putchar('\n');
  return 0;
}

} // namespace troupe::cli
