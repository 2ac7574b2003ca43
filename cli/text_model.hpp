// SPDX-License-Identifier: Apache-2.0
// The text side of a model file, without its weights.
#pragma once

#include "models/tokenizer.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::cli {

struct text_model {
  std::string name; ///< for messages
  std::unique_ptr<const models::tokenizer> tokenizer;
  std::optional<std::string> chat_template;
};

/// Opens what --model names and builds its tokenizer. Throws `failure`.
text_model open_text_model(const std::string& path_or_name);

/// The tokenizer of what --model names (a GGUF file, also one without weights, a Hugging Face folder or a
/// catalogue name) or, where `tokenizer_json` is not empty, of that file or the folder it is in. Throws
/// `failure`.
std::unique_ptr<const models::tokenizer>
open_tokenizer(const std::string& path_or_name, const std::string& tokenizer_json);

/// The ids of `text`, whose name `what` is; says on standard error, as `troupe COMMAND`, what they leave out.
/// Throws `failure`.
std::vector<models::token_id> encode_aloud(
    const std::string& command, const models::tokenizer& tokenizer, std::string_view text,
    models::encode_options how, const std::string& what);

// The longest that is read of what has perhaps no end.
inline constexpr std::uint64_t most_text = 256U << 20;    ///< to be tokenised or measured
inline constexpr std::uint64_t most_prompt = 64U << 20;   ///< of one request
inline constexpr std::uint64_t most_template = 16U << 20; ///< and its variables

/// All of standard input. Throws `failure`.
std::string read_standard_input(std::uint64_t most);
/// A whole file, which `option` named. Throws `failure`.
std::string read_text_file(const std::string& path, const std::string& option, std::uint64_t most);

} // namespace troupe::cli
