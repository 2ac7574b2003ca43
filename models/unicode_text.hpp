// SPDX-License-Identifier: Apache-2.0
// Character classes, normal forms and cases, as tokenizers use them.
#pragma once

#include "models/text_edits.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::models {

/// The property White_Space.
bool is_white_space(char32_t code) noexcept;
/// General categories Nd, Nl and No.
bool is_numeric(char32_t code) noexcept;
/// General categories Pc, Pd, Ps, Pe, Pi, Pf and Po, as HF tokenizers has them.
bool is_punctuation(char32_t code) noexcept;
/// General categories Mn, Mc and Me, as HF tokenizers has them.
bool is_mark(char32_t code) noexcept;

/// Appends the lower case of one character, without regard to its neighbours (as HF tokenizers does).
void append_lower(std::string& out, char32_t code);

enum class normal_form : std::uint8_t { nfc, nfd, nfkc, nfkd };

/// Sets `out` to the normal form (UAX 15) of well-formed `text` and returns true, or returns
/// false where they are equal. Characters whose decomposition came after Unicode 9 are left, as HF tokenizers
/// does. Adds to `edits` what has changed, as finely as characters are independent of each other. Time:
/// O(n log n) in the longest run of combining marks, linear otherwise.
bool normalize(std::string_view text, normal_form form, std::string& out, text_edits* edits = nullptr);

/// The end of the extended grapheme cluster (UAX 29) that begins at `at` in well-formed `text`.
std::size_t grapheme_end(std::string_view text, std::size_t at) noexcept;

} // namespace troupe::models
