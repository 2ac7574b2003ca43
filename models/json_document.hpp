// SPDX-License-Identifier: Apache-2.0
// JSON files of a model folder: bounded depth, no key twice.
#pragma once

#include "runtime/base/error.hpp"

#include <boost/json/object.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::models {

inline constexpr std::size_t max_config_bytes = std::size_t{1} << 24; ///< of config.json and its like

/// Parses one RFC 8259 text whose outermost value is an object. A key that stands twice in one object is an
/// error: its meaning is open. Time O(n log n), memory a small multiple of the text, whose size the caller
/// has bounded. `name` is the file's, for messages. Errors: bad_file with the byte or the key at fault.
result<boost::json::object> parse_json_object(std::string_view text, const std::string& name);

/// The same on a whole file. Errors: not_found, io; bad_file, also for more than `longest` bytes.
result<boost::json::object> read_json_object(const std::string& path, std::size_t longest = max_config_bytes);

/// Text of a file, cut and fit for a one-line message.
std::string for_message(std::string_view text, std::size_t longest = 64);

} // namespace troupe::models
