// SPDX-License-Identifier: Apache-2.0
// The tokenizer data of a GGUF file.
#pragma once

#include "models/vocabulary.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace troupe::models {

class gguf_file;

/// Reads the `tokenizer.ggml.*` keys; absent ones get the defaults that the format's writers assume. The
/// result is validated. Errors: bad_file naming the key.
result<vocabulary> read_vocabulary(const gguf_file& file);

/// The chat template of the file, "tokenizer.chat_template" or, with `name`,
/// "tokenizer.chat_template.<name>". Nothing when the file has none. Errors: bad_file when it is not a
/// string.
result<std::optional<std::string>> read_chat_template(const gguf_file& file, std::string_view name = {});

} // namespace troupe::models
