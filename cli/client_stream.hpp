// SPDX-License-Identifier: Apache-2.0
// A client's connection, in the clear or by TLS.
#pragma once

#include "cli/awaited_values.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>

#include <cstddef>
#include <string>
#include <tuple>
#include <variant>

namespace troupe::cli {

/// The client's half of TLS: 1.2 or later, the server's certificate checked against the system's authorities
/// unless `unchecked`. Throws boost::system::system_error.
boost::asio::ssl::context client_tls(bool unchecked);

/// Used by the one thread that runs its executor. `tls` outlives it; null: in the clear.
class client_stream {
 public:
  client_stream(const boost::asio::any_io_executor& executor, boost::asio::ssl::context* tls);

  /// Connects, and by TLS shakes hands with `host`, whose name the certificate must have.
  boost::asio::awaitable<boost::system::error_code>
  connect(boost::asio::ip::tcp::endpoint to, std::string host);
  boost::asio::awaitable<std::tuple<boost::system::error_code, std::size_t>>
  write(boost::asio::const_buffer bytes);
  /// Some bytes, at least one unless there is an error; `eof` when the server has closed.
  boost::asio::awaitable<std::tuple<boost::system::error_code, std::size_t>>
  read_some(boost::asio::mutable_buffer space);
  /// Ends what is awaited on it with operation_aborted.
  void close() noexcept;

 private:
  using plain = boost::asio::ip::tcp::socket;
  using secure = boost::asio::ssl::stream<plain>;
  plain& socket() noexcept;

  std::variant<plain, secure> stream_;
};

} // namespace troupe::cli
