// SPDX-License-Identifier: Apache-2.0
// Small texts for people: one-line messages, sizes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::cli {

/// Line ends and control characters shown as escapes, so that a message stays one line whatever a file put in
/// it.
std::string one_line(std::string_view text);

/// "93.8 MiB", "1023 B": binary units, one digit after the point.
std::string human_bytes(std::uint64_t bytes);

/// A line of a report on standard output: the name in a column of its own, then the text.
void print_fact(const char* name, const std::string& text);

} // namespace troupe::cli
