// SPDX-License-Identifier: Apache-2.0
// Strict incremental HTTP/1.1 request parser: bytes in, whole requests out, no sockets and no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::server {

/// Bounds of one request. Everything is counted while it is read, never after.
struct http_limits {
  std::size_t uri_bytes = 2048;
  std::size_t header_bytes = 8192;      ///< all field lines of a request together, with their line ends
  std::size_t header_fields = 64;       ///< number of field lines
  std::size_t body_bytes = 1U << 20;    ///< after removing the chunked framing
  std::size_t chunk_header_bytes = 256; ///< size and extensions of one chunk
  std::size_t trailer_bytes = 2048;     ///< trailers are read, checked and dropped
};

struct http_field {
  std::string name;  ///< lower case
  std::string value; ///< without surrounding blanks
};

/// One request whose framing has been proven unambiguous.
struct http_request {
  std::string method; ///< as sent: methods are case-sensitive
  std::string path;   ///< before the `?`, never decoded: routes match it byte for byte
  std::string query;  ///< after the `?`
  std::string host;   ///< the Host value in lower case, or empty (HTTP/1.0 only)
  int minor_version = 1;
  bool keep_alive = true;
  std::vector<http_field> fields;
  std::string body;

  /// The first field of that (lower-case) name, or null.
  const std::string* field(std::string_view name) const noexcept;
  /// How many fields have that (lower-case) name.
  std::size_t count(std::string_view name) const noexcept;
  /// Whether the comma-separated list of all fields `name` holds `token` (lower case; compared without case).
  bool has_token(std::string_view name, std::string_view token) const noexcept;
  /// Memory that it holds, head and body.
  std::size_t bytes() const noexcept;
};

/// Why a connection cannot go on. It is answered once, then the connection closes.
struct http_failure {
  int status = 400;
  std::string message;
};

enum class http_event : std::uint8_t {
  need_more,      ///< all bytes consumed, the request is not complete
  wants_continue, ///< head accepted, the client waits for `100 Continue`; feed on after sending it
  complete, ///< `take()` has the request; further bytes belong to the next one (or to the upgraded protocol)
  failed,   ///< `failure()` tells why; nothing after this point may be interpreted
};

enum class http_phase : std::uint8_t { idle, head, body };

/// Parses one request after another from a byte stream, any split of the bytes giving the same result.
/// It refuses instead of guessing: bare CR or LF, obs-fold, repeated or signed Content-Length, Content-Length
/// beside Transfer-Encoding, any transfer coding but `chunked`, chunked in HTTP/1.0, a missing or second
/// Host. Thread: one owner. Source: RFC 9112, with every MAY that allows leniency declined.
class http_parser {
 public:
  explicit http_parser(const http_limits& limits = {}) : limits_(limits) {}

  struct progress {
    std::size_t consumed = 0;
    http_event event = http_event::need_more;
  };

  /// Consumes bytes up to the end of the current request. Sticky once failed.
  progress feed(std::string_view bytes);

  /// The request just completed; the parser is ready for the next one.
  http_request take();

  const http_failure& failure() const noexcept { return failure_; }

  /// Of the request being read.
  std::size_t buffered_bytes() const noexcept {
    return line_.size() + head_bytes_ + request_.body.capacity();
  }

  /// What the connection is waiting for; decides which timeout applies.
  http_phase phase() const noexcept;

 private:
  enum class state : std::uint8_t {
    start,
    request_line,
    field_line,
    fixed_body,
    chunk_header,
    chunk_data,
    chunk_end,
    trailer_line,
    complete,
    failed
  };
  enum class line : std::uint8_t { partial, whole, bad };

  line read_line(std::string_view bytes, std::size_t& at, std::size_t limit, int status_over);
  bool check_method_prefix(char c);
  bool on_request_line();
  bool on_target(std::string_view target);
  bool on_absolute_target(std::string_view target);
  bool on_field_line();
  bool on_trailer_line();
  bool on_head();
  bool check_host();
  bool check_framing();
  bool check_expectations();
  bool on_chunk_header();
  bool fail(int status, std::string message);

  http_limits limits_;
  state state_ = state::start;
  std::string line_;
  bool line_has_cr_ = false;
  bool skipped_blank_ = false;
  std::size_t head_bytes_ = 0;
  std::size_t trailer_bytes_ = 0;
  std::uint64_t body_left_ = 0;
  std::uint8_t chunk_end_seen_ = 0;
  bool wants_continue_ = false;
  std::string authority_; // of an absolute-form target
  http_request request_;
  http_failure failure_;
};

/// Whether `c` may stand in a token (RFC 9110 5.6.2).
bool is_token_char(char c) noexcept;

/// ASCII lower case.
std::string to_lower(std::string_view text);

} // namespace troupe::server
