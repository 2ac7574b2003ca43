// SPDX-License-Identifier: Apache-2.0
// The one table from error codes to what each protocol says about them.
#pragma once

#include "runtime/base/error.hpp"

#include <cstdint>
#include <span>
#include <string_view>

namespace troupe::server {

/// How one error code looks from outside.
struct status_row {
  errc code = errc::internal;
  int http_status = 500;
  std::string_view type;  ///< `error.type` of an OpenAI error body
  bool retryable = false; ///< the same request may succeed later, unchanged
};

std::span<const status_row> status_table() noexcept;
const status_row& status_of(errc code) noexcept;

/// `error.type` and `error.code` for a status that a protocol codec decided, before there was a request.
struct protocol_words {
  std::string_view type;
  std::string_view code;
};
protocol_words words_of_status(int http_status) noexcept;

} // namespace troupe::server
