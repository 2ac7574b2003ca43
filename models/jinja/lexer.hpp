// SPDX-License-Identifier: Apache-2.0
// Template source to tokens, with Jinja's rules for white space around tags.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::models::jinja {

enum class token_kind : std::uint8_t {
  data, ///< text between tags, already trimmed
  block_begin,
  block_end,
  variable_begin,
  variable_end,
  name,
  string, ///< text without quotes, escapes resolved
  integer,
  real,
  op, ///< one of + - * / // % ** ~ [ ] ( ) { } == != > >= < <= = . : | , ;
  end,
};

struct token {
  token_kind kind = token_kind::end;
  std::uint32_t line = 1;
  std::string text;
  std::int64_t integer = 0;
  double real = 0;
};

/// A template's text breaks the grammar.
struct syntax_error {
  std::uint32_t line;
  std::string message;
};

/// Settings are those of chat templates: trim_blocks and lstrip_blocks on, one newline at the end dropped,
/// \r\n and \r read as \n. `source` is well-formed UTF-8. The last token is `end`. Throws syntax_error
/// (caught in `compile`).
std::vector<token> tokenize(std::string_view source);

} // namespace troupe::models::jinja
