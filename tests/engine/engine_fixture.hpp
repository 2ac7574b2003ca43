// SPDX-License-Identifier: Apache-2.0
// The engine over its real actors, with a fake model and the test's own executor.
#pragma once

#include "fake_model.hpp"
#include "runtime/sim/counting_timers.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/test/unit_test.hpp>

namespace troupe::test {

struct answer {
  std::vector<std::int32_t> ids;
  std::string text;
  std::uint32_t accepted = 0, terminal = 0;
  std::optional<done_event> done;
  std::optional<error> failed;
};

/// A real engine state on the test's own executor, which runs only when the test says so.
struct engine_fixture {
  boost::asio::io_context io;
  boost::asio::io_context text; ///< the background's, when `slow_text`; it runs only when the test says so
  bool slow_text = false;
  boost::asio::any_io_executor worker_of_parker; ///< none: a thread of its own
  std::shared_ptr<runtime::sim::counting_timers> timers = std::make_shared<runtime::sim::counting_timers>(
      std::make_shared<runtime::asio_timers>(io.get_executor()));
  std::shared_ptr<fake_host> host = std::make_shared<fake_host>(io.get_executor(), 64);
  engine_options options;
  std::shared_ptr<detail::engine_state> engine;

  engine_fixture() {
    options.max_batch = 8;
    options.max_queue = 16;
    options.max_step_tokens = 32;
  }
  ~engine_fixture() {
    if (engine) {
      engine->abandon();
      turn();
    }
  }

  detail::engine_environment environment() {
    auto around = detail::real_environment(io.get_executor());
    around.timers = timers;
    around.background = slow_text ? text.get_executor() : io.get_executor();
    if (worker_of_parker)
      around.make_park_worker = [ex = worker_of_parker] {
        return std::pair<boost::asio::any_io_executor, std::shared_ptr<void>>(ex, nullptr);
      };
    around.load = [h = host](const engine_options&, std::stop_token) -> detail::host_result {
      return std::shared_ptr<const detail::model_host>(h);
    };
    return around;
  }

  void start() { start(environment()); }
  void start(detail::engine_environment around) {
    engine = std::make_shared<detail::engine_state>(io.get_executor(), options, std::move(around));
    std::optional<result<void>> outcome;
    engine->start([&](result<void> r) { outcome = std::move(r); });
    turn_text();
    run_until([&] { return outcome.has_value(); });
    BOOST_REQUIRE(outcome->has_value());
  }

  /// Does whatever can be done now.
  void turn() {
    io.restart();
    io.poll();
  }
  void turn_text() {
    text.restart();
    text.poll();
    turn();
  }

  /// Runs the executor until `condition`; a condition that can no longer come true fails the test instead of
  /// hanging.
  template<class Condition>
  void run_until(Condition condition) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    io.restart();
    while (!condition() && std::chrono::steady_clock::now() < limit)
      if (io.run_one_for(std::chrono::milliseconds(100)) == 0) io.restart();
    BOOST_REQUIRE(condition());
  }

  void collect(stream& s, std::shared_ptr<answer> into) {
    s.async_read([this, &s, into](boost::system::error_code ec, stream_event event) {
      BOOST_TEST(!ec);
      if (std::holds_alternative<accepted_event>(event)) ++into->accepted;
      if (const auto* t = std::get_if<token_event>(&event)) {
        into->ids.insert(into->ids.end(), t->token_ids.begin(), t->token_ids.end());
        into->text += t->text;
      }
      if (const auto* d = std::get_if<done_event>(&event)) into->done = *d;
      if (const auto* f = std::get_if<failed_event>(&event)) into->failed = f->why;
      if (detail::is_terminal(event))
        ++into->terminal;
      else
        collect(s, into);
    });
  }

  /// The answer of a request, running the executor until its end.
  std::shared_ptr<answer> finish(request what) {
    stream s = engine->submit(std::move(what));
    auto a = std::make_shared<answer>();
    collect(s, a);
    run_until([&] { return a->terminal > 0; });
    return a;
  }

  request ask(std::vector<std::int32_t> prompt, std::uint32_t tokens) {
    request r;
    r.prompt = std::move(prompt);
    r.max_tokens = tokens;
    return r;
  }
};

} // namespace troupe::test
