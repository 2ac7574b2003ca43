// SPDX-License-Identifier: Apache-2.0
#include "server/http_protocol.hpp"

#include "server/status_table.hpp"
#include "server/websocket_protocol.hpp"

#include <algorithm>

namespace troupe::server {
namespace {

constexpr std::string_view json_type = "application/json";
constexpr std::string_view metrics_type = "text/plain; version=0.0.4; charset=utf-8";
constexpr std::string_view continue_line = "HTTP/1.1 100 Continue\r\n\r\n";

std::string hex(std::uint64_t value) {
  constexpr char digits[] = "0123456789abcdef";
  std::string out(16, '0');
  for (std::size_t i = 16; i-- > 0; value >>= 4) out[i] = digits[value & 15U];
  return out;
}

// What a refusal that passes tells beside its status. Whole seconds, at least one: a client that comes back
// at once only adds to the load.
std::vector<http_header> refusal_fields(int status, const error& why) {
  if (status != 429 && status != 503) return {};
  const std::uint32_t seconds = std::max<std::uint32_t>(1, (why.retry_after_ms + 999) / 1000);
  std::vector<http_header> fields{
      {"Retry-After", std::to_string(seconds)},
      {"X-Request-Rejected-Reason", std::string(code_name(why.code))}};
  if (why.queue_length) fields.push_back({"X-Queue-Length", std::to_string(*why.queue_length)});
  return fields;
}

// Why requests are not taken now; nothing when they are.
std::optional<error> not_ready(door_health health) {
  switch (health) {
  case door_health::ready:
    return std::nullopt;
  case door_health::loading:
    return error{errc::model_loading, "the model is still being loaded", {}, 1000};
  case door_health::draining:
    return error{errc::draining, "the server is shutting down", {}, 1000};
  case door_health::failed:
    return error{errc::executor_failed, "the engine is not running after a failure", {}, 1000};
  }
  return std::nullopt;
}

std::string_view health_word(door_health health) {
  switch (health) {
  case door_health::ready:
    return "ok";
  case door_health::loading:
    return "loading";
  case door_health::draining:
    return "draining";
  case door_health::failed:
    return "failed";
  }
  return "failed";
}

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// A path segment without its percent escapes; what is no escape stays.
std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape =
        text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0;
    if (escape) {
      out.push_back(static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2])));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

// Memory that an event adds to an answer that is collected before it is sent.
std::size_t bytes_of(const token_event& event) noexcept {
  std::size_t sum = event.text.size() + event.token_ids.size() * sizeof(std::int32_t) +
                    event.logprobs.size() * sizeof(scored_token);
  for (const auto& top : event.top_logprobs) sum += top.size() * sizeof(scored_token);
  return sum;
}

std::size_t bytes_of(const accepted_event& event) noexcept {
  std::size_t tokens = event.prompt_token_ids.size();
  for (const auto& prompt : event.further_prompts) tokens += prompt.size();
  return tokens * sizeof(std::int32_t);
}

} // namespace

const http_protocol::route http_protocol::routes[] = {
    {"POST", "/v1/completions", false, &http_protocol::completions},
    {"POST", "/v1/chat/completions", false, &http_protocol::chat},
    {"GET", "/v1/models", false, &http_protocol::models},
    {"GET", "/v1/models/", true, &http_protocol::model},
    {"GET", "/v1/stream", false, &http_protocol::stream},
    {"GET", "/health", false, &http_protocol::health},
    {"GET", "/livez", false, &http_protocol::alive},
    {"GET", "/readyz", false, &http_protocol::ready},
    {"GET", "/metrics", false, &http_protocol::metrics},
};

void http_protocol::on_start(session_core& s) {
  phase_since_ = s.now();
}

void http_protocol::on_bytes(session_core& s, std::string_view bytes) {
  while (!deaf_ && !s.closed()) {
    if (upgraded_) {
      s.hand_on(bytes);
      return;
    }
    const auto [consumed, event] = parser_.feed(bytes);
    bytes.remove_prefix(consumed);
    if (event == http_event::need_more) break;
    if (event == http_event::wants_continue) {
      if (current_ || !waiting_.empty())
        continue_due_ = true;
      else
        s.send(continue_line);
    } else if (event == http_event::complete) {
      continue_due_ = false;
      enqueue(s, parser_.take());
      phase_ = http_phase::idle;
      phase_since_ = s.now();
    } else {
      deaf_ = true;
      waiting_.emplace_back(parser_.failure());
      if (!current_) next(s);
    }
  }
  if (const http_phase phase = parser_.phase(); phase != phase_) {
    phase_ = phase;
    phase_since_ = s.now();
  }
}

