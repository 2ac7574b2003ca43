// SPDX-License-Identifier: Apache-2.0
// What a model's files recommend for drawing tokens. It is told, not applied: a request says what it wants.
#pragma once

#include <optional>
#include <string>

namespace troupe::models {

class gguf_file;

/// One line with the settings in generation_config.json of a folder that would change an answer where they
/// were applied, as vLLM and transformers do. Nothing when there are none, or no such file.
std::optional<std::string> unapplied_generation(const std::string& folder);

/// The same for `general.sampling.*` of a GGUF file.
std::optional<std::string> unapplied_generation(const gguf_file& file);

} // namespace troupe::models
