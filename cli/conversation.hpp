// SPDX-License-Identifier: Apache-2.0
// One engine and one person: prompts from the command line or the terminal, answers as they come.
#pragma once

#include "troupe/engine.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace troupe::cli {

struct conversation_options {
  request model_request;             ///< everything but the prompt
  std::string system;                ///< first message of a chat, or empty
  std::optional<std::string> prompt; ///< absent: a chat in the terminal
  bool raw = false;                  ///< the prompt goes to the model as it is, without the chat template
  bool json = false;                 ///< one object at the end instead of text as it comes
};

/// What one request gave.
struct answer {
  std::string text;
  std::vector<std::int32_t> prompt_token_ids, token_ids;
  std::optional<done_event> done;
  std::optional<error> failed;
  std::chrono::duration<double> to_first{}, whole{};
};

/// Runs on one thread, which `run` blocks. Ctrl-C ends the running answer; at the prompt, asked twice or
/// right after an answer was stopped, it ends the program.
class conversation {
 public:
  conversation(engine_options engine, conversation_options options);

  /// Exit status: 0, or 130 when a single answer was stopped. Throws `failure`.
  int run();

 private:
  enum class stage : std::uint8_t { loading, prompting, answering };

  void watch_interrupts();
  void on_interrupt();
  boost::asio::awaitable<void> converse();
  boost::asio::awaitable<void> answer_once();
  boost::asio::awaitable<void> chat();
  boost::asio::awaitable<std::optional<std::string>> read_line();
  boost::asio::awaitable<answer> ask(request what);
  bool command(const std::string& line);
  void tell_of_lost(std::string_view what, const std::string& text) const;
  request make_request(const std::string& text) const;
  void print_json(const answer& given) const;
  void print_rates(const answer& given) const;

  conversation_options options_;
  boost::asio::io_context io_{1};
  boost::asio::posix::stream_descriptor input_;
  boost::asio::signal_set signals_;
  engine engine_;
  std::optional<stream> stream_; ///< while answering
  stage stage_ = stage::loading;
  bool leave_armed_ = false; ///< the next Ctrl-C at the prompt ends the program
  bool leave_ = false;
  std::vector<chat_message> history_;
  std::string unread_; ///< input after the last line taken
  std::optional<error> failed_;
  int status_ = 0;
};

} // namespace troupe::cli
