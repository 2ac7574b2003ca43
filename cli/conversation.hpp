// SPDX-License-Identifier: Apache-2.0
// One engine and one person: prompts from the command line or the terminal, answers as they come.
#pragma once

#include "cli/chat_terminal.hpp"
#include "cli/line_editor.hpp"
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
/// right after an answer was stopped, it ends the program. So does SIGTERM, at any time.
class conversation {
 public:
  conversation(engine_options engine, conversation_options options);

  /// Exit status: 0; 130 when the loading or a single answer was stopped; 143 after SIGTERM. Throws
  /// `failure`.
  int run();

 private:
  enum class stage : std::uint8_t { loading, prompting, answering };

  void watch_signals();
  void on_interrupt();
  void on_terminate();
  void stop_loading(int status);
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
  std::string model_path_;
  boost::asio::io_context io_{1};
  boost::asio::posix::stream_descriptor input_;
  std::optional<chat_terminal> terminal_; ///< of `input_`, in a chat
  line_editor editor_;
  boost::asio::signal_set signals_;
  engine engine_;
  std::optional<stream> stream_; ///< while answering
  stage stage_ = stage::loading;
  bool leave_armed_ = false; ///< the next Ctrl-C at the prompt ends the program
  bool leave_ = false;
  std::vector<chat_message> history_;
  std::string unread_; ///< input that the editor has not seen
  std::optional<error> failed_;
  int status_ = 0;
};

} // namespace troupe::cli
