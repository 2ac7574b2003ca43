// SPDX-License-Identifier: Apache-2.0
// Oniguruma's patterns, which tokenizer.json files hold, in PCRE2's spelling.
#pragma once

#include "models/regex.hpp"

#include <string>
#include <string_view>

namespace troupe::models {

/// `pattern` (Oniguruma, Ruby syntax, Unicode) as PCRE2 with UTF and UCP means the same: \s, \w and \b by the
/// Unicode properties, \h for a hexadecimal digit, (?m) for "dot matches newline", {,n}, scripts without
/// their extensions, nested classes, && and POSIX brackets in a class, {n}+ as a repetition of a repetition.
/// Errors: unsupported naming what has no equal (&& in an inner class, {n,m}+ behind a group, \y, calls,
/// absent operators and the like).
result<std::string> translate_oniguruma(std::string_view pattern);

/// Translates and compiles. Errors: those of both.
result<regex> compile_oniguruma(std::string_view pattern);

/// `text` as a pattern that matches it alone.
std::string quote_pattern(std::string_view text);

} // namespace troupe::models
