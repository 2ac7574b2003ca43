// SPDX-License-Identifier: Apache-2.0
// An answer inside an Asio program: the engine runs on the program's own executor.
#include "troupe/engine.hpp"

#include <boost/asio.hpp>
#include <iostream>

namespace asio = boost::asio;

asio::awaitable<void> answer(troupe::engine& engine) {
  const auto started = co_await engine.async_start(asio::use_awaitable);
  started.value(); // throws troupe::failure with one line that says what is wrong
  troupe::request ask;
  ask.prompt = troupe::chat_prompt{{{"user", "Name three colours."}}};
  ask.max_tokens = 40;
  troupe::stream stream = engine.submit(std::move(ask)); // destroying it would cancel the request
  while (true) {
    const auto event = co_await stream.async_read(asio::use_awaitable);
    if (const auto* token = std::get_if<troupe::token_event>(&event)) std::cout << token->text << std::flush;
    if (const auto* failed = std::get_if<troupe::failed_event>(&event)) throw troupe::failure(failed->why);
    if (std::holds_alternative<troupe::done_event>(event)) co_return;
  }
}

int main(int, char** arguments) {
  asio::io_context io;
  troupe::engine_options options;
  options.model_path = arguments[1];
  options.kv_memory_bytes = 64 << 20;
  troupe::engine engine(io.get_executor(), options);
  asio::co_spawn(io, answer(engine), [&](std::exception_ptr failed) {
    io.stop();
    if (failed) std::rethrow_exception(failed);
  });
  io.run();
  std::cout << '\n';
}
