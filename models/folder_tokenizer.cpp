// SPDX-License-Identifier: Apache-2.0
// The text side of a Hugging Face folder.
#include "models/folder_tokenizer.hpp"

#include "models/json_reader.hpp"
#include "models/mapped_file.hpp"
#include "models/tokenizer_json.hpp"
#include "models/tokenizer_json_stages.hpp"

#include <charconv>
#include <filesystem>

namespace troupe::models {
namespace {

namespace json = boost::json;

/// The contents of a file of at most 64 MiB.
result<std::string> read_bounded(const std::string& path) {
  auto file = mapped_file::open(path);
  if (!file) return file.error();
  const auto bytes = file->bytes();
  if (bytes.size() > max_tokenizer_json_bytes)
    return error{errc::bad_file, path + " is larger than 64 MiB", {}, 0};
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

/// A JSON file that may be absent: null then.
result<json::value> read_optional_json(const std::filesystem::path& path) try {
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return json::value();
  auto text = read_bounded(path.string());
  if (!text) return text.error();
  boost::system::error_code failed;
  json::value v = json::parse(*text, failed);
  if (failed) return error{errc::bad_file, path.string() + " is not JSON: " + failed.message(), {}, 0};
  if (!v.is_object()) return error{errc::bad_file, path.string() + " is not an object", {}, 0};
  return v;
} catch (const std::bad_alloc&) {
  return error{errc::no_memory, "no memory to read " + path.string(), {}, 0};
}

/// A special token: its text, or an object with "content".
result<std::optional<std::string>> read_token_text(const json_object& config, std::string_view name) {
  const json::value* v = config.find(name);
  if (!v || !v->is_object()) return config.text(name);
  auto inner = config.object(name);
  if (!inner) return inner.error();
  return inner->text("content");
}

result<void> read_added_decoder(const json_object& config, tokenizer_settings& settings) {
  if (!config.find("added_tokens_decoder")) return {};
  auto list = config.object("added_tokens_decoder");
  if (!list) return list.error();
  for (const auto& entry : list->fields()) {
    auto fields = json_object::of(entry.value(), list->inner(entry.key()));
    if (!fields) return fields.error();
    std::uint32_t id = 0;
    const std::string_view key = entry.key();
    const auto [end, failed] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (failed != std::errc{} || end != key.data() + key.size() || id >= max_vocabulary_tokens)
      return fields->fail("is named by no token id");
    auto token = read_added_token(*fields);
    if (!token) return token.error();
    token->id = static_cast<token_id>(id);
    settings.added.push_back(std::move(*token));
  }
  return {};
}

result<void> read_tokenizer_config(const json_object& config, tokenizer_settings& settings) {
  const std::pair<std::string_view, std::optional<std::string>*> texts[] = {
      {"bos_token", &settings.bos},
      {"eos_token", &settings.eos},
      {"unk_token", &settings.unknown},
      {"pad_token", &settings.padding}};
  for (const auto& [name, to] : texts) {
    auto text = read_token_text(config, name);
    if (!text) return text.error();
    *to = std::move(*text);
  }
  // BOS and EOS are named by their ids; these are the rest of transformers' SPECIAL_TOKENS_ATTRIBUTES.
  for (const std::string_view name : {"unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    auto text = read_token_text(config, name);
    if (!text) return text.error();
    if (*text) settings.named.emplace_back(name, std::move(**text));
  }
  const std::pair<std::string_view, std::optional<bool>*> flags[] = {
      {"add_bos_token", &settings.add_bos}, {"add_eos_token", &settings.add_eos}};
  for (const auto& [name, to] : flags) {
    if (!config.find(name)) continue;
    auto value = config.flag(name, false);
    if (!value) return value.error();
    *to = *value;
  }
  return read_added_decoder(config, settings);
}

/// eos_token_id: a number or a list of them.
result<void> read_ends(const json_object& config, std::vector<token_id>& ends) {
  const json::value* v = config.find("eos_token_id");
  if (!v) return {};
  const json::array one{*v};
  for (const json::value& id : v->is_array() ? v->get_array() : one) {
    boost::system::error_code failed;
    const auto number = id.to_number<std::int64_t>(failed);
    if (failed || number < 0 || number >= static_cast<std::int64_t>(max_vocabulary_tokens))
      return config.fail("has an eos_token_id that is none");
    ends.push_back(static_cast<token_id>(number));
  }
  return {};
}

result<tokenizer_settings> read_settings(const std::filesystem::path& folder) {
  tokenizer_settings settings;
  const std::filesystem::path config = folder / "tokenizer_config.json";
  auto parsed = read_optional_json(config);
  if (!parsed) return parsed.error();
  if (parsed->is_object()) {
    if (auto ok = read_tokenizer_config(*json_object::of(*parsed, config.string()), settings); !ok)
      return ok.error();
  }
  for (const char* name : {"generation_config.json", "config.json"}) {
    if (!settings.generation_ends.empty()) break;
    auto other = read_optional_json(folder / name);
    if (!other) return other.error();
    if (!other->is_object()) continue;
    if (auto ok = read_ends(*json_object::of(*other, (folder / name).string()), settings.generation_ends);
        !ok)
      return ok.error();
  }
  return settings;
}

} // namespace

result<folder_text> make_tokenizer_from_folder(const std::string& folder) {
  auto made = make_tokenizer_from_json((std::filesystem::path(folder) / "tokenizer.json").string());
  if (!made) return made.error();
  auto chat = read_folder_chat_template(folder);
  if (!chat) return chat.error();
  return folder_text{std::move(*made), std::move(*chat)};
}

result<std::unique_ptr<const tokenizer>> make_tokenizer_from_json(const std::string& path) {
  auto text = read_bounded(path);
  if (!text) return text.error();
  auto settings = read_settings(std::filesystem::path(path).parent_path());
  if (!settings) return settings.error();
  auto made = read_tokenizer_json(*text, *settings);
  if (!made) return error{made.error().code, path + ": " + made.error().message, {}, 0};
  return made;
}

result<std::optional<std::string>>
read_folder_chat_template(const std::string& folder, std::string_view name) {
  const std::filesystem::path own = std::filesystem::path(folder) / "chat_template.jinja";
  std::error_code none;
  if (name.empty() && std::filesystem::exists(own, none)) {
    auto text = read_bounded(own.string());
    if (!text) return text.error();
    return std::optional<std::string>(std::move(*text));
  }
  const std::filesystem::path path = std::filesystem::path(folder) / "tokenizer_config.json";
  auto parsed = read_optional_json(path);
  if (!parsed) return parsed.error();
  if (!parsed->is_object()) return std::optional<std::string>{};
  const json_object config = *json_object::of(*parsed, path.string());
  const json::value* stored = config.find("chat_template");
  if (!stored || !stored->is_array()) return config.text("chat_template");
  for (const json::value& entry : stored->get_array()) {
    auto fields = json_object::of(entry, config.inner("chat_template"));
    if (!fields) return fields.error();
    auto called = fields->text("name");
    if (!called) return called.error();
    if (called->value_or("") == (name.empty() ? "default" : name)) return fields->text("template");
  }
  return std::optional<std::string>{};
}

} // namespace troupe::models
