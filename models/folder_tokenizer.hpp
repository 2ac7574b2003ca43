// SPDX-License-Identifier: Apache-2.0
// The text side of a Hugging Face folder.
#pragma once

#include "models/tokenizer.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::models {

struct folder_text {
  std::unique_ptr<const models::tokenizer> tokenizer;
  std::optional<std::string> chat_template;
};

/// Reads tokenizer.json and, where they are there, tokenizer_config.json (special tokens, add_bos_token,
/// added_tokens_decoder), generation_config.json and config.json (ids that end generation) beside it. Errors:
/// those of mapped_file::open and read_tokenizer_json, with the file's name in front; those of
/// read_folder_chat_template.
result<folder_text> make_tokenizer_from_folder(const std::string& folder);

/// The tokenizer of a tokenizer.json of any name, with the files beside it.
result<std::unique_ptr<const tokenizer>> make_tokenizer_from_json(const std::string& path);

/// The chat template: chat_template.jinja, else "chat_template" of tokenizer_config.json, a text or a list of
/// {"name", "template"} of which `name` is taken, "default" when empty. Nothing when there is none. Errors:
/// bad_file naming what has the wrong form.
result<std::optional<std::string>>
read_folder_chat_template(const std::string& folder, std::string_view name = {});

} // namespace troupe::models
