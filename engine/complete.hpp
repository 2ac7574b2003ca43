// SPDX-License-Identifier: Apache-2.0
// Runs a completion handler where it wants to be run, never inside the initiating call.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>

#include <tuple>
#include <utility>

namespace troupe::detail {

/// An executor that counts as outstanding work while it lives, so that the caller's run() does not return
/// under an operation in flight.
inline boost::asio::any_io_executor tracked(const boost::asio::any_io_executor& ex) {
  return boost::asio::prefer(ex, boost::asio::execution::outstanding_work.tracked);
}

/// A handler with its arguments, ready to run.
template<typename Handler, typename... Args>
struct bound_handler {
  Handler handler;
  std::tuple<Args...> values;
  void operator()() { std::apply(std::move(handler), std::move(values)); }
};

/// Runs handler(args...) on the handler's associated executor, `fallback` if it has none; by way of a post to
/// `fallback`, because the executor of a type-erased handler can only dispatch in Boost 1.81.
template<typename Handler, typename... Args>
void complete(const boost::asio::any_io_executor& fallback, Handler handler, Args... args) {
  bound_handler<Handler, Args...> bound{std::move(handler), std::tuple<Args...>(std::move(args)...)};
  boost::asio::post(fallback, [fallback, bound = std::move(bound)]() mutable {
    auto ex = boost::asio::get_associated_executor(bound.handler, fallback);
    boost::asio::dispatch(ex, std::move(bound));
  });
}

} // namespace troupe::detail