void http_protocol::enqueue(session_core& s, http_request r) {
  const door_limits& limits = s.context().limits;
  const std::size_t bytes = r.bytes();
  // They wait behind an answer, or for a client that does not read its answers.
  if ((current_ || !waiting_.empty()) &&
      (waiting_.size() >= limits.pipelined_requests || waiting_bytes_ + bytes > limits.pipelined_bytes)) {
    // Those already taken are answered; then the connection closes and the client knows what was not.
    deaf_ = true;
    return;
  }
  waiting_bytes_ += bytes;
  waiting_.emplace_back(std::move(r));
  if (!current_) next(s);
}

// Answers what waits, until an answer takes time or the client does not read its answers.
void http_protocol::next(session_core& s) {
  while (!current_ && !waiting_.empty() && !s.closed() && !upgraded_ && s.output_has_room()) {
    auto item = std::move(waiting_.front());
    waiting_.pop_front();
    if (const auto* failure = std::get_if<http_failure>(&item)) {
      fail_connection(s, *failure);
      return;
    }
    const http_request& r = std::get<http_request>(item);
    waiting_bytes_ -= r.bytes();
    first_request_ = false;
    handle(s, r);
  }
  if (current_ || !waiting_.empty() || s.closed() || upgraded_) return;
  phase_since_ = s.now();
  if (deaf_) s.close();
  if (continue_due_) {
    continue_due_ = false;
    s.send(continue_line);
  }
}

// Whether another answer may follow the one being written.
bool http_protocol::may_go_on(const session_core& s) const {
  return !s.draining() && !(deaf_ && waiting_.empty());
}

void http_protocol::handle(session_core& s, const http_request& r) {
  response_ = {};
  response_.head_only = r.method == "HEAD";
  response_.keep_alive = r.keep_alive && may_go_on(s);
  response_.minor_version = r.minor_version;
  response_.unix_seconds = s.context().services.unix_seconds();

  if (!host_allowed(s.context().policy, r.host) && !(r.host.empty() && r.minor_version == 0))
    return answer_error(
        s, 403, "this server does not answer to the Host name of the request (server.allowed_hosts)");
  if (const std::string* origin = r.field("origin");
      origin && !origin_allowed(s.context().policy, *origin, r.host))
    return answer_error(s, 403, "requests from this Origin are not accepted (server.allowed_origins)");

  std::string allow;
  for (const route& one : routes) {
    const bool same =
        one.prefix ? r.path.size() > one.path.size() && r.path.starts_with(one.path) : r.path == one.path;
    if (!same) continue;
    if (r.method == one.method || (r.method == "HEAD" && one.method == "GET"))
      return (this->*one.handle)(s, r);
    allow.append(allow.empty() ? "" : ", ").append(one.method);
    if (one.method == "GET") allow.append(", HEAD");
  }
  if (!allow.empty())
    return answer_error(s, 405, "this path answers to " + allow + " only", {{"Allow", allow}});
  answer_error(s, 404, "no such path");
}

void http_protocol::answer(
    session_core& s, int status, std::string_view content_type, std::string_view body,
    const std::vector<http_header>& extra) {
  ++s.context().counters.http_responses[status];
  s.send(http_response(response_, status, content_type, body, extra));
  if (!response_.keep_alive) s.close();
}

void http_protocol::answer_error(session_core& s, const error& why) {
  const int status = status_of(why.code).http_status;
  answer(s, status, json_type, openai_error_body(why), refusal_fields(status, why));
}

void http_protocol::answer_error(
    session_core& s, int status, std::string_view message, const std::vector<http_header>& extra) {
  answer(s, status, json_type, openai_error_body(status, message), extra);
}

void http_protocol::fail_connection(session_core& s, const http_failure& why) {
  ++s.context().counters.protocol_errors;
  response_ = {};
  response_.keep_alive = false;
  response_.unix_seconds = s.context().services.unix_seconds();
  answer_error(s, why.status, why.message);
}

void http_protocol::fail_connection(session_core& s, const error& why) {
  response_ = {};
  response_.keep_alive = false;
  response_.unix_seconds = s.context().services.unix_seconds();
  answer_error(s, why);
}

void http_protocol::completions(session_core& s, const http_request& r) {
  generate(s, r, openai_api::completions);
}
void http_protocol::chat(session_core& s, const http_request& r) {
  generate(s, r, openai_api::chat);
}

