// SPDX-License-Identifier: Apache-2.0
// The terminal side of `troupe run`.
#include "cli/conversation.hpp"

#include "cli/awaited_values.hpp"
#include "cli/catalogue.hpp"
#include "cli/text.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json.hpp>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#if defined(__GNUC__) && !defined(__clang__)
// g++ 12 takes the frame allocator of Asio's coroutines, when it is inlined, for a mismatched pair.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

namespace troupe::cli {

namespace asio = boost::asio;
namespace json = boost::json;

namespace {

constexpr const char* prompt_mark = "> ";
constexpr int interrupted = 130; // what shells give a program ended by Ctrl-C
constexpr int terminated = 143;  // or by SIGTERM

void show(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// Standard input's, by its name, which a container may lack, or as the controlling one.
int open_terminal() {
  for (const char* path : {static_cast<const char*>(ttyname(STDIN_FILENO)), "/dev/tty"}) {
    const int opened = path == nullptr ? -1 : open(path, O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (opened >= 0) return opened;
  }
  return -1;
}

} // namespace

conversation::conversation(engine_options engine, conversation_options options) :
    options_(std::move(options)), model_path_(engine.model_path), input_(io_),
    signals_(io_, SIGINT, SIGTERM, SIGCONT), engine_(io_.get_executor(), std::move(engine)) {
  if (!options_.system.empty()) history_.push_back({"system", options_.system});
}

int conversation::run() {
  watch_signals();
  asio::co_spawn(io_, converse(), [this](std::exception_ptr broken) {
    if (broken) {
      try {
        std::rethrow_exception(broken);
      } catch (const std::exception& bad) {
        failed_ = error{errc::internal, bad.what(), {}, 0};
      }
    }
    io_.stop();
  });
  io_.run();
  stream_.reset();
  if (failed_) throw failure(*failed_);
  return status_;
}

void conversation::watch_signals() {
  signals_.async_wait([this](boost::system::error_code code, int number) {
    if (code) return;
    if (number == SIGINT) on_interrupt();
    if (number == SIGTERM) on_terminate();
    if (number == SIGCONT && terminal_) terminal_->take();
    watch_signals();
  });
}

void conversation::on_interrupt() {
  switch (stage_) {
  case stage::loading:
    stop_loading(interrupted);
    break;
  case stage::answering:
    leave_armed_ = true;
    if (stream_) stream_->cancel();
    break;
  case stage::prompting:
    editor_.clear();
    if (leave_armed_) {
      leave_ = true;
      input_.cancel();
    } else {
      leave_armed_ = true;
      show(std::string("\n(Ctrl-C again or Ctrl-D to leave)\n") + prompt_mark);
    }
    break;
  }
}

void conversation::on_terminate() {
  leave_ = true;
  switch (stage_) {
  case stage::loading:
    return stop_loading(terminated);
  case stage::answering:
    if (stream_) stream_->cancel();
    break;
  case stage::prompting:
    input_.cancel();
    break;
  }
  status_ = terminated;
}

/// The engine is asked and not just left: its background would load to the end before it can be joined.
void conversation::stop_loading(int status) {
  status_ = status;
  engine_.async_shutdown(std::chrono::milliseconds(0), [](const result<void>&) {});
}

asio::awaitable<void> conversation::converse() {
  const result<void> started = co_await engine_.async_start(asio::use_awaitable);
  if (status_ != 0) co_return; // stopped
  if (!started) {
    failed_ = with_way_out(started.error(), model_path_);
    co_return;
  }
  if (!options_.system.empty() && !options_.raw) tell_of_lost("the system message", options_.system);
  if (options_.prompt)
    co_await answer_once();
  else
    co_await chat();
  const std::chrono::milliseconds limit{1000};
  const result<void> stopped = co_await engine_.async_shutdown(limit, asio::use_awaitable);
  if (!stopped && !failed_) failed_ = stopped.error();
}

request conversation::make_request(const std::string& text) const {
  request what = options_.model_request;
  if (options_.raw) {
    what.prompt = text;
    return what;
  }
  chat_prompt chat;
  chat.messages = history_;
  chat.messages.push_back({"user", text});
  what.prompt = std::move(chat);
  return what;
}

/// Says on standard error what of `text` the model will not see: the tokenizer leaves it out without a word.
void conversation::tell_of_lost(std::string_view what, const std::string& text) const {
  const auto lost = engine_.find_lost(text, options_.raw);
  if (lost && lost->bytes > 0) // an error comes back from the request
    std::fprintf(stderr, "troupe run: %s\n", lost_note(what, lost->bytes, lost->first).c_str());
}

asio::awaitable<void> conversation::answer_once() {
  tell_of_lost("the prompt", *options_.prompt);
  request what = make_request(*options_.prompt);
  const answer given = co_await ask(std::move(what));
  if (given.failed && given.failed->code == errc::cancelled) { // before anything was there
    if (status_ == 0) status_ = interrupted;
    co_return;
  }
  if (given.failed) {
    failed_ = given.failed;
    co_return;
  }
  if (options_.json) {
    print_json(given);
  } else {
    show("\n");
    print_rates(given);
  }
  if (given.done && given.done->reason == finish_reason::cancelled && status_ == 0) status_ = interrupted;
}

asio::awaitable<void> conversation::chat() {
  // An open file of its own: waiting makes it non-blocking, which standard output must not become.
  const int terminal = open_terminal();
  if (terminal < 0) {
    failed_ = error{errc::io, std::string("the terminal cannot be opened: ") + std::strerror(errno), {}, 0};
    co_return;
  }
  input_.assign(terminal);
  terminal_.emplace(terminal);
  editor_ = line_editor(terminal_->keys());
  std::fprintf(
      stderr, "%s; /help for what can be typed, Ctrl-C stops an answer, Ctrl-D leaves\n",
      one_line(engine_.model().name).c_str());
  while (!leave_) {
    stage_ = stage::prompting;
    show(prompt_mark);
    const std::optional<std::string> line = co_await read_line();
    if (!line) break;
    leave_armed_ = false;
    if (line->empty() || command(*line)) continue;
    tell_of_lost("the prompt", *line);
    request what = make_request(*line);
    answer given = co_await ask(std::move(what));
    show("\n");
    if (output_lost()) {
      failed_ = error{errc::io, "standard output cannot be written", {}, 0};
      break;
    }
    if (given.failed) {
      std::fprintf(
          stderr, "%s%s\n", one_line(given.failed->message).c_str(),
          given.failed->code == errc::context_length_exceeded ? "; /clear forgets the conversation" : "");
      continue;
    }
    print_rates(given);
    if (options_.raw) continue;
    history_.push_back({"user", *line});
    history_.push_back({"assistant", std::move(given.text)});
  }
  show("\n");
}

// True when the line was for this program and not for the model.
bool conversation::command(const std::string& line) {
  if (line[0] != '/') return false;
  if (line == "/clear") {
    history_.resize(options_.system.empty() ? 0 : 1);
    std::fputs("forgotten\n", stderr);
  } else if (line == "/exit" || line == "/quit") {
    leave_ = true;
  } else {
    std::fputs(
        "/clear forgets the conversation, /exit leaves; anything else that begins with / is not sent\n",
        stderr);
  }
  return true;
}

// Nothing at the end of input.
asio::awaitable<std::optional<std::string>> conversation::read_line() {
  while (true) {
    std::string_view typed = unread_;
    std::string shown;
    const line_editor::outcome outcome = editor_.take(typed, shown);
    unread_.erase(0, unread_.size() - typed.size());
    if (terminal_->taken()) terminal_->show(shown);
    if (outcome == line_editor::outcome::line) co_return editor_.text();
    if (outcome == line_editor::outcome::end) co_return std::nullopt;
    const auto [code] = co_await input_.async_wait(asio::posix::stream_descriptor::wait_read, values);
    if (code) co_return std::nullopt;
    std::array<char, 4096> block{};
    const ssize_t count = read(input_.native_handle(), block.data(), block.size());
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count <= 0) co_return std::nullopt;
    unread_.append(block.data(), static_cast<std::size_t>(count));
  }
}

asio::awaitable<answer> conversation::ask(request what) {
  using clock = std::chrono::steady_clock;
  answer given;
  stage_ = stage::answering;
  const auto began = clock::now();
  stream_.emplace(engine_.submit(std::move(what)));
  while (!given.done && !given.failed) {
    auto [code, event] = co_await stream_->async_read(values);
    if (code) {
      given.failed = error{errc::internal, "the answer ended without a result: " + code.message(), {}, 0};
    } else if (auto* accepted = std::get_if<accepted_event>(&event)) {
      given.prompt_token_ids = std::move(accepted->prompt_token_ids);
    } else if (const auto* token = std::get_if<token_event>(&event)) {
      if (given.token_ids.empty()) given.to_first = clock::now() - began;
      given.token_ids.insert(given.token_ids.end(), token->token_ids.begin(), token->token_ids.end());
      given.text += token->text;
      if (!options_.json) show(token->text);
      if (output_lost()) given.failed = error{errc::io, "standard output cannot be written", {}, 0};
    } else if (auto* done = std::get_if<done_event>(&event)) {
      given.done = std::move(*done);
    } else if (auto* broken = std::get_if<failed_event>(&event)) {
      given.failed = std::move(broken->why);
    }
  }
  given.whole = clock::now() - began;
  stream_.reset();
  co_return given;
}

void conversation::print_json(const answer& given) const {
  const json::object object{
      {"text", given.text},
      {"prompt_token_ids", json::value_from(given.prompt_token_ids)},
      {"token_ids", json::value_from(given.token_ids)},
      {"finish_reason", finish_reason_name(given.done->reason)},
      {"usage",
       {{"prompt_tokens", given.done->usage.prompt_tokens},
        {"completion_tokens", given.done->usage.completion_tokens}}},
      {"model", given.done->model},
      {"system_fingerprint", given.done->system_fingerprint},
      {"seconds", given.whole.count()},
      {"seconds_to_first_token", given.to_first.count()}};
  show(json::serialize(object) + '\n');
}

// For a person who watches; a pipe gets the answer alone.
void conversation::print_rates(const answer& given) const {
  if (isatty(STDERR_FILENO) == 0 || given.token_ids.empty()) return;
  const double after_first = (given.whole - given.to_first).count();
  std::fprintf(stderr, "[%zu tokens", given.token_ids.size());
  if (given.token_ids.size() > 1 && after_first > 0)
    std::fprintf(stderr, ", %.1f tokens/s", static_cast<double>(given.token_ids.size() - 1) / after_first);
  std::fprintf(stderr, ", first after %.2f s]\n", given.to_first.count());
}

} // namespace troupe::cli
