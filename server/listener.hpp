// SPDX-License-Identifier: Apache-2.0
// One listening socket: binds, and accepts for as long as it lives, whatever accept() says.
#pragma once

#include "runtime/base/error.hpp"
#include "runtime/base/unique_function.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace troupe::server {

/// Thread: its executor.
class listener : public std::enable_shared_from_this<listener> {
 public:
  using accepted = unique_function<void(boost::asio::ip::tcp::socket)>;

  /// `flag` is what the error message tells the user to change ("--port").
  static result<std::shared_ptr<listener>> bind(
      boost::asio::any_io_executor executor, const std::string& host, std::uint16_t port,
      std::string_view flag);

  listener(boost::asio::any_io_executor executor, boost::asio::ip::tcp::acceptor acceptor);

  /// Hands every connection to `on_socket` until `stop`. When descriptors or memory run out it waits a little
  /// instead of spinning or giving up: connections that end make room.
  void start(accepted on_socket);
  void stop();

  const boost::asio::ip::tcp::endpoint& endpoint() const noexcept { return endpoint_; }

 private:
  boost::asio::awaitable<void> accept_loop(std::shared_ptr<listener> self);
  void hand_over(boost::asio::ip::tcp::socket socket);

  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::ip::tcp::endpoint endpoint_;
  boost::asio::steady_timer pause_;
  accepted on_socket_;
  bool stopped_ = false;
};

} // namespace troupe::server
