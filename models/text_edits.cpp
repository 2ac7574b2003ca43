// SPDX-License-Identifier: Apache-2.0
// Spans of a text through its rewriting.
#include "models/text_edits.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace troupe::models {
namespace {

/// `at` behind the edits before `next`.
std::size_t shifted(const text_edits& edits, text_edits::const_iterator next, std::size_t at) noexcept {
  if (next == edits.begin()) return at;
  const text_edit& last = *std::prev(next);
  return at - last.from.end + last.to.end;
}

std::size_t new_begin(const text_edits& edits, std::size_t at) noexcept {
  const auto next = std::upper_bound(
      edits.begin(), edits.end(), at, [](std::size_t a, const text_edit& e) { return a < e.from.end; });
  return next != edits.end() && next->from.begin <= at ? next->to.begin : shifted(edits, next, at);
}

std::size_t new_end(const text_edits& edits, std::size_t at) noexcept {
  const auto next = std::lower_bound(
      edits.begin(), edits.end(), at, [](const text_edit& e, std::size_t a) { return e.from.begin < a; });
  if (next != edits.begin() && std::prev(next)->from.end >= at) return std::prev(next)->to.end;
  return shifted(edits, next, at);
}

} // namespace

void follow_edits(const text_edits& edits, std::vector<text_span>& spans) {
  if (edits.empty()) return;
  std::size_t kept = 0;
  for (const text_span& span : spans) {
    std::size_t begin = new_begin(edits, span.begin), end = new_end(edits, span.end);
    if (begin > end) std::swap(begin, end); // bytes that were gone, and something was put in their place
    if (kept > 0 && begin < spans[kept - 1].end) { // one edit took from both
      spans[kept - 1].end = std::max(spans[kept - 1].end, end);
      continue;
    }
    spans[kept++] = {begin, end};
  }
  spans.resize(kept);
}

} // namespace troupe::models
