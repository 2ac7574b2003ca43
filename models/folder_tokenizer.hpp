// SPDX-License-Identifier: Apache-2.0
// The text side of a Hugging Face folder.
#pragma once

#include "models/tokenizer.hpp"
#include "runtime/base/error.hpp"

#include <memory>
#include <optional>
#include <string>

namespace troupe::models {

struct folder_text {
  std::unique_ptr<const models::tokenizer> tokenizer;
  std::optional<std::string> chat_template;
};

/// Reads tokenizer.json and the files beside it. Errors: unsupported: not built yet.
result<folder_text> make_tokenizer_from_folder(const std::string& folder);

} // namespace troupe::models
