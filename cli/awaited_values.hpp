// SPDX-License-Identifier: Apache-2.0
// The completion token of the commands: an awaited operation gives its error code as a value.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace troupe::cli {

inline constexpr auto values = boost::asio::as_tuple(boost::asio::use_awaitable);

} // namespace troupe::cli
