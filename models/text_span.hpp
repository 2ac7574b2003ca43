// SPDX-License-Identifier: Apache-2.0
// A range of bytes.
#pragma once

#include <cstddef>

namespace troupe::models {

/// Half-open byte range of a text.
struct text_span {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool operator==(const text_span&) const = default;
};

} // namespace troupe::models
