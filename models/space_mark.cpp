// SPDX-License-Identifier: Apache-2.0
// U+2581, SentencePiece's sign for a space.
#include "models/space_mark.hpp"

#include "models/utf8.hpp"

#include <set>

namespace troupe::models {

std::string marks_to_spaces(std::string_view text) {
  std::string out;
  std::size_t at = 0;
  for (std::size_t found; (found = text.find(space_mark_text, at)) != std::string_view::npos;
       at = found + space_mark_text.size()) {
    out += text.substr(at, found - at);
    out += ' ';
  }
  return out += text.substr(at);
}

void add_space_boundaries(const vocabulary& v, std::vector<std::unique_ptr<const word_stage>>& stages) {
  std::set<char32_t> joined;
  for (const std::string& token : v.tokens) {
    char32_t before = space_mark;
    for (std::size_t at = 0; at < token.size();) {
      const utf8_step step = decode_utf8(token, at);
      if (step.code == space_mark && before != space_mark) joined.insert(before);
      before = step.code;
      at += step.length;
    }
  }
  stages.push_back(make_boundary_stage(space_mark, {joined.begin(), joined.end()}));
}

} // namespace troupe::models
