// SPDX-License-Identifier: Apache-2.0
// What Python's str methods know about characters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::models::jinja {

/// str.isspace for one code point: what strip() and split() remove.
bool is_space(char32_t code) noexcept;

/// A line boundary of str.splitlines.
bool is_line_break(char32_t code) noexcept;

/// Shown as itself by repr().
bool is_printable(char32_t code) noexcept;

/// \w of Python's re: letters, numbers, underscore.
bool is_word(char32_t code) noexcept;

bool is_upper(char32_t code) noexcept;
bool is_lower(char32_t code) noexcept;
bool is_cased(char32_t code) noexcept;
bool is_alphabetic(char32_t code) noexcept;
bool is_titled(char32_t code) noexcept;     ///< Lt
bool is_numeric(char32_t code) noexcept;    ///< has a numeric value
bool is_digit_like(char32_t code) noexcept; ///< Nd, and what is written like a digit: raised, circled, ...
bool is_decimal(char32_t code) noexcept;    ///< Nd
/// What a decimal digit of any script stands for, 0 to 9; -1 for other characters.
int decimal_value(char32_t code) noexcept;

// Full case mappings of well-formed UTF-8 (SpecialCasing without language rules; final sigma included).
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
/// str.title(): the first cased character of each run in title case, the rest in lower case.
std::string to_title(std::string_view text);
/// str.capitalize(): the first character in title case, the rest in lower case.
std::string to_capitalized(std::string_view text);
/// str.casefold(): full case folding.
std::string fold_case(std::string_view text);
/// str.swapcase().
std::string swap_case(std::string_view text);

} // namespace troupe::models::jinja
