// SPDX-License-Identifier: Apache-2.0
#include "cli/client_stream.hpp"

#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/write.hpp>

#include <utility>

// The one place of Asio's own TLS code, which the project compiles apart.
#include <boost/asio/ssl/impl/src.hpp>

namespace troupe::cli {

namespace asio = boost::asio;
namespace ssl = asio::ssl;
using boost::system::error_code;

ssl::context client_tls(bool unchecked) {
  ssl::context context(ssl::context::tls_client);
  context.set_options(ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1);
  if (!unchecked) context.set_default_verify_paths();
  context.set_verify_mode(unchecked ? ssl::verify_none : ssl::verify_peer);
  return context;
}

client_stream::client_stream(const asio::any_io_executor& executor, ssl::context* tls) :
    stream_(
        tls == nullptr ? decltype(stream_)(std::in_place_type<plain>, executor)
                       : decltype(stream_)(std::in_place_type<secure>, executor, *tls)) {}

client_stream::plain& client_stream::socket() noexcept {
  secure* const by_tls = std::get_if<secure>(&stream_);
  return by_tls != nullptr ? by_tls->next_layer() : *std::get_if<plain>(&stream_);
}

asio::awaitable<error_code> client_stream::connect(asio::ip::tcp::endpoint to, std::string host) {
  const auto [connected] = co_await socket().async_connect(to, values);
  if (connected) co_return connected;
  error_code code;
  socket().set_option(asio::ip::tcp::no_delay(true), code);
  secure* const by_tls = std::get_if<secure>(&stream_);
  if (by_tls == nullptr) co_return error_code{};
  // An address has no place among the names of SNI.
  error_code named;
  (void)asio::ip::make_address(host, named);
  if (named && SSL_set_tlsext_host_name(by_tls->native_handle(), host.c_str()) != 1)
    co_return make_error_code(boost::system::errc::invalid_argument);
  by_tls->set_verify_callback(ssl::host_name_verification(host), code);
  if (code) co_return code;
  const auto [shaken] = co_await by_tls->async_handshake(ssl::stream_base::client, values);
  co_return shaken;
}

asio::awaitable<std::tuple<error_code, std::size_t>> client_stream::write(asio::const_buffer bytes) {
  if (secure* const by_tls = std::get_if<secure>(&stream_))
    co_return co_await asio::async_write(*by_tls, bytes, values);
  co_return co_await asio::async_write(socket(), bytes, values);
}

asio::awaitable<std::tuple<error_code, std::size_t>> client_stream::read_some(asio::mutable_buffer space) {
  if (secure* const by_tls = std::get_if<secure>(&stream_))
    co_return co_await by_tls->async_read_some(space, values);
  co_return co_await socket().async_read_some(space, values);
}

void client_stream::close() noexcept {
  error_code ignored;
  socket().close(ignored);
}

} // namespace troupe::cli
