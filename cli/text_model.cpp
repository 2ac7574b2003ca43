// SPDX-License-Identifier: Apache-2.0
// Opening a model for its text side; reading texts.
#include "cli/text_model.hpp"

#include "cli/catalogue.hpp"
#include "cli/text.hpp"
#include "models/folder_tokenizer.hpp"
#include "models/gguf_file.hpp"
#include "models/hf_folder.hpp"
#include "models/vocabulary_gguf.hpp"
#include "runtime/base/bounded_file.hpp"

#include <cstdio>
#include <utility>

namespace troupe::cli {

text_model open_text_model(const std::string& path_or_name) {
  const std::string path = resolve_model(path_or_name);
  return opening(path, [&]() -> text_model {
    if (models::is_folder(path)) {
      auto text = models::make_tokenizer_from_folder(path).value();
      return {path, std::move(text.tokenizer), std::move(text.chat_template)};
    }
    const auto file = models::gguf_file::open(path).value();
    auto tokenizer = models::make_tokenizer(models::read_vocabulary(file).value()).value();
    return {file.name(), std::move(tokenizer), models::read_chat_template(file).value()};
  });
}

std::unique_ptr<const models::tokenizer>
open_tokenizer(const std::string& path_or_name, const std::string& tokenizer_json) {
  const std::string path = tokenizer_json.empty() ? resolve_model(path_or_name) : tokenizer_json;
  const bool folder = models::is_folder(path);
  if (!tokenizer_json.empty() && folder) return models::make_tokenizer_from_folder(path).value().tokenizer;
  if (!tokenizer_json.empty()) return models::make_tokenizer_from_json(path).value();
  if (path.ends_with(".json") && !folder)
    return opening(path, [&] { return models::make_tokenizer_from_json(path).value(); });
  return open_text_model(path).tokenizer;
}

std::vector<models::token_id> encode_aloud(
    const std::string& command, const models::tokenizer& tokenizer, std::string_view text,
    models::encode_options how, const std::string& what) {
  std::size_t lost = 0;
  how.lost = &lost;
  auto ids = tokenizer.encode(text, how).value();
  if (lost == 0) return ids;
  const models::lost_bytes found = models::find_lost(tokenizer, text, how).value();
  std::fprintf(stderr, "troupe %s: %s\n", command.c_str(), lost_note(what, found.count, found.first).c_str());
  return ids;
}

std::string read_standard_input(std::uint64_t most) {
  return read_bounded_stream(stdin, "standard input", most).value();
}

std::string read_text_file(const std::string& path, const std::string& option, std::uint64_t most) {
  auto text = read_bounded_file(path, most);
  if (!text) throw failure(text.error().code, text.error().message + "; give another file with " + option);
  return std::move(*text);
}

} // namespace troupe::cli