void http_protocol::generate(session_core& s, const http_request& r, openai_api api) {
  door_services& services = s.context().services;
  if (services.health() == door_health::loading) return answer_error(s, *not_ready(door_health::loading));
  auto body = parse_openai_body(api, r.body, services.rules());
  if (!body) return answer_error(s, body.error());

  exchange e;
  e.response = response_;
  e.stream = body->stream;
  e.meta.api = api;
  e.meta.id = (api == openai_api::chat ? "chatcmpl-" : "cmpl-") + hex(services.random());
  e.meta.created = services.unix_seconds();
  e.meta.model = services.rules().model_name;
  e.meta.system_fingerprint = services.system_fingerprint();
  e.meta.include_usage = body->include_usage;
  e.meta.return_token_ids = body->return_token_ids;
  e.meta.n = body->what.n;
  e.meta.choices = static_cast<std::uint32_t>(body->what.further_prompts.size() + 1) * body->what.n;
  body->what.name = e.meta.id;
  if (e.stream) e.writer.emplace(e.meta);
  e.last_sent = s.now();
  // A stream to HTTP/1.0 has no end but that of the connection.
  if (e.stream && stream_ends_by_closing(e.response)) e.response.keep_alive = false;
  current_ = std::move(e);
  s.submit(std::move(body->what));
}

void http_protocol::send_piece(session_core& s, std::string_view piece) {
  if (piece.empty()) return;
  std::string out;
  append_stream_piece(out, current_->response, piece);
  s.send(out);
  current_->last_sent = s.now();
}

void http_protocol::on_accepted(session_core& s, request_key, accepted_event event) {
  exchange& e = *current_;
  if (!event.model.empty()) e.meta.model = event.model;
  if (!e.stream) {
    e.whole_bytes += bytes_of(event);
    e.whole.prompt_token_ids = std::move(event.prompt_token_ids);
    e.whole.further_prompts = std::move(event.further_prompts);
    return;
  }
  e.head_sent = true;
  e.last_sent = s.now();
  ++s.context().counters.http_responses[200];
  s.send(http_stream_head(e.response));
  send_piece(s, e.writer->start(event));
}

void http_protocol::on_token(session_core& s, request_key, token_event event) {
  exchange& e = *current_;
  if (e.stream) {
    send_piece(s, e.writer->token(event));
    return;
  }
  e.whole_bytes += bytes_of(event);
  e.whole.take(std::move(event));
}

void http_protocol::on_done(session_core& s, request_key, done_event event) {
  exchange& e = *current_;
  response_ = e.response;
  if (e.stream) {
    send_piece(s, e.writer->end(event));
    finish_exchange(s);
    return;
  }
  if (!event.model.empty()) e.meta.model = event.model;
  if (!event.system_fingerprint.empty()) e.meta.system_fingerprint = event.system_fingerprint;
  e.whole.take(std::move(event));
  response_.keep_alive = response_.keep_alive && may_go_on(s);
  const std::string body = openai_completion(e.meta, e.whole);
  current_.reset();
  answer(s, 200, json_type, body);
  next(s);
}

void http_protocol::on_failed(session_core& s, request_key, error why) {
  response_ = current_->response;
  if (current_->head_sent) {
    send_piece(s, openai_stream_writer::failure(why));
    finish_exchange(s);
    return;
  }
  current_.reset();
  response_.keep_alive = response_.keep_alive && may_go_on(s);
  answer_error(s, why);
  next(s);
}

// Ends a stream.
void http_protocol::finish_exchange(session_core& s) {
  std::string out;
  append_stream_end(out, current_->response);
  s.send(out);
  current_.reset();
  // The head has promised to keep the connection; a drain closes it all the same.
  if (!response_.keep_alive || s.draining()) s.close();
  next(s);
}

void http_protocol::models(session_core& s, const http_request&) {
  door_services& services = s.context().services;
  if (services.health() == door_health::loading) return answer_error(s, *not_ready(door_health::loading));
  answer(
      s, 200, json_type,
      openai_model_list(
          services.rules().model_name, services.context_tokens(), services.started_unix_seconds()));
}

void http_protocol::model(session_core& s, const http_request& r) {
  door_services& services = s.context().services;
  if (services.health() == door_health::loading) return answer_error(s, *not_ready(door_health::loading));
  const std::string_view asked = std::string_view(r.path).substr(std::string_view("/v1/models/").size());
  if (percent_decoded(asked) != services.rules().model_name)
    return answer_error(s, {errc::not_found, "this server does not have that model", "model", 0});
  answer(
      s, 200, json_type,
      openai_model(services.rules().model_name, services.context_tokens(), services.started_unix_seconds()));
}

