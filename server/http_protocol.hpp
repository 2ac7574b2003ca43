// SPDX-License-Identifier: Apache-2.0
// The HTTP door: routes, one answer after another in the order of the requests, server-sent events, the way
// to WebSocket.
#pragma once

#include "server/http_response.hpp"
#include "server/openai_answers.hpp"
#include "server/session_core.hpp"

#include <deque>
#include <optional>
#include <variant>

namespace troupe::server {

class http_protocol final : public door_protocol {
 public:
  explicit http_protocol(const http_limits& limits) : parser_(limits) {}

  void on_start(session_core& s) override;
  void on_bytes(session_core& s, std::string_view bytes) override;
  void on_accepted(session_core& s, request_key key, accepted_event event) override;
  void on_token(session_core& s, request_key key, token_event event) override;
  void on_done(session_core& s, request_key key, done_event event) override;
  void on_failed(session_core& s, request_key key, error why) override;
  void on_room(session_core& s) override;
  void on_input_end(session_core& s) override;
  void on_drain(session_core& s) override;
  void on_overload(session_core& s) override;
  std::size_t buffered_bytes() const override;
  void on_time(session_core& s) override;
  std::optional<time_point> deadline(const session_core& s) const override;

  /// One row of the route table; every path and method that is not in it is refused.
  struct route {
    std::string_view method; ///< GET serves HEAD too
    std::string_view path;
    bool prefix = false; ///< `path` ends with `/` and something follows
    void (http_protocol::*handle)(session_core& s, const http_request& r) = nullptr;
  };

 private:
  // The answer being produced; there is one at a time.
  struct exchange {
    http_response_context response;
    answer_meta meta;
    bool stream = false;
    bool head_sent = false;
    std::optional<openai_stream_writer> writer; // of a stream
    completion whole;                           // of an answer in one piece
    std::size_t whole_bytes = 0;                // of memory that it takes
    time_point last_sent{};                     // or the exchange's start
  };

  void handle(session_core& s, const http_request& r);
  void next(session_core& s);
  void answer(
      session_core& s, int status, std::string_view content_type, std::string_view body,
      const std::vector<http_header>& extra = {});
  void answer_error(session_core& s, const error& why);
  void answer_error(
      session_core& s, int status, std::string_view message, const std::vector<http_header>& extra = {});
  void fail_connection(session_core& s, const http_failure& why);
  void fail_connection(session_core& s, const error& why);
  bool may_go_on(const session_core& s) const;
  void finish_exchange(session_core& s);
  void enqueue(session_core& s, http_request r);
  void send_piece(session_core& s, std::string_view piece);
  void probe_listener(session_core& s);

  void generate(session_core& s, const http_request& r, openai_api api);
  void completions(session_core& s, const http_request& r);
  void chat(session_core& s, const http_request& r);
  void models(session_core& s, const http_request& r);
  void model(session_core& s, const http_request& r);
  void health(session_core& s, const http_request& r);
  void alive(session_core& s, const http_request& r);
  void ready(session_core& s, const http_request& r);
  void metrics(session_core& s, const http_request& r);
  void stream(session_core& s, const http_request& r);

  static const route routes[];

  http_parser parser_;
  std::deque<std::variant<http_request, http_failure>> waiting_;
  std::size_t waiting_bytes_ = 0;
  std::optional<exchange> current_;
  http_response_context response_; // of the request being handled
  time_point phase_since_{};
  http_phase phase_ = http_phase::idle;
  bool first_request_ = true;
  bool continue_due_ = false;
  bool upgraded_ = false;
  bool input_ended_ = false; // the client's half is closed
  bool deaf_ = false; // nothing more is read: an earlier failure, too much pipelined, or the input's end
};

} // namespace troupe::server
