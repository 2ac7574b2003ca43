// SPDX-License-Identifier: Apache-2.0
// Writes HTTP/1.1 responses: whole bodies, and streams of server-sent events.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::server {

struct http_header {
  std::string_view name;
  std::string value;
};

/// What every response of one request shares.
struct http_response_context {
  bool head_only = false;        ///< the request was HEAD: the length is told, the body is not sent
  bool keep_alive = true;        ///< false adds `Connection: close`
  int minor_version = 1;         ///< of the request; a stream to HTTP/1.0 ends by closing, without chunks
  std::int64_t unix_seconds = 0; ///< for the Date field
};

std::string_view http_reason(int status) noexcept;

/// `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 5.6.7).
std::string http_date(std::int64_t unix_seconds);

/// A complete response. 1xx, 204 and 304 carry neither body nor length.
std::string http_response(
    const http_response_context& context, int status, std::string_view content_type, std::string_view body,
    const std::vector<http_header>& extra = {});

/// The head of a `text/event-stream` response. The caller closes the connection after the stream when
/// `stream_ends_by_closing(context)`.
std::string
http_stream_head(const http_response_context& context, const std::vector<http_header>& extra = {});
bool stream_ends_by_closing(const http_response_context& context) noexcept;

/// Appends one piece of a stream (never empty) in the framing that `context` asks for.
void append_stream_piece(std::string& out, const http_response_context& context, std::string_view piece);
/// Appends the end of the stream, nothing for HTTP/1.0.
void append_stream_end(std::string& out, const http_response_context& context);

} // namespace troupe::server
