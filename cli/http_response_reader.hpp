// SPDX-License-Identifier: Apache-2.0
// The client side of HTTP/1.1 responses and server-sent events, without sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::cli {

/// Reads one response: bytes in, status and body out. Understands Content-Length, chunked, and bodies that
/// end with the connection. Thread: one owner.
class http_response_reader {
 public:
  /// Appends the body bytes found to `body`. False once the response is malformed; sticky.
  bool feed(std::string_view bytes, std::string& body);
  /// The connection ended. True if the response was complete by then.
  bool end_of_stream() noexcept;

  int status() const noexcept { return status_; } ///< 0 until the status line was read
  bool complete() const noexcept { return stage_ == stage::complete; }
  const std::string& retry_after() const noexcept { return retry_after_; }

 private:
  enum class stage : std::uint8_t {
    head,
    sized,
    to_end,
    chunk_size,
    chunk_data,
    chunk_end,
    trailers,
    complete,
    broken
  };

  bool take_line(std::string_view& bytes, std::string& line);
  bool status_line(std::string_view line);
  bool header_line(std::string_view line);
  bool chunk_line(std::string_view line);
  bool broken() noexcept;

  stage stage_ = stage::head;
  std::string line_; ///< the beginning of an unfinished line
  bool first_line_ = true;
  bool chunked_ = false, sized_ = false;
  std::uint64_t left_ = 0; ///< bytes of the body or of the chunk
  std::size_t head_bytes_ = 0;
  int status_ = 0;
  std::string retry_after_;
};

/// Splits an event stream into the data of its events. Thread: one owner.
class event_splitter {
 public:
  /// Appends the data of every event that `bytes` completes.
  void feed(std::string_view bytes, std::vector<std::string>& events);

 private:
  std::string line_, data_;
  bool has_data_ = false;
};

} // namespace troupe::cli
