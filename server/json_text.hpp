// SPDX-License-Identifier: Apache-2.0
// Between our texts and Boost.JSON's, and the one wording of a field that breaks its rule.
#pragma once

#include "troupe/error.hpp"

#include <boost/json/string.hpp>

#include <string>
#include <string_view>

namespace troupe::server {

inline boost::json::string to_json(std::string_view text) {
  return boost::json::string(boost::json::string_view(text.data(), text.size()));
}
inline std::string_view view(boost::json::string_view text) noexcept {
  return {text.data(), text.size()};
}

/// bad_request: "`param` must be rule".
inline error must_be(std::string_view param, std::string_view rule) {
  return {
      errc::bad_request, "`" + std::string(param) + "` must be " + std::string(rule), std::string(param), 0};
}

} // namespace troupe::server
