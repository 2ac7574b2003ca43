// SPDX-License-Identifier: Apache-2.0
// Opening a model for its text side; reading texts.
#include "cli/text_model.hpp"

#include "cli/catalogue.hpp"
#include "cli/text.hpp"
#include "models/folder_tokenizer.hpp"
#include "models/gguf_file.hpp"
#include "models/hf_folder.hpp"
#include "models/vocabulary_gguf.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

namespace troupe::cli {

namespace {

std::string read_all(std::FILE* file, const std::string& name) {
  std::string text;
  std::vector<char> block(1U << 16);
  while (const std::size_t count = std::fread(block.data(), 1, block.size(), file)) {
    text.append(block.data(), count);
    if (text.size() > models::tokenizer::max_text_bytes)
      throw failure(errc::io, name + ": longer than 1 GiB");
  }
  if (std::ferror(file) != 0) throw failure(errc::io, name + ": " + std::strerror(errno));
  return text;
}

} // namespace

text_model open_text_model(const std::string& path_or_name) {
  const std::string path = resolve_model(path_or_name);
  if (models::is_folder(path)) {
    auto text = models::make_tokenizer_from_folder(path).value();
    return {path, std::move(text.tokenizer), std::move(text.chat_template)};
  }
  const auto file = models::gguf_file::open(path).value();
  auto tokenizer = models::make_tokenizer(models::read_vocabulary(file).value()).value();
  return {file.name(), std::move(tokenizer), models::read_chat_template(file).value()};
}

std::unique_ptr<const models::tokenizer>
open_tokenizer(const std::string& path_or_name, const std::string& tokenizer_json) {
  const std::string path = tokenizer_json.empty() ? resolve_model(path_or_name) : tokenizer_json;
  if (models::is_folder(path)) return models::make_tokenizer_from_folder(path).value().tokenizer;
  if (!tokenizer_json.empty() || path.ends_with(".json"))
    return models::make_tokenizer_from_json(path).value();
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

std::string read_standard_input() {
  return read_all(stdin, "standard input");
}

std::string read_text_file(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) throw failure(errc::io, path + ": " + std::strerror(errno));
  return read_all(file.get(), path);
}

} // namespace troupe::cli