void http_protocol::health(session_core& s, const http_request&) {
  const door_health now = s.context().services.health();
  const std::string body = R"({"status":")" + std::string(health_word(now)) + "\"}";
  if (const auto why = not_ready(now)) return answer(s, 503, json_type, body, refusal_fields(503, *why));
  answer(s, 200, json_type, body);
}

void http_protocol::alive(session_core& s, const http_request&) {
  answer(s, 200, "text/plain", "alive\n");
}

void http_protocol::ready(session_core& s, const http_request&) {
  if (const auto why = not_ready(s.context().services.health()))
    return answer(s, 503, "text/plain", "not ready\n", refusal_fields(503, *why));
  answer(s, 200, "text/plain", "ready\n");
}

void http_protocol::metrics(session_core& s, const http_request&) {
  answer(s, 200, metrics_type, s.context().services.metrics_text());
}

void http_protocol::stream(session_core& s, const http_request& r) {
  if (!asks_for_websocket(r))
    return answer_error(
        s, 426, "this path speaks WebSocket; see the `Upgrade` field",
        {{"Upgrade", "websocket"}, {"Connection", "Upgrade"}});
  websocket_handshake handshake = check_websocket_handshake(r);
  // Bytes behind the handshake were read as HTTP if it had to wait its turn; they cannot become frames any
  // more.
  if (!waiting_.empty() || deaf_ || parser_.phase() != http_phase::idle)
    handshake = {400, "a WebSocket handshake must not be pipelined", {}, false};
  if (handshake.status != 101) {
    response_.keep_alive = false;
    std::vector<http_header> extra;
    if (handshake.status == 426) extra.push_back({"Sec-WebSocket-Version", "13"});
    return answer_error(s, handshake.status, handshake.message, extra);
  }
  if (s.context().services.health() == door_health::draining)
    return answer_error(s, *not_ready(door_health::draining));
  ++s.context().counters.http_responses[101];
  s.send(websocket_handshake_response(handshake));
  upgraded_ = true;
  s.switch_protocol(std::make_unique<websocket_protocol>(s.context().limits.websocket));
}

void http_protocol::on_room(session_core& s) {
  next(s);
}

std::size_t http_protocol::buffered_bytes() const {
  return parser_.buffered_bytes() + waiting_bytes_ + (current_ ? current_->whole_bytes : 0);
}

void http_protocol::on_overload(session_core& s) {
  // Between the pieces of another answer there is no place for an error.
  if (current_)
    s.close();
  else
    fail_connection(s, error{errc::no_memory, "the server's buffers are full", {}, 1000});
}

void http_protocol::on_input_end(session_core& s) {
  deaf_ = input_ended_ = true; // what was taken is answered, half a request is not
  if (!current_ && waiting_.empty()) return s.close();
  if (current_) probe_listener(s);
}

// Whether anybody still listens shows only in what comes back for bytes sent: a client that is gone answers
// with a reset. It may leave later than its input ended, so this is repeated.
void http_protocol::probe_listener(session_core& s) {
  current_->last_sent = s.now();
  if (current_->head_sent)
    send_piece(s, ": ping\n\n");
  else if (current_->response.minor_version > 0)
    s.send(continue_line);
  else
    s.close();
}

void http_protocol::on_drain(session_core& s) {
  if (!current_ && waiting_.empty() && parser_.phase() == http_phase::idle) s.close();
}

std::optional<time_point> http_protocol::deadline(const session_core& s) const {
  const door_limits& limits = s.context().limits;
  if (current_) {
    if (input_ended_) return current_->last_sent + limits.probe_interval;
    if (current_->stream && current_->head_sent) return current_->last_sent + limits.ping_interval;
    return std::nullopt;
  }
  switch (phase_) {
  case http_phase::idle:
    return phase_since_ + (first_request_ ? limits.header_timeout : limits.keep_alive_timeout);
  case http_phase::head:
    return phase_since_ + limits.header_timeout;
  case http_phase::body:
    return phase_since_ + limits.body_timeout;
  }
  return std::nullopt;
}

void http_protocol::on_time(session_core& s) {
  const auto due = deadline(s);
  if (!due || s.now() < *due) return;
  if (current_) {
    // A comment, so that nothing on the way takes a long wait for a dead connection.
    current_->last_sent = s.now();
    if (s.output_has_room()) probe_listener(s);
    return;
  }
  if (phase_ == http_phase::idle) {
    s.close();
    return;
  }
  fail_connection(
      s, {408, phase_ == http_phase::head ? "the request head did not arrive in time"
                                          : "the body did not arrive in time"});
}

} // namespace troupe::server
