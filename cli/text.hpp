// SPDX-License-Identifier: Apache-2.0
// Small texts for people: one-line messages, facts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::cli {

/// Line ends, control characters and bytes that are no UTF-8 shown as escapes.
std::string escaped(std::string_view text);

/// The same without line ends at the end, so that a message stays one line whatever a file put in it.
std::string one_line(std::string_view text);

/// "3 bytes of the prompt have no token ..., the first at offset 17": what the model will not see.
std::string lost_note(std::string_view what, std::uint64_t bytes, std::uint64_t first);

/// A line of a report on standard output: the name in a column of its own, then the text.
void print_fact(const char* name, const std::string& text);

/// Whether standard output takes nothing more: a write has failed, or the reader of a pipe is gone.
bool output_lost() noexcept;

/// Throws `failure` when the output is lost, so that nothing is computed for nobody.
void require_output();

} // namespace troupe::cli
