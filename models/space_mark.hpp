// SPDX-License-Identifier: Apache-2.0
// U+2581, SentencePiece's sign for a space.
#pragma once

#include "models/text_stage.hpp"
#include "models/vocabulary.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::models {

inline constexpr char32_t space_mark = 0x2581;
inline constexpr std::string_view space_mark_text = "\xE2\x96\x81";

/// `text` with a space for every mark.
std::string marks_to_spaces(std::string_view text);

/// Adds the stage that cuts before space marks where no token of `v` reaches across one.
void add_space_boundaries(const vocabulary& v, std::vector<std::unique_ptr<const word_stage>>& stages);

} // namespace troupe::models
