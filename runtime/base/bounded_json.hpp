// SPDX-License-Identifier: Apache-2.0
// JSON from strangers: bounded depth, valid UTF-8, finite numbers, and repeated keys noticed instead of
// swallowed.
#pragma once

#include "runtime/base/error.hpp"

#include <boost/json/value.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

inline constexpr std::size_t json_depth_limit = 64;

struct bounded_json {
  boost::json::value value;
  /// Paths ("messages.role", array positions left out) of keys that stand twice in one object. RFC 8259
  /// leaves their meaning open, so whoever knows the schema refuses them.
  std::vector<std::string> repeated_keys;
  /// Path of the first number that is written as an integer and fits no 64 bits: its value is the nearest
  /// double.
  std::optional<std::string> wide_integer;
};

/// Parses one RFC 8259 text with no byte order mark, no invalid UTF-8 and no lone surrogate. The caller has
/// bounded its size. Time O(n log n), memory a small multiple of the text. Errors: bad_request, with the byte
/// offset; nesting deeper than `depth` and a number beyond the range of a double are among them.
result<bounded_json> parse_bounded_json(std::string_view text, std::size_t depth = json_depth_limit);

} // namespace troupe
