// SPDX-License-Identifier: Apache-2.0
// Where the parts of a rewritten text come from.
#pragma once

#include "models/text_span.hpp"

#include <vector>

namespace troupe::models {

/// A part of a text and what it has become; either may be empty.
struct text_edit {
  text_span from; ///< of the text before
  text_span to;   ///< of the text behind
};

/// What one rewriting has done, in order, disjoint; between edits the text is as it was.
using text_edits = std::vector<text_edit>;

/// Moves `spans` (sorted, disjoint) of the text before to what their bytes have become: an edit that touches
/// a span belongs to it wholly, and so does what was put between its bytes. A span whose bytes are gone stays
/// as an empty one. Time: O(spans x log edits).
void follow_edits(const text_edits& edits, std::vector<text_span>& spans);

} // namespace troupe::models
