// SPDX-License-Identifier: Apache-2.0
// Values as text: str(), repr(), JSON, %-formatting, dates.
#pragma once

#include "models/jinja/evaluation.hpp"

#include <optional>

namespace troupe::models::jinja {

inline constexpr std::size_t max_width = 1000; ///< of a formatted field; templates pad columns, not pages

/// Appends str(v).
void write_text(evaluation& e, text_builder& out, const value& v);
/// str(v); a text is itself.
const text_object& to_text(evaluation& e, const value& v);
/// Appends repr(v).
void write_repr(evaluation& e, text_builder& out, const value& v);
/// repr() of a float: the shortest digits that read back the same.
std::string spell_real(double d);
/// repr() of a str.
std::string quote(std::string_view text);

struct json_style {
  std::optional<std::string> indent; ///< one level's white space; absent: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ensure_ascii = false;
  bool sort_keys = false;
};
/// Appends json.dumps(v). Throws for what JSON cannot hold.
void write_json(evaluation& e, text_builder& out, const value& v, const json_style& style);

/// Python's `pattern % operand`.
value format_percent(evaluation& e, const text_object& pattern, const value& operand);

/// str.format with plain fields: {}, {0}, {name}, each with !s or !r and a specification (`write_formatted`).
value format_braces(evaluation& e, const text_object& pattern, const arguments& a);

/// strftime in the C locale.
std::string format_time(evaluation& e, const std::string& format, const std::tm& time);

} // namespace troupe::models::jinja
