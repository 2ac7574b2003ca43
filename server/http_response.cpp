// SPDX-License-Identifier: Apache-2.0
#include "server/http_response.hpp"

#include <charconv>
#include <ctime>

namespace troupe::server {
namespace {

void append_field(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ");
  // A value that came from outside must not be able to start a new line.
  for (const char c : value)
    if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) out.push_back(c);
  out.append("\r\n");
}

std::string start(const http_response_context& context, int status) {
  std::string out = "HTTP/1.1 " + std::to_string(status) + ' ';
  out.append(http_reason(status)).append("\r\n");
  if (status < 200) return out;
  append_field(out, "Date", http_date(context.unix_seconds));
  if (!context.keep_alive)
    append_field(out, "Connection", "close");
  else if (context.minor_version == 0)
    append_field(out, "Connection", "keep-alive");
  return out;
}

} // namespace

std::string_view http_reason(int status) noexcept {
  switch (status) {
  case 100:
    return "Continue";
  case 101:
    return "Switching Protocols";
  case 200:
    return "OK";
  case 204:
    return "No Content";
  case 304:
    return "Not Modified";
  case 400:
    return "Bad Request";
  case 403:
    return "Forbidden";
  case 404:
    return "Not Found";
  case 405:
    return "Method Not Allowed";
  case 408:
    return "Request Timeout";
  case 409:
    return "Conflict";
  case 413:
    return "Content Too Large";
  case 414:
    return "URI Too Long";
  case 415:
    return "Unsupported Media Type";
  case 417:
    return "Expectation Failed";
  case 426:
    return "Upgrade Required";
  case 429:
    return "Too Many Requests";
  case 431:
    return "Request Header Fields Too Large";
  case 499:
    return "Client Closed Request";
  case 500:
    return "Internal Server Error";
  case 501:
    return "Not Implemented";
  case 503:
    return "Service Unavailable";
  case 504:
    return "Gateway Timeout";
  case 505:
    return "HTTP Version Not Supported";
  default:
    return "Unknown";
  }
}

std::string http_date(std::int64_t unix_seconds) {
  constexpr const char* days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                    "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm t{};
  ::gmtime_r(&seconds, &t);
  const auto two = [](int n) {
    return std::string{static_cast<char>('0' + n / 10), static_cast<char>('0' + n % 10)};
  };
  return std::string(days[t.tm_wday]) + ", " + two(t.tm_mday) + ' ' + months[t.tm_mon] + ' ' +
         std::to_string(1900 + t.tm_year) + ' ' + two(t.tm_hour) + ':' + two(t.tm_min) + ':' + two(t.tm_sec) +
         " GMT";
}

std::string http_response(
    const http_response_context& context, int status, std::string_view content_type, std::string_view body,
    const std::vector<http_header>& extra) {
  std::string out = start(context, status);
  const bool may_have_body = status >= 200 && status != 204 && status != 304;
  if (may_have_body) {
    if (!content_type.empty()) append_field(out, "Content-Type", content_type);
    append_field(out, "Content-Length", std::to_string(body.size()));
  }
  for (const http_header& h : extra) append_field(out, h.name, h.value);
  out.append("\r\n");
  if (may_have_body && !context.head_only) out.append(body);
  return out;
}

std::string http_stream_head(const http_response_context& context, const std::vector<http_header>& extra) {
  std::string out = start(context, 200);
  append_field(out, "Content-Type", "text/event-stream");
  append_field(out, "Cache-Control", "no-cache");
  append_field(out, "X-Accel-Buffering", "no");
  for (const http_header& h : extra) append_field(out, h.name, h.value);
  if (!stream_ends_by_closing(context)) append_field(out, "Transfer-Encoding", "chunked");
  out.append("\r\n");
  return out;
}

bool stream_ends_by_closing(const http_response_context& context) noexcept {
  return context.minor_version == 0;
}

void append_stream_piece(std::string& out, const http_response_context& context, std::string_view piece) {
  if (stream_ends_by_closing(context)) {
    out.append(piece);
    return;
  }
  char size[16];
  const auto [end, ec] = std::to_chars(size, size + sizeof size, piece.size(), 16);
  (void)ec; // 16 hex digits hold any size_t
  out.append(size, end).append("\r\n").append(piece).append("\r\n");
}

void append_stream_end(std::string& out, const http_response_context& context) {
  if (!stream_ends_by_closing(context)) out.append("0\r\n\r\n");
}

} // namespace troupe::server
