// SPDX-License-Identifier: Apache-2.0
// The public engine over the tiny model's file.
#pragma once

#include "troupe/engine.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/test/unit_test.hpp>

#include <optional>
#include <utility>

namespace troupe::test {

inline engine_options tiny_model() {
  engine_options o;
  o.model_path = TROUPE_TEST_DATA "/tiny/tiny_f16.gguf";
  o.threads = 1;
  o.kv_memory_bytes = 4U << 20;
  return o;
}

/// Starts `one`, whose executor is `io`, and runs until it said how that went.
inline result<void> start_of(engine& one, boost::asio::io_context& io) {
  std::optional<result<void>> started;
  one.async_start([&](result<void> r) { started = std::move(r); });
  io.run(); // nothing else keeps it running
  io.restart();
  BOOST_REQUIRE(started.has_value());
  return *std::move(started);
}

} // namespace troupe::test
