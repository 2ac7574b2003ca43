// SPDX-License-Identifier: Apache-2.0
#include "server/status_table.hpp"

namespace troupe::server {
namespace {

constexpr std::string_view invalid = "invalid_request_error";
constexpr std::string_view overloaded = "overloaded_error";
constexpr std::string_view unavailable = "unavailable_error";
constexpr std::string_view broken = "server_error";
constexpr std::string_view timed_out = "timeout_error";

// In the order of the enum.
constexpr status_row status_rows[] = {
    {errc::bad_request, 400, invalid, false},
    {errc::bad_config, 500, broken, false},
    {errc::bad_file, 500, broken, false},
    {errc::bad_template, 400, invalid, false},
    {errc::unsupported, 400, invalid, false},
    {errc::not_found, 404, invalid, false},
    {errc::io, 500, broken, false},
    {errc::no_memory, 503, unavailable, true},
    {errc::context_length_exceeded, 400, invalid, false},
    {errc::kv_cache_full, 429, overloaded, true},
    {errc::queue_full, 429, overloaded, true},
    {errc::shed_low_priority, 429, overloaded, true},
    {errc::queue_timeout, 429, overloaded, true},
    {errc::rate_limited, 429, overloaded, true},
    {errc::tenant_busy, 429, overloaded, true},
    {errc::deadline_exceeded, 504, timed_out, false},
    {errc::slow_consumer, 408, timed_out, false},
    {errc::cancelled, 499, "cancelled_error", false},
    {errc::model_loading, 503, unavailable, true},
    {errc::draining, 503, unavailable, true},
    {errc::shutdown, 503, unavailable, true},
    {errc::executor_failed, 503, unavailable, true},
    {errc::poison_request, 500, broken, false},
    {errc::not_finite, 500, broken, false},
    {errc::internal, 500, broken, false},
};

} // namespace

std::span<const status_row> status_table() noexcept {
  return status_rows;
}

const status_row& status_of(errc code) noexcept {
  for (const status_row& row : status_rows)
    if (row.code == code) return row;
  return status_rows[std::size(status_rows) - 1];
}

protocol_words words_of_status(int http_status) noexcept {
  switch (http_status) {
  case 403:
    return {invalid, "forbidden"};
  case 404:
    return {invalid, "not_found"};
  case 405:
    return {invalid, "method_not_allowed"};
  case 408:
    return {timed_out, "request_timeout"};
  case 413:
    return {invalid, "body_too_large"};
  case 414:
    return {invalid, "uri_too_long"};
  case 415:
    return {invalid, "unsupported_media_type"};
  case 417:
    return {invalid, "expectation_failed"};
  case 426:
    return {invalid, "upgrade_required"};
  case 429:
    return {overloaded, "too_many_requests"};
  case 431:
    return {invalid, "header_too_large"};
  case 501:
    return {invalid, "not_implemented"};
  case 503:
    return {unavailable, "unavailable"};
  case 505:
    return {invalid, "http_version_not_supported"};
  default:
    return http_status < 500 ? protocol_words{invalid, "bad_request"}
                             : protocol_words{broken, "internal_error"};
  }
}

} // namespace troupe::server
