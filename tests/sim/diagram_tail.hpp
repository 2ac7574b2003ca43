// SPDX-License-Identifier: Apache-2.0
// Cuts a sequence diagram to what a failing run prints unasked.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::sim {

/// Messages of the diagram that a failing seed prints at once; a replay with --diagram prints all.
inline constexpr std::size_t diagram_tail_messages = 300;

/// The diagram's two lines of head (its request, the names over the columns) and its last `messages` lines.
inline std::string diagram_tail(std::string_view diagram, std::size_t messages) {
  constexpr std::size_t head_lines = 2;
  const auto lines = static_cast<std::size_t>(std::count(diagram.begin(), diagram.end(), '\n'));
  if (lines <= head_lines + messages) return std::string(diagram);
  const auto after_lines = [&](std::size_t count) {
    std::size_t at = 0;
    while (count-- > 0) at = diagram.find('\n', at) + 1;
    return at;
  };
  return std::string(diagram.substr(0, after_lines(head_lines))) + "(" +
         std::to_string(lines - head_lines - messages) + " earlier lines left out)\n" +
         std::string(diagram.substr(after_lines(lines - messages)));
}

} // namespace troupe::sim
