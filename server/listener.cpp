// SPDX-License-Identifier: Apache-2.0
#include "server/listener.hpp"

#include "runtime/base/log.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <exception>
#include <optional>

namespace troupe::server {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr auto pause_without_descriptors = std::chrono::milliseconds(100);
constexpr auto log_interval = std::chrono::seconds(10);

result<tcp::endpoint>
resolve(const asio::any_io_executor& executor, const std::string& host, std::uint16_t port) {
  error_code ec;
  const asio::ip::address literal = asio::ip::make_address(host, ec);
  if (!ec) return tcp::endpoint(literal, port);
  tcp::resolver resolver(executor);
  // Not passive: with that flag an empty name would stand for every network.
  const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::flags(), ec);
  if (ec || found.empty())
    return error{
        errc::bad_config,
        "cannot listen on `" + host + "`: no such address; use an IP address of this machine", "server.host",
        0};
  // Where a name stands for both families, the older one is what clients try in the end.
  for (const auto& entry : found)
    if (entry.endpoint().address().is_v4()) return entry.endpoint();
  return found.begin()->endpoint();
}

std::string shown(const tcp::endpoint& at) {
  const std::string address = at.address().to_string();
  return (at.address().is_v6() ? "[" + address + "]" : address) + ":" + std::to_string(at.port());
}

void report(std::exception_ptr failure) {
  if (!failure) return;
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& e) {
    log().error("a listener ended with an exception: {}", e.what());
  }
}

} // namespace

listener::listener(asio::any_io_executor executor, tcp::acceptor acceptor) :
    acceptor_(std::move(acceptor)), pause_(std::move(executor)) {
  error_code ignored;
  endpoint_ = acceptor_.local_endpoint(ignored);
}

result<std::shared_ptr<listener>> listener::bind(
    asio::any_io_executor executor, const std::string& host, std::uint16_t port, std::string_view flag) {
  const auto at = resolve(executor, host, port);
  if (!at) return at.error();
  tcp::acceptor acceptor(executor);
  error_code ec;
  acceptor.open(at->protocol(), ec);
  if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor.bind(*at, ec);
  if (!ec) acceptor.listen(asio::socket_base::max_listen_connections, ec);
  if (ec) {
    std::string message = "cannot listen on " + shown(*at) + ": " + ec.message();
    if (ec == asio::error::address_in_use || ec == asio::error::access_denied)
      message.append("; choose another port with ").append(flag);
    return error{errc::io, std::move(message), std::string(flag), 0};
  }
  return std::make_shared<listener>(std::move(executor), std::move(acceptor));
}

void listener::start(accepted on_socket) {
  on_socket_ = std::move(on_socket);
  asio::co_spawn(acceptor_.get_executor(), accept_loop(shared_from_this()), report);
}

// One connection that cannot be served (no memory) does not end the listener.
void listener::hand_over(tcp::socket socket) {
  try {
    on_socket_(std::move(socket));
  } catch (const std::exception& e) {
    log().error("a connection is dropped after an exception: {}", e.what());
  }
}

void listener::stop() {
  stopped_ = true;
  error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
}

asio::awaitable<void> listener::accept_loop([[maybe_unused]] std::shared_ptr<listener> self) {
  const auto token = asio::as_tuple(asio::use_awaitable);
  std::optional<std::chrono::steady_clock::time_point> logged;
  while (!stopped_) {
    auto [ec, socket] = co_await acceptor_.async_accept(token);
    if (stopped_) break;
    if (!ec) {
      hand_over(std::move(socket));
      continue;
    }
    // A connection that was gone before it was taken is nobody's fault.
    if (ec == asio::error::connection_aborted || ec == asio::error::interrupted) continue;
    if (const auto now = std::chrono::steady_clock::now(); !logged || now - *logged >= log_interval) {
      logged = now;
      log().warn("cannot accept on {}: {}; trying again", shown(endpoint_), ec.message());
    }
    pause_.expires_after(pause_without_descriptors);
    co_await pause_.async_wait(token);
  }
  on_socket_ = nullptr;
}

} // namespace troupe::server
