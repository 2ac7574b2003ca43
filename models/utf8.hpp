// SPDX-License-Identifier: Apache-2.0
// UTF-8 decoding and encoding, one code point at a time, for text whose validity is not yet known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::models {

inline constexpr char32_t replacement_character = 0xFFFD;

/// What stands at one position of a byte string.
enum class utf8_state : std::uint8_t {
  valid,      ///< a whole, well-formed code point
  truncated,  ///< a well-formed beginning that the end of the text cuts off
  ill_formed, ///< bytes that no continuation makes valid
};

struct utf8_step {
  char32_t code = replacement_character;
  std::uint8_t length =
      0; ///< bytes to step over, 1-4; for bad input the maximal subpart (Unicode 3.9, table 3-8)
  utf8_state state = utf8_state::ill_formed;
};

/// Decodes the code point at `text[at]`; `at` < text.size(). Overlong forms, surrogates and values above
/// U+10FFFF are ill-formed.
utf8_step decode_utf8(std::string_view text, std::size_t at) noexcept;

/// Appends the UTF-8 form of `code`; a surrogate or a value above U+10FFFF becomes U+FFFD.
void append_utf8(std::string& out, char32_t code);

/// The number of leading bytes of `text` that are well-formed UTF-8.
std::size_t valid_utf8_prefix(std::string_view text) noexcept;

inline bool is_valid_utf8(std::string_view text) noexcept {
  return valid_utf8_prefix(text) == text.size();
}

/// Code points of well-formed `text`.
std::size_t count_code_points(std::string_view text) noexcept;

} // namespace troupe::models
